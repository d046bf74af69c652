package tensorjson

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

// flower has scalar inputs of several types.
var flower = []api.TensorSpec{
	{Name: "length", DType: api.Float64}, {Name: "petals", DType: api.Int32}, {Name: "kind", DType: api.String}, {Name: "wild", DType: api.Bool},
}

func flowerRow(length float64, petals float64, kind string, wild byte) []api.Value {
	return []api.Value{{Data: raw(api.Float64, length)}, {Data: raw(api.Int32, petals)}, {Data: []byte(kind)}, {Data: []byte{wild}}}
}

func TestRows(t *testing.T) {
	a, b := flowerRow(5.1, 3, "a", 1), flowerRow(math.Float64frombits(0x7ff8000000000000), 4, "b", 0)
	for _, c := range []struct {
		name, body string
		batch      bool
		want       [][]api.Value
	}{
		{"row", `{"input":[5.1, 3, "a", true]}`, false, [][]api.Value{a}},
		{"object", `{"input":{"petals":3,"length":5.1,"kind":"a","wild":true}}`, false, [][]api.Value{a}},
		{"batch of both", `{"input_batch":[[5.1,3,"a",true],{"wild":0,"petals":4,"length":null,"kind":"b"}]}`, true, [][]api.Value{a, b}},
		{"split", `{"dataframe_split":{"index":[0,1],"columns":["length","petals","kind","wild"],"data":[[5.1,3,"a",true],[null,4,"b",false]]}}`, true, [][]api.Value{a, b}},
		{"other order", `{"dataframe_split":{"columns":["wild","kind","length","petals"],"data":[[true,"a",5.1,3]]}}`, true, [][]api.Value{a}},
		{"data first", `{"dataframe_split":{"data": [[true,"a",5.1,3]] , "columns":["wild","kind","length","petals"]}, "context":"u"}`, true, [][]api.Value{a}},
		{"records", `{"dataframe_records":[{"petals":3,"length":5.1,"kind":"a","wild":true},{"length":null,"petals":4,"kind":"b","wild":false}]}`, true, [][]api.Value{a, b}},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, got, err := parse(c.body, flower)
			if err != nil {
				t.Fatal(err)
			}
			if q.Batch != c.batch || q.Queries != len(c.want) {
				t.Errorf("batch %t with %d queries", q.Batch, q.Queries)
			}
			if len(got) != len(c.want) {
				t.Fatalf("%d rows, want %d", len(got), len(c.want))
			}
			for i := range got {
				for j := range got[i] {
					if d := cmp.Diff(string(c.want[i][j].Data), string(got[i][j].Data)); d != "" {
						t.Errorf("row %d, %s: %s", i, flower[j].Name, d)
					}
				}
			}
		})
	}
}

// A table of as many columns as a model may have, in the other order: each value reaches its input, and a missing and a repeated column are
// named wherever they are.
func TestRowsOfManyColumns(t *testing.T) {
	var specs []api.TensorSpec
	var names, values []string
	for i := range MaxInputs {
		specs = append(specs, api.TensorSpec{Name: fmt.Sprintf("c%d", i), DType: api.Int32})
		names, values = append(names, fmt.Sprintf("%q", specs[i].Name)), append(values, strconv.Itoa(i))
	}
	slices.Reverse(names)
	slices.Reverse(values)
	table := func(names, values []string) string {
		return `{"dataframe_split":{"columns":[` + strings.Join(names, ",") + `],"data":[[` + strings.Join(values, ",") + `]]}}`
	}
	_, got, err := parse(table(names, values), specs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range specs {
		if string(got[0][i].Data) != string(raw(api.Int32, float64(i))) {
			t.Errorf("%s is % x", specs[i].Name, got[0][i].Data)
		}
	}
	for i := range specs {
		at := len(names) - 1 - i
		if _, _, err := parse(table(slices.Delete(slices.Clone(names), at, at+1), values[1:]), specs); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("the column %q (int32[]) is missing", specs[i].Name)) {
			t.Errorf("without column %d: %v", i, err)
		}
		twice := slices.Clone(names)
		twice[(at+1)%len(names)] = names[at]
		if _, _, err := parse(table(twice, values), specs); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("duplicate column %q", specs[i].Name)) {
			t.Errorf("with column %d twice: %v", i, err)
		}
	}
}

