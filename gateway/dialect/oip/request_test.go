package oip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

// store is a sink over reused values.
type store struct {
	rows  [][]api.Value
	n     int
	width int
}

func (s *store) Next() ([]api.Value, error) {
	if s.n == len(s.rows) {
		s.rows = append(s.rows, make([]api.Value, s.width))
	}
	s.n++
	return s.rows[s.n-1], nil
}

const maxQueries = 100

func parse(body string, jsonLen int, sig *api.Signature) (*Request, [][]api.Value, error) {
	s, q := &store{width: len(sig.Inputs)}, &Request{}
	err := q.Parse([]byte(body), jsonLen, sig, s, maxQueries)
	return q, s.rows[:s.n], err
}

func floats(list ...float32) (b []byte) {
	for _, f := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func elements(list ...string) (b []byte) {
	for _, s := range list {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}

var (
	outputs = []api.TensorSpec{{Name: "label", DType: api.Int64}, {Name: "p", DType: api.Float32, Shape: []int64{-1}}, {Name: "text", DType: api.Bytes}}
	fixed   = &api.Signature{Inputs: []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}}, Outputs: outputs}
	ragged  = &api.Signature{Inputs: []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{-1, 2}}}, Outputs: outputs}
	scalar  = &api.Signature{Inputs: []api.TensorSpec{{Name: "x", DType: api.Int32}}, Outputs: outputs}
	text    = &api.Signature{Inputs: []api.TensorSpec{{Name: "s", DType: api.Bytes}}, Outputs: outputs}
	texts   = &api.Signature{Inputs: []api.TensorSpec{{Name: "s", DType: api.Bytes, Shape: []int64{-1}}}, Outputs: outputs}
	two     = &api.Signature{Inputs: []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{2}}, {Name: "s", DType: api.Bytes}}, Outputs: outputs}
	half    = &api.Signature{Inputs: []api.TensorSpec{{Name: "h", DType: api.Float16, Shape: []int64{2}}}, Outputs: outputs}
	flags   = &api.Signature{Inputs: []api.TensorSpec{{Name: "b", DType: api.Bool, Shape: []int64{2}}}, Outputs: outputs}
	nothing = &api.Signature{Inputs: []api.TensorSpec{{Name: "e", DType: api.Float32, Shape: []int64{-1, 0}}}, Outputs: outputs}
)

// binaryBody puts raw data behind JSON.
func binaryBody(json string, data ...[]byte) (string, int) {
	body := json
	for _, d := range data {
		body += string(d)
	}
	return body, len(json)
}

