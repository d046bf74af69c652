package native

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

var columns = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "age", DType: api.Float64}, {Name: "visits", DType: api.Int32}, {Name: "city", DType: api.String}, {Name: "member", DType: api.Bool}},
	Outputs: []api.TensorSpec{{Name: "output", DType: api.String}},
}

// sayRow answers with the row that the model gets.
func sayRow(it *scheduler.Item) {
	in := it.Inputs
	querytest.End(it, api.OK, fmt.Appendf(nil, "%v %d %s %d", math.Float64frombits(binary.LittleEndian.Uint64(in[0].Data)), int32(binary.LittleEndian.Uint32(in[1].Data)), in[2].Data, in[3].Data[0]))
}

func TestCSV(t *testing.T) {
	const names = "age,visits,city,member\n"
	for _, c := range []struct {
		name, kind, body string
		status           int
		want             string // parts of the answer, separated by |
	}{
		{"rows", "text/csv", names + "40.5,3,Köln,true\n-1e3,-2,,False\n", 200, `{"batch_predictions":[|"output":"40.5 3 Köln 1"|"output":"-1000 -2  0"`},
		{"another order, CR LF, no end", "Text/CSV; charset=UTF-8", "city,age,member,visits\r\nLyon,1,TRUE,7", 200, `"output":"1 7 Lyon 1"`},
		{"quotes", "text/csv; header=present", names + `"1","2","a ""b"", c` + "\n" + `d",true` + "\n", 200, `"output":"1 2 a \"b\", c\nd 1"`},
		{"missing values", "text/csv", names + ",1,x,true\nNaN,1,x,true\ninf,1,x,true\n-Infinity,1,x,true\n", 200, `"output":"NaN 1 x 1"|"output":"+Inf 1 x 1"|"output":"-Inf 1 x 1"`},
		{"no header", `text/csv;header="absent"`, "1,2,x,false\n", 200, `"output":"1 2 x 0"`},
		{"a byte order mark and empty lines", "text/csv", "\xef\xbb\xbf" + names + "\n1,2,x,false\n\n", 200, `"output":"1 2 x 0"`},

		{"nothing", "text/csv", "", 400, "text/csv: the body is empty: expected a line with the names of the columns"},
		{"no rows", "text/csv", names, 400, "text/csv: expected at least one row, found none"},
		{"the index of a frame", "text/csv", ",age,visits,city,member\n0,1,2,x,true\n", 400, `line 1: the first column has no name, as the index that pandas writes: use df.to_csv(index=False)`},
		{"a column without a name", "text/csv", "age,,city,member\n1,2,x,true\n", 400, `line 1: unknown column \"\"`},
		{"an unknown column", "text/csv", "age,visits,town,member\n1,2,x,true\n", 400, `line 1: unknown column \"town\": expected \"age\", \"visits\", \"city\", \"member\"`},
		{"a missing column", "text/csv", "age,visits,city\n1,2,x\n", 400, `line 1: the column \"member\" (bool[]) is missing`},
		{"a column twice", "text/csv", "age,age,city,member\n", 400, `the column \"age\" is there twice`},
		{"semicolons", "text/csv", "age;visits;city;member\n1;2;x;true\n", 400, "text/csv: line 1: it has 1 column where 4 were expected: the separator is a comma, and the line has semicolons"},
		{"tabs, no header", "text/csv; header=absent", "1\t2\tx\ttrue\n", 400, "line 1: it has 1 column where 4 were expected: the separator is a comma, and the line has tabs"},
		{"one column", "text/csv", "age\n1\n", 400, `line 1: the column \"visits\" (int32[]) is missing`},
		{"a short row", "text/csv", names + "1,2,x,true\n1,2\n", 400, "line 3: expected 4 values, found 2"},
		{"a long row", "text/csv", names + "1,2,x,true,5\n", 400, "line 2: expected 4 values, found 5"},
		{"text for a number", "text/csv", names + "1,two,x,true\n", 400, `line 2, byte 3, column \"visits\": expected int32, found \"two\"`},
		{"a fraction for an integer", "text/csv", names + "1,2.5,x,true\n", 400, "expected int32"},
		{"a number that is too large", "text/csv", names + "1,3000000000,x,true\n", 400, "expected int32"},
		{"an empty integer", "text/csv", names + "1,,x,true\n", 400, `column \"visits\": the field is empty`},
		{"no boolean", "text/csv", names + "1,2,x,yes\n", 400, "expected bool"},
		{"more than a number", "text/csv", names + "1 2,2,x,true\n", 400, "expected float64"},
		{"JSON for a number", "text/csv", names + `[1],2,x,true`, 400, "expected float64"},
		{"not UTF-8", "text/csv", names + "1,2,\xff,true\n", 400, "the text is not valid UTF-8"},
		{"an open quote", "text/csv", names + `1,2,"x,true`, 400, "text/csv: line 2"},
		{"a quote within", "text/csv", names + `1,2,a"x,true`, 400, "text/csv: line 2"},
		{"another charset", "text/csv; charset=latin1", names, 400, "charset=latin1: expected utf-8"},
		{"another header", "text/csv; header=maybe", names, 400, "header=maybe: expected present or absent"},
		{"too many rows", "text/csv", names + strings.Repeat("1,2,x,true\n", 9), 400, "8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, body := serve(t, columns, sayRow).post(predict, c.body, "Content-Type", c.kind)
			for _, part := range strings.Split(c.want, "|") {
				if a.Status != c.status || !strings.Contains(body, part) {
					t.Errorf("%d %s, want %d %s", a.Status, body, c.status, part)
				}
			}
		})
	}
	if a, body := serve(t, querytest.Floats4, nil).post(predict, "x\n1\n", "Content-Type", "text/csv"); a.Status != 400 || !strings.Contains(body, "expected a model whose inputs are all scalars") {
		t.Errorf("a model without columns: %d %s", a.Status, body)
	}
	declared := api.Signature{Inputs: []api.TensorSpec{{Name: "table", DType: api.String, Media: "text/csv"}}, Outputs: querytest.Bytes.Outputs}
	if a, body := serve(t, declared, echo).post(predict, "a,b\n", "Content-Type", "text/csv"); a.Status != 200 || !strings.Contains(body, `"output":{"b64":"YSxiCg=="}`) {
		t.Errorf("a model of files of this type: %d %s", a.Status, body)
	}
}

// FuzzCSV: any body is answered, with predictions or with what is wrong with it.
func FuzzCSV(f *testing.F) {
	f.Add("text/csv", "age,visits,city,member\n40.5,3,Köln,true\n,-2,\"a \"\"b\"\",c\",False\n")
	f.Add("text/csv; header=absent", "1,2,x,false\r\n")
	f.Add("text/csv", "city,member,visits,age\nx,1,7,NaN\n")
	f.Fuzz(func(t *testing.T, kind, body string) {
		if len(body) > 1<<12 || !strings.HasPrefix(kind, "text/csv") {
			return
		}
		a, answer := serve(t, columns, sayRow).post(predict, body, "Content-Type", kind)
		if a.Status != 200 && (a.Status != 400 || !strings.Contains(answer, "text/csv: ") && !strings.Contains(answer, "at most 8")) {
			t.Errorf("%q of type %q: %d %s", body, kind, a.Status, answer)
		}
	})
}