func TestRowsOfOneInput(t *testing.T) {
	for _, body := range []string{`{"dataframe_split":{"columns":["x"],"data":[[1],[2]]}}`, `{"dataframe_records":[{"x":1},{"x":2}]}`} {
		q, got, err := parse(body, spec(api.Int8))
		if err != nil || q.Queries != 2 || string(got[0][0].Data)+string(got[1][0].Data) != "\x01\x02" {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
}

func TestRowsRefused(t *testing.T) {
	vector := []api.TensorSpec{{Name: "a", DType: api.Float32}, {Name: "v", DType: api.Float32, Shape: []int64{2}}}
	for _, c := range []struct {
		specs      []api.TensorSpec
		body, want string
	}{
		{flower, `{"input":[5.1,3,"a"]}`, `input: expected a row of 4 values, found 3: "wild" is missing`},
		{flower, `{"input":[5.1,3,"a",true,1]}`, `input: expected a row of 4 values, found more`},
		{flower, `{"input":[5.1,null,"a",true]}`, `input.petals: expected a number, found null`},
		{flower, `{"input":[5.1,3,null,true]}`, `input.kind: expected a string`},
		{flower, `{"input_batch":[[5.1,3,"a",true],[5.1,3.5,"a",true]]}`, `input_batch[1].petals: expected an integer for int32`},
		{vector, `{"input":[1,[2,3]]}`, `input: expected an object of the inputs "a", "v"`},
		{vector, `{"dataframe_records":[]}`, `dataframe_records: expected a model whose inputs are all scalars, found the input "v"`},
		{flower, `{"dataframe_records":[]}`, `expected at least one row`},
		{flower, `{"instances":[{"length":1}]}`, `body: there is no member "instances": expected "input" for one row, "input_batch" or "dataframe_records" for several, or "dataframe_split"`},
		{vector, `{"instances":[[1]]}`, `body: there is no member "instances": expected "input" for one query or "input_batch" for several`},
		{flower, `[{"length":1}]`, `body: expected an object with a member "input", "input_batch", "dataframe_records" or "dataframe_split", found an array`},
		{flower, `{"length":1}`, `body: expected a member "input", "input_batch", "dataframe_records" or "dataframe_split"`},
		{flower, `{"dataframe_records":[{"length":1,"petals":1,"kind":"a","wild":true,"color":"red"}]}`, `dataframe_records[0]: unknown column "color"`},
		{flower, `{"dataframe_records":[{"length":1,"kind":"a","wild":true}]}`, `the column "petals" (`},
		{flower, `{"dataframe_split":{"columns":["length","petals","kind"],"data":[]}}`, `dataframe_split.columns: the column "wild" (`},
		{flower, `{"dataframe_split":{"columns":["length","petals","kind","kind"],"data":[]}}`, `dataframe_split.columns[3]: duplicate column "kind"`},
		{flower, `{"dataframe_split":{"columns":["length","color"],"data":[]}}`, `dataframe_split.columns[1]: unknown column "color"`},
		{flower, `{"dataframe_split":{"columns":["length","petals","kind","wild"]}}`, `expected a member "data"`},
		{flower, `{"dataframe_split":{"data":[[1]]}}`, `expected a member "columns"`},
		{flower, `{"dataframe_split":{"data":[],"data":[]}}`, `duplicate member "data"`},
		{flower, `{"dataframe_split":{"columns":["wild","petals","kind","length"],"data":[[true,1,"a"]]}}`, `dataframe_split.data[0]: expected a row of 4 values, found 3: "length" is missing`},
		{flower, `{"input":[5.1,3,"a",true],"dataframe_records":[]}`, `expected one of "input" and "dataframe_records", found both`},
	} {
		_, _, err := parse(c.body, c.specs)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.body, err, c.want)
		}
	}
}

// TestRowsAllocateNothing: a table costs no allocation in steady state.
func TestRowsAllocateNothing(t *testing.T) {
	s, q := &store{width: len(flower), limit: 8}, &Request{}
	for _, body := range [][]byte{
		[]byte(`{"input":[5.1, 3, "a", true]}`),
		[]byte(`{"dataframe_split":{"columns":["wild","kind","length","petals"],"data":[[true,"a",5.1,3]]}}`),
		[]byte(`{"dataframe_records":[{"petals":3,"length":5.1,"kind":"a","wild":true}]}`),
	} {
		if n := testing.AllocsPerRun(100, func() {
			s.n = 0
			if err := q.Parse(body, flower, s); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", body, n)
		}
	}
}

// TestFeedbackOfARow: feedback names a prediction by its input as a row.
func TestFeedbackOfARow(t *testing.T) {
	s, f := &store{width: len(flower), limit: 8}, &Feedback{}
	if err := f.Parse([]byte(`{"input":[5.1,3,"a",true],"loss":1}`), flower, s, 1); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(flowerRow(5.1, 3, "a", 1)[2].Data, s.rows[0][2].Data); d != "" {
		t.Error(d)
	}
}

// FuzzRows: the rows of dataframe_split are those of input_batch: data has the same form in both.
func FuzzRows(f *testing.F) {
	for _, s := range []string{`[[5.1,3,"a",true]]`, `[[null,-4,"",0],[1e3,2,"b",false]]`, `[]`, `[[1,2]]`, `[[1,2,"a",true,5]]`, `[[5.1,3,null,true]]`, `[{}]`, `[[1,2,"a",true],]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if strings.ContainsAny(data, "{}") || !json.Valid([]byte(data)) {
			return // a row of dataframe_split is an array, and data must not add members
		}
		_, want, wantErr := parse(`{"input_batch":`+data+`}`, flower)
		for _, body := range []string{
			`{"dataframe_split":{"columns":["length","petals","kind","wild"],"data":` + data + `}}`,
			`{"dataframe_split":{"data":` + data + `,"columns":["length","petals","kind","wild"]}}`,
		} {
			_, got, err := parse(body, flower)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: %v, as input_batch: %v", body, err, wantErr)
			}
			if err != nil {
				continue
			}
			for i := range want {
				for j := range want[i] {
					if string(got[i][j].Data) != string(want[i][j].Data) {
						t.Fatalf("%s: row %d, %s: %x, as input_batch: %x", body, i, flower[j].Name, got[i][j].Data, want[i][j].Data)
					}
				}
			}
		}
	})
}