type row []api.Value

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name    string
		sig     *api.Signature
		json    string
		data    []byte // nil: no header
		want    []row
		batched bool
	}{
		{"flat", fixed, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}]}`, nil,
			[]row{{{Data: floats(1, 2)}}, {{Data: floats(3, 4)}}}, true},
		{"nested", fixed, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[3,4]]}]}`, nil,
			[]row{{{Data: floats(1, 2)}}, {{Data: floats(3, 4)}}}, true},
		{"data first", fixed, `{"inputs":[{"data":[[1,2],[3,4]],"datatype":"FP32","shape":[2,2],"name":"x"}],"id":"7"}`, nil,
			[]row{{{Data: floats(1, 2)}}, {{Data: floats(3, 4)}}}, true},
		{"no batch dimension", fixed, `{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}`, nil,
			[]row{{{Data: floats(1, 2)}}}, false},
		{"binary", fixed, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","parameters":{"binary_data_size":16}}]}`, floats(1, 2, 3, 4),
			[]row{{{Data: floats(1, 2)}}, {{Data: floats(3, 4)}}}, true},
		{"header, no binary data", fixed, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`, []byte{},
			[]row{{{Data: floats(1, 2)}}}, true},
		{"variable", ragged, `{"inputs":[{"name":"x","shape":[2,1,2],"datatype":"FP32","data":[[[1,2]],[[3,4]]]}]}`, nil,
			[]row{{{Data: floats(1, 2), Dims: []int64{1, 2}}}, {{Data: floats(3, 4), Dims: []int64{1, 2}}}}, true},
		{"variable, no batch dimension", ragged, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[3,4]]}]}`, nil,
			[]row{{{Data: floats(1, 2, 3, 4), Dims: []int64{2, 2}}}}, false},
		{"variable binary", ragged, `{"inputs":[{"parameters":{"binary_data_size":16},"name":"x","shape":[1,2,2],"datatype":"FP32"}]}`, floats(1, 2, 3, 4),
			[]row{{{Data: floats(1, 2, 3, 4), Dims: []int64{2, 2}}}}, true},
		{"scalars", scalar, `{"inputs":[{"name":"x","shape":[3],"datatype":"INT32","data":[1,-1,1e2]}]}`, nil,
			[]row{{{Data: []byte{1, 0, 0, 0}}}, {{Data: []byte{255, 255, 255, 255}}}, {{Data: []byte{100, 0, 0, 0}}}}, true},
		{"one scalar", scalar, `{"inputs":[{"name":"x","shape":[],"datatype":"INT32","data":[5]}]}`, nil, []row{{{Data: []byte{5, 0, 0, 0}}}}, false},
		{"bare scalar", scalar, `{"inputs":[{"name":"x","shape":[],"datatype":"INT32","data":5}]}`, nil, []row{{{Data: []byte{5, 0, 0, 0}}}}, false},
		{"strings", text, `{"inputs":[{"name":"s","shape":[3],"datatype":"BYTES","data":["a","\u00e9",{"b64":"/w=="}]}]}`, nil,
			[]row{{{Data: []byte("a")}}, {{Data: []byte("é")}}, {{Data: []byte{255}}}}, true},
		{"binary strings", text, `{"inputs":[{"name":"s","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":17}}]}`, elements("a", "", "bcde"),
			[]row{{{Data: []byte("a")}}, {{Data: nil}}, {{Data: []byte("bcde")}}}, true},
		{"string arrays", texts, `{"inputs":[{"name":"s","shape":[2,2],"datatype":"BYTES","data":["a","b","c","d"]}]}`, nil,
			[]row{{{Data: elements("a", "b"), Dims: []int64{2}}}, {{Data: elements("c", "d"), Dims: []int64{2}}}}, true},
		{"binary string arrays", texts, `{"inputs":[{"name":"s","shape":[2,2],"datatype":"BYTES","parameters":{"binary_data_size":20}}]}`, elements("a", "b", "", "cd"),
			[]row{{{Data: elements("a", "b"), Dims: []int64{2}}}, {{Data: elements("", "cd"), Dims: []int64{2}}}}, true},
		{"both forms", two, `{"inputs":[{"name":"s","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":6}},{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`, elements("ab"),
			[]row{{{Data: floats(1, 2)}, {Data: []byte("ab")}}}, true},
		{"two in the request's order", two, `{"inputs":[{"name":"s","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":6}},{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`,
			append(elements("ab"), floats(1, 2)...), []row{{{Data: floats(1, 2)}, {Data: []byte("ab")}}}, true},
		{"binary halves", half, `{"inputs":[{"name":"h","shape":[1,2],"datatype":"FP16","parameters":{"binary_data_size":4}}]}`, []byte{1, 2, 3, 4},
			[]row{{{Data: []byte{1, 2, 3, 4}}}}, true},
		{"halves", half, `{"inputs":[{"name":"h","shape":[1,2],"datatype":"FP16","data":[1,-2]}]}`, nil, []row{{{Data: []byte{0, 0x3c, 0, 0xc0}}}}, true},
		{"bools", flags, `{"inputs":[{"name":"b","shape":[1,2],"datatype":"BOOL","data":[true,false]}]}`, nil, []row{{{Data: []byte{1, 0}}}}, true},
		{"binary bools", flags, `{"inputs":[{"name":"b","shape":[1,2],"datatype":"BOOL","parameters":{"binary_data_size":2}}]}`, []byte{1, 0}, []row{{{Data: []byte{1, 0}}}}, true},
		{"no elements", nothing, `{"inputs":[{"name":"e","shape":[2,3,0],"datatype":"FP32","data":[]}]}`, nil,
			[]row{{{Dims: []int64{3, 0}}}, {{Dims: []int64{3, 0}}}}, true},
		{"empty rows", nothing, `{"inputs":[{"name":"e","shape":[2,3,0],"datatype":"FP32","data":[[[],[],[]],[[],[],[]]]}]}`, nil,
			[]row{{{Dims: []int64{3, 0}}}, {{Dims: []int64{3, 0}}}}, true},
		{"no bytes", nothing, `{"inputs":[{"name":"e","shape":[1,3,0],"datatype":"FP32","parameters":{"binary_data_size":0}}]}`, []byte{}, []row{{{Dims: []int64{3, 0}}}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, jsonLen := binaryBody(c.json, c.data)
			if c.data == nil {
				jsonLen = WholeBody
			}
			q, got, err := parse(body, jsonLen, c.sig)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fmt.Sprint(c.want), fmt.Sprint(got)); diff != "" {
				t.Error(diff)
			}
			if q.Queries != len(c.want) || q.Batched != c.batched {
				t.Errorf("got %d queries, batched %v", q.Queries, q.Batched)
			}
			// A used request and used storage give the same, without an allocation.
			s := &store{width: len(c.sig.Inputs)}
			bytes := []byte(body)
			run := func() {
				s.n = 0
				if err := q.Parse(bytes, jsonLen, c.sig, s, maxQueries); err != nil {
					t.Fatal(err)
				}
			}
			run()
			for _, r := range s.rows {
				for k := range r {
					r[k] = api.Value{Data: append(make([]byte, 0, 64), "left over"...), Dims: append(make([]int64, 0, 8), 9, 9, 9)}
				}
			}
			if n := testing.AllocsPerRun(20, run); n != 0 {
				t.Errorf("%v allocations", n)
			}
			if diff := cmp.Diff(fmt.Sprint(c.want), fmt.Sprint(s.rows[:s.n])); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseOutputs(t *testing.T) {
	const inputs = `"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]`
	for _, c := range []struct {
		members string
		want    []Output
	}{
		{``, []Output{{Index: 0, Binary: false}, {Index: 1, Binary: false}, {Index: 2, Binary: false}}},
		{`"outputs":[],`, []Output{{Index: 0, Binary: false}, {Index: 1, Binary: false}, {Index: 2, Binary: false}}},
		{`"outputs":null,"parameters":null,`, []Output{{Index: 0, Binary: false}, {Index: 1, Binary: false}, {Index: 2, Binary: false}}},
		{`"parameters":{"binary_data_output":true},`, []Output{{Index: 0, Binary: true}, {Index: 1, Binary: true}, {Index: 2, Binary: true}}},
		{`"outputs":[{"name":"text"},{"name":"label"}],`, []Output{{Index: 2, Binary: false}, {Index: 0, Binary: false}}},
		{`"outputs":[{"name":"p","parameters":{"binary_data":true,"other":[1]}},{"parameters":{"binary_data":false},"name":"label"},{"name":"text","parameters":null}],"parameters":{"binary_data_output":true},`,
			[]Output{{Index: 1, Binary: true}, {Index: 0, Binary: false}, {Index: 2, Binary: true}}},
	} {
		q, _, err := parse(`{`+c.members+inputs+`,"id":"a\"b","more":{}}`, WholeBody, fixed)
		if err != nil {
			t.Errorf("%s: %v", c.members, err)
			continue
		}
		if diff := cmp.Diff(c.want, q.Outputs); diff != "" || string(q.ID) != `a"b` {
			t.Errorf("%s: id %q, %s", c.members, q.ID, diff)
		}
	}
	for text, want := range map[string]string{`7`: "7", `"7"`: "7", `"user \u00fc"`: "user ü", `0`: "", `""`: "", `18446744073709551615`: "18446744073709551615"} {
		q, _, err := parse(`{"parameters":{"sequence_id":`+text+`},`+inputs+`}`, WholeBody, fixed)
		if err != nil || string(q.Sequence) != want || !strings.Contains(string(q.Options.Parameters), "sequence_id") {
			t.Errorf("sequence_id %s is read as %q with parameters %s (%v)", text, q.Sequence, q.Options.Parameters, err)
		}
	}
	for _, text := range []string{`1.5`, `true`, `[1]`, `null`} {
		if _, _, err := parse(`{"parameters":{"sequence_id":`+text+`},`+inputs+`}`, WholeBody, fixed); err == nil || !strings.Contains(err.Error(), "parameters.sequence_id: expected a string or an integer") {
			t.Errorf("sequence_id %s: %v", text, err)
		}
	}
	q, _, err := parse(`{"parameters":{"timeout":1500,"priority":1},`+inputs+`}`, WholeBody, fixed)
	if err != nil || q.TimeoutMicros != 1500 || q.ID != nil {
		t.Errorf("timeout: got %+v, %v", q, err)
	}
}

// The hostile cases that servers of this protocol have fallen for, and the plain mistakes.
func TestParseErrors(t *testing.T) {
	in := func(members string) string { return `{"inputs":[{` + members + `}]}` }
	x := func(shape, rest string) string {
		return in(`"name":"x","datatype":"FP32","shape":` + shape + `,` + rest)
	}
	const size = `"parameters":{"binary_data_size":`
	for _, c := range []struct {
		sig    *api.Signature
		json   string
		data   []byte // nil: no header
		want   string
		status int
	}{
		// Shapes.
		{fixed, x(`[4611686018427387904,4]`, `"data":[]`), nil, `inputs[0].shape[0]: expected a dimension from 0 to 1073741824, found 4611686018427387904`, 400},
		{fixed, x(`[9223372036854775808,2]`, `"data":[]`), nil, `inputs[0].shape[0]: expected an integer that fits int64, found 9223372036854775808`, 400},
		{fixed, x(`[-1,2]`, `"data":[1,2]`), nil, `inputs[0].shape[0]: expected a dimension from 0 to 1073741824, found -1`, 400},
		{fixed, x(`[1.5,2]`, `"data":[1,2]`), nil, `inputs[0].shape[0]: expected an integer that fits int64, found 1.5`, 400},
		{fixed, x(`["1",2]`, `"data":[1,2]`), nil, `inputs[0].shape[0]: expected an integer, found "1"`, 400},
		{fixed, x(`2`, `"data":[1,2]`), nil, `inputs[0].shape: expected an array, found 2`, 400},
		{fixed, x(`[`+strings.Repeat("1,", 17)+`2]`, `"data":[1,2]`), nil, `inputs[0].shape[17]: too many dimensions: expected at most 17`, 400},
		{fixed, x(`[0,2]`, `"data":[]`), nil, `inputs[0]: the input "x" has shape [0, 2]: expected one query or more`, 400},
		{fixed, x(`[1,3]`, `"data":[1,2,3]`), nil, `inputs[0]: the input "x" has shape [1, 3]: expected [-1, 2], or [2] for one query`, 400},
		{fixed, x(`[1,1,2]`, `"data":[1,2]`), nil, `inputs[0]: the input "x" has shape [1, 1, 2]: expected [-1, 2], or [2] for one query`, 400},
		{fixed, x(`[]`, `"data":[1,2]`), nil, `inputs[0]: the input "x" has shape []: expected [-1, 2], or [2] for one query`, 400},
		{fixed, x(`[101,2]`, `"data":[1,2]`), nil, `inputs[0]: the input "x" has shape [101, 2]: expected at most 100 queries`, 400},
		{ragged, x(`[100,1073741824,2]`, `"data":[1,2]`), nil, `inputs[0]: the input "x" has shape [100, 1073741824, 2]: expected at most 1073741824 elements`, 400},
		{ragged, x(`[2,100000000,2]`, `"data":[1,2]`), nil, `inputs[0]: the shape [2, 100000000, 2] is of more elements than the body could hold`, 400},
		{ragged, x(`[2,100000000,2]`, size+`8}`), floats(1, 2), `inputs[0]: binary_data_size is 8: expected 1600000000 for FP32 of shape [2, 100000000, 2]`, 400},
		// Data.
		{fixed, x(`[2,2]`, `"data":[1,2,3]`), nil, `inputs[0].data: expected 4 elements, found 3`, 400},
		{fixed, x(`[2,2]`, `"data":[1,2]`), nil, `inputs[0].data: expected 4 elements, found 2`, 400},
		{fixed, x(`[2,2]`, `"data":[]`), nil, `inputs[0].data: expected 4 elements, found none`, 400},
		{fixed, x(`[2,2]`, `"data":[1,2,3,4,5]`), nil, `inputs[0].data: expected 4 elements, found more`, 400},
		{fixed, x(`[2,2]`, `"data":[1,2,3,4,]`), nil, `inputs[0].data: expected a value after ',', found ']'`, 400},
		{fixed, x(`[2,2]`, `"data":[1,2,3, ]`), nil, `inputs[0].data[3]: expected a value after ',', found ']'`, 400},
		{fixed, x(`[2,2]`, `"data":[[1,2],[3,4], ]`), nil, `inputs[0].data: expected a value after ',', found ']'`, 400},
		{fixed, x(`[2,2]`, `"data":[1,2,3,"4"]`), nil, `inputs[0].data[3]: expected a number, found "4"`, 400},
		{fixed, x(`[2,2]`, `"data":[[1,2],[3]]`), nil, `inputs[0].data[1]: expected 2 numbers for float32[2], found 1`, 400},
		{fixed, x(`[2,2]`, `"data":[[1,2]]`), nil, `inputs[0].data: expected 2 rows, found 1`, 400},
		{fixed, x(`[1,2]`, `"data":[[1,2],[3,4]]`), nil, `inputs[0].data: expected 1 rows, found more`, 400},
		{fixed, x(`[2,2]`, `"data":[[1,2],3,4]`), nil, `inputs[0].data[1]: expected an array, found 3`, 400},
		{fixed, x(`[2,2]`, `"data":[1,2,[3,4]]`), nil, `inputs[0].data[2]: expected a number, found an array`, 400},
		{fixed, x(`[2,2]`, `"data":[[1,2],[nul,4]]`), nil, `inputs[0].data[1][0]: expected a number, found nul`, 400},
		{fixed, x(`[1,2]`, `"data":"AAAA"`), nil, `inputs[0].data: expected an array, found "AAAA"`, 400},
		{fixed, x(`[1,2]`, `"data":`+strings.Repeat("[", 100000)), nil, `inputs[0].data[0][0]: expected a number, found an array`, 400},
		{fixed, `{"inputs":[{"data":` + strings.Repeat("[", 100000), nil, `inputs[0]: nested too deeply: expected at most 64 levels`, 400},
		{fixed, in(`"data":[[1,2],[3,x]],"name":"x","shape":[2,2],"datatype":"FP32"`), nil, `inputs[0]: expected a value, found x`, 400},
		{fixed, in(`"data":[[1,2],[3,true]],"name":"x","shape":[2,2],"datatype":"FP32"`), nil, `inputs[0].data[1][1]: expected a number, found true`, 400},
		{scalar, in(`"name":"x","shape":[],"datatype":"INT32","data":[1,2]`), nil, `inputs[0].data: expected ']' after one element, found ','`, 400},
		{scalar, in(`"name":"x","shape":[2],"datatype":"INT32","data":[[1],[2]]`), nil, `inputs[0].data[0]: expected a number, found an array`, 400},
		{text, in(`"name":"s","shape":[1],"datatype":"BYTES","data":[7]`), nil, `inputs[0].data[0]: expected a string or {"b64": …}, found 7`, 400},
		{nothing, in(`"name":"e","shape":[1,1,0],"datatype":"FP32","data":[1]`), nil, `inputs[0].data: expected 0 elements, found more`, 400},
		// Binary data.
		{fixed, x(`[1,2]`, size+`8}`), nil, `inputs[0].parameters.binary_data_size: the request has no header Inference-Header-Content-Length: expected it, with the length of the JSON, before binary data`, 400},
		{fixed, x(`[1,2]`, size+`9}`), floats(1, 2), `inputs[0].parameters.binary_data_size: 9 bytes of binary data are claimed, but the body has 8 that no input before has claimed`, 400},
		{fixed, x(`[1,2]`, size+`9223372036854775807}`), floats(1, 2), `inputs[0].parameters.binary_data_size: 9223372036854775807 bytes of binary data are claimed, but the body has 8 that no input before has claimed`, 400},
		{fixed, x(`[1,2]`, size+`18446744073709551615}`), floats(1, 2), `inputs[0].parameters.binary_data_size: expected an integer that fits int64, found 18446744073709551615`, 400},
		{fixed, x(`[1,2]`, size+`-8}`), floats(1, 2), `inputs[0].parameters.binary_data_size: expected 0 or more bytes, found -8`, 400},
		{fixed, x(`[1,2]`, size+`4}`), floats(1, 2), `inputs[0]: binary_data_size is 4: expected 8 for FP32 of shape [1, 2]`, 400},
		{fixed, x(`[1,2]`, size+`8}`), append(floats(1, 2), 0), `body: 9 bytes of binary data follow the JSON, but the inputs claim 8 of them`, 400},
		{fixed, x(`[1,2]`, `"data":[1,2]`), []byte{1}, `body: 1 bytes of binary data follow the JSON, but the inputs claim 0 of them`, 400},
		{fixed, x(`[1,2]`, size+`8},"data":[1,2]`), floats(1, 2), `inputs[0]: expected one of "data" and the parameter "binary_data_size", found both`, 400},
		{fixed, x(`[1,2]`, size+`4,"binary_data_size":4}`), floats(1, 2), `inputs[0].parameters.binary_data_size: the member is there twice`, 400},
		{fixed, x(`[1,2]`, `"parameters":{"binary_data_size":"8"}`), floats(1, 2), `inputs[0].parameters.binary_data_size: expected an integer, found "8"`, 400},
		{two, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}},{"name":"s","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":6}}]}`, floats(1, 2),
			`inputs[1].parameters.binary_data_size: 6 bytes of binary data are claimed, but the body has 0 that no input before has claimed`, 400},
		{text, in(`"name":"s","shape":[2],"datatype":"BYTES",` + size + `4}`), []byte{0, 0, 0, 0}, `inputs[0]: binary_data_size is 4: expected at least 8 for BYTES of shape [2]`, 400},
		{text, in(`"name":"s","shape":[2],"datatype":"BYTES",` + size + `8}`), []byte{1, 0, 0, 0, 'a', 0, 0, 0}, `input "s": binary data end before element 1: expected 2 elements with a length of 4 bytes each`, 400},
		{text, in(`"name":"s","shape":[1],"datatype":"BYTES",` + size + `5}`), []byte{2, 0, 0, 0, 'a'}, `input "s": binary element 0 has a length of 2 bytes, and 1 are left`, 400},
		{text, in(`"name":"s","shape":[1],"datatype":"BYTES",` + size + `5}`), []byte{255, 255, 255, 255, 'a'}, `input "s": binary element 0 has a length of 4294967295 bytes, and 1 are left`, 400},
		{text, in(`"name":"s","shape":[1],"datatype":"BYTES",` + size + `6}`), []byte{1, 0, 0, 0, 'a', 'b'}, `input "s": 1 bytes follow the last of 1 binary elements`, 400},
		{flags, in(`"name":"b","shape":[1,2],"datatype":"BOOL",` + size + `2}`), []byte{1, 2}, `input "b": binary element 1 is 2: expected 0 or 1 for BOOL`, 400},
		// Names, types, members.
		{fixed, in(`"name":"y","shape":[1,2],"datatype":"FP32","data":[1,2]`), nil, `inputs[0].name: the model has no input "y": expected "x"`, 400},
		{fixed, in(`"name":"` + strings.Repeat("é", 100) + `","shape":[1,2],"datatype":"FP32","data":[1,2]`), nil, `inputs[0].name: the model has no input "` + strings.Repeat("é", 31) + `": expected "x"`, 400},
		{fixed, `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}`, nil, `inputs[1].name: the input "x" is there twice`, 400},
		{fixed, in(`"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2],"data":[1,2]`), nil, `inputs[0]: the member "data" is there twice`, 400},
		{fixed, in(`"name":"x","name":"x"`), nil, `inputs[0]: the member "name" is there twice`, 400},
		{fixed, in(`"name":"x","shape":[1,2],"datatype":"INT32","data":[1,2]`), nil, `inputs[0]: the input "x" has datatype "INT32": expected FP32`, 400},
		{fixed, in(`"name":"x","shape":[1,2],"datatype":"BF16","data":[1,2]`), nil, `inputs[0]: datatype BF16 is not supported: the input "x" takes FP32`, 400},
		{fixed, in(`"name":"x","shape":[1,2],"datatype":"float","data":[1,2]`), nil, `inputs[0]: the input "x" has datatype "float": expected FP32`, 400},
		{fixed, in(`"name":"x","shape":[1,2],"datatype":3,"data":[1,2]`), nil, `inputs[0].datatype: expected a string, found 3`, 400},
		{fixed, in(`"shape":[1,2],"datatype":"FP32","data":[1,2]`), nil, `inputs[0]: the member "name" is missing`, 400},
		{fixed, in(`"name":"x","datatype":"FP32","data":[1,2]`), nil, `inputs[0]: the member "shape" is missing`, 400},
		{fixed, in(`"name":"x","shape":[1,2],"data":[1,2]`), nil, `inputs[0]: the member "datatype" is missing`, 400},
		{fixed, in(`"name":"x","shape":[1,2],"datatype":"FP32"`), nil, `inputs[0]: expected a member "data", or binary data and the parameter "binary_data_size"`, 400},
		{fixed, x(`[1,2]`, `"parameters":{"shared_memory_region":"r","shared_memory_byte_size":8}`), nil, `inputs[0].parameters: shared memory regions are not supported: send the data in the request`, 501},
		{two, x(`[1,2]`, `"data":[1,2]`), nil, `body: the input "s" (BYTES [-1]) is missing`, 400},
		{two, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]},{"name":"s","shape":[1],"datatype":"BYTES","data":["a"]}]}`, nil, `inputs[1]: the input "s" is of 1 queries: expected 2, as of "x"`, 400},
		{two, `{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]},{"name":"s","shape":[1],"datatype":"BYTES","data":["a"]}]}`, nil, `inputs[1]: the inputs "x" and "s" differ: one has a batch dimension, the other has none`, 400},
		{fixed, `{"inputs":[]}`, nil, `body: the input "x" (FP32 [-1, 2]) is missing`, 400},
		{fixed, `{}`, nil, `body: the input "x" (FP32 [-1, 2]) is missing`, 400},
		{fixed, `{"inputs":{}}`, nil, `inputs: expected an array, found an object`, 400},
		{fixed, `{"inputs":[1]}`, nil, `inputs[0]: expected an object, found 1`, 400},
		{fixed, `{"inputs":[],"inputs":[]}`, nil, `body: the member "inputs" is there twice`, 400},
		{fixed, `{"id":7}`, nil, `id: expected a string, found 7`, 400},
		{fixed, `{"parameters":{"timeout":-1}}`, nil, `parameters.timeout: expected microseconds, 0 or more, found -1`, 400},
		{fixed, `{"parameters":{"binary_data_output":1}}`, nil, `parameters.binary_data_output: expected true or false, found 1`, 400},
		{fixed, `{"outputs":[{"name":"z"}]}`, nil, `outputs[0].name: the model has no output "z": expected "label", "p", "text"`, 400},
		{fixed, `{"outputs":[{"name":"p"},{"name":"p"}]}`, nil, `outputs[1]: the output "p" is there twice`, 400},
		{fixed, `{"outputs":[{}]}`, nil, `outputs[0]: the member "name" is missing`, 400},
		{fixed, `{"outputs":[{"name":"p","parameters":{"classification":-1}}]}`, nil, `outputs[0].parameters.classification: expected 0 to 65536 classes, found -1`, 400},
		{fixed, `{"outputs":[{"name":"label","parameters":{"classification":1}}]}`, nil, `outputs[0]: parameters.classification: the output "label" is int64[]: only arrays of numbers have classes`, 400},
		{fixed, `{"outputs":[{"name":"p","parameters":{"shared_memory_region":"r"}}]}`, nil, `outputs[0].parameters: shared memory regions are not supported: take the data from the response`, 501},
		{fixed, ``, nil, `body: expected an object, found the end of the body`, 400},
		{fixed, ``, []byte{1, 2}, `body: expected an object, found the end of the body`, 400},
		{fixed, x(`[1,2]`, `"data":[1,2]`) + `{}`, nil, `body: expected the end of the body, found an object`, 400},
	} {
		body, jsonLen := binaryBody(c.json, c.data)
		if c.data == nil {
			jsonLen = WholeBody
		}
		_, _, err := parse(body, jsonLen, c.sig)
		var e *api.Error
		if !errors.As(err, &e) || e.Code.HTTPStatus() != c.status {
			t.Errorf("%.300s\n got %v\nwant %s", c.json, err, c.want)
			continue
		}
		if got, _, _ := strings.Cut(e.Message, " (byte "); got != c.want {
			t.Errorf("%.300s\n got %s\nwant %s", c.json, got, c.want)
		}
	}
}

func TestParseHeader(t *testing.T) {
	body := `{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}`
	for _, jsonLen := range []int{-2, len(body) + 1, math.MaxInt, math.MinInt} {
		if _, _, err := parse(body, jsonLen, fixed); err == nil || !strings.Contains(err.Error(), "Inference-Header-Content-Length is") {
			t.Errorf("%d: got %v", jsonLen, err)
		}
	}
	for _, jsonLen := range []int{0, 1, len(body) - 1} {
		if _, _, err := parse(body, jsonLen, fixed); err == nil {
			t.Errorf("%d was accepted", jsonLen)
		}
	}
}

// Storage is not asked for before the number of queries is plausible.
func TestParseAsksLate(t *testing.T) {
	for _, json := range []string{
		`{"inputs":[{"name":"x","shape":[100,2],"datatype":"FP32","data":[1,2]}]}`,
		`{"inputs":[{"name":"x","shape":[100,2],"datatype":"FP32","parameters":{"binary_data_size":4}}]}`,
		`{"inputs":[{"name":"x","shape":[101,2],"datatype":"FP32","data":[1,2]}]}`,
		`{"inputs":[{"name":"x","shape":[50,2],"datatype":"INT8","data":[1,2]}]}`,
	} {
		if _, rows, err := parse(json+"1234", len(json), fixed); err == nil || len(rows) > 0 {
			t.Errorf("%s: %d rows, %v", json, len(rows), err)
		}
	}
}
