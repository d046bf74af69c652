package oip

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

func answer(rows []row) func(query, tensor int) *api.Value {
	return func(query, tensor int) *api.Value { return &rows[query][tensor] }
}

func int64s(list ...int64) (b []byte) {
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func TestAppendResponse(t *testing.T) {
	rows := []row{
		{{Data: int64s(7)}, {Data: floats(0.5, 0.1), Dims: []int64{2}}, {Data: []byte(`a"é`)}},
		{{Data: int64s(-1)}, {Data: floats(1, -0.25), Dims: []int64{2}}, {Data: nil}},
	}
	for _, c := range []struct {
		name    string
		req     Request
		version string
		n       int
		json    string
		data    []byte
	}{
		{"all, in JSON", Request{Batched: true, Outputs: []Output{{Index: 0, Binary: false}, {Index: 1, Binary: false}, {Index: 2, Binary: false}}}, "3", 2,
			`{"model_name":"m","model_version":"3","outputs":[{"name":"label","datatype":"INT64","shape":[2],"data":[7,-1]},` +
				`{"name":"p","datatype":"FP32","shape":[2,2],"data":[0.5,0.1,1,-0.25]},{"name":"text","datatype":"BYTES","shape":[2],"data":["a\"é",""]}]}`, nil},
		{"one, binary, with an id", Request{ID: []byte(`i"d`), Batched: true, Outputs: []Output{{Index: 1, Binary: true}}}, "", 2,
			`{"model_name":"m","id":"i\"d","outputs":[{"name":"p","datatype":"FP32","shape":[2,2],"parameters":{"binary_data_size":16}}]}`, floats(0.5, 0.1, 1, -0.25)},
		{"in the request's order, both forms", Request{Batched: true, Outputs: []Output{{Index: 2, Binary: true}, {Index: 1, Binary: false}, {Index: 0, Binary: true}}}, "", 2,
			`{"model_name":"m","outputs":[{"name":"text","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":12}},` +
				`{"name":"p","datatype":"FP32","shape":[2,2],"data":[0.5,0.1,1,-0.25]},{"name":"label","datatype":"INT64","shape":[2],"parameters":{"binary_data_size":16}}]}`,
			append(elements(`a"é`, ""), int64s(7, -1)...)},
		{"no batch dimension", Request{Outputs: []Output{{Index: 0, Binary: false}, {Index: 1, Binary: false}}}, "", 1,
			`{"model_name":"m","outputs":[{"name":"label","datatype":"INT64","shape":[],"data":[7]},{"name":"p","datatype":"FP32","shape":[2],"data":[0.5,0.1]}]}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, jsonLen, err := AppendResponse([]byte("before"), "m", c.version, nil, &c.req, fixed, c.n, answer(rows))
			if err != nil {
				t.Fatal(err)
			}
			want, wantLen := "before"+c.json+string(c.data), 0
			if c.data != nil {
				wantLen = len(c.json)
			}
			if diff := cmp.Diff(want, string(body)); diff != "" || jsonLen != wantLen {
				t.Errorf("length of the JSON %d, want %d\n%s", jsonLen, wantLen, diff)
			}
			out := answer(rows)
			if n := testing.AllocsPerRun(20, func() { body, _, _ = AppendResponse(body[:0], "m", c.version, nil, &c.req, fixed, c.n, out) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestAppendResponseErrors(t *testing.T) {
	p := Request{Batched: true, Outputs: []Output{{Index: 1, Binary: false}}}
	for _, c := range []struct {
		name string
		req  Request
		rows []row
		code api.Code
		want string
	}{
		{"ragged", p, []row{{{}, {Data: floats(1), Dims: []int64{1}}}, {{}, {Data: floats(1, 2), Dims: []int64{2}}}}, api.InvalidArgument,
			`output "p": query 0 has shape [1] and query 1 [2], which one tensor cannot hold: send the queries one by one`},
		{"not text", Request{Batched: true, Outputs: []Output{{Index: 2, Binary: false}}}, []row{{{}, {}, {Data: []byte{0xff}}}}, api.InvalidArgument,
			`output "text" of query 0 is not UTF-8, so JSON cannot hold it: ask for it with the parameter binary_data`},
		{"short data", p, []row{{{}, {Data: floats(1), Dims: []int64{2}}}}, api.Internal, `output "p": the value of query 0 does not fit its shape [2]`},
		{"no dimensions", p, []row{{{}, {Data: floats(1)}}}, api.Internal, `output "p": the value of query 0 does not fit its shape []`},
		{"negative dimension", p, []row{{{}, {Dims: []int64{-1}}}}, api.Internal, `output "p": the value of query 0 does not fit its shape [-1]`},
		{"overflow", p, []row{{{}, {Dims: []int64{1 << 62}}}}, api.Internal, `output "p": the value of query 0 does not fit its shape [4611686018427387904]`},
		{"two answers to one", Request{Outputs: []Output{{Index: 0, Binary: false}}}, []row{{{Data: int64s(1)}}, {{Data: int64s(1)}}}, api.Internal, `an answer of 2 queries to a request of 0`},
		{"none", p, nil, api.Internal, `an answer of 0 queries to a request of 0`},
	} {
		body, jsonLen, err := AppendResponse([]byte("x"), "m", "", nil, &c.req, fixed, len(c.rows), answer(c.rows))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Message != c.want || string(body) != "x" || jsonLen != 0 {
			t.Errorf("%s: got %q %d %v, want %s", c.name, body, jsonLen, err, c.want)
		}
	}
	list := &api.Signature{Outputs: []api.TensorSpec{{Name: "l", DType: api.Bytes, Shape: []int64{-1}}}}
	for _, data := range [][]byte{elements("a"), elements("a", "b", "c"), {1, 2, 3}, {255, 255, 255, 255, 0, 0, 0, 0}} {
		rows := []row{{{Data: data, Dims: []int64{2}}}}
		if _, _, err := AppendResponse(nil, "m", "", nil, &Request{Batched: true, Outputs: []Output{{Index: 0, Binary: true}}}, list, 1, answer(rows)); err == nil {
			t.Errorf("%v was taken for two elements", data)
		}
	}
}

// A response's outputs are a request's inputs, member for member: read back as one they are the same values.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sig api.Signature
		for _, name := range []string{"a", `b"\`, "ü"}[:rapid.IntRange(1, 3).Draw(t, "tensors")] {
			s := api.TensorSpec{Name: name, DType: api.DType(rapid.IntRange(int(api.Bool), int(api.Bytes)).Draw(t, "dtype"))}
			for range rapid.IntRange(0, 3).Draw(t, "rank") {
				s.Shape = append(s.Shape, rapid.Int64Range(-1, 3).Draw(t, "dim"))
			}
			sig.Inputs = append(sig.Inputs, s)
		}
		sig.Outputs = sig.Inputs
		req := Request{Batched: rapid.Bool().Draw(t, "batched"), Queries: 1}
		if req.Batched {
			req.Queries = rapid.IntRange(1, 4).Draw(t, "n")
		}
		rows := make([]row, req.Queries)
		for i, s := range sig.Outputs {
			o := Output{Index: i, Binary: rapid.Bool().Draw(t, "binary")}
			req.Outputs = append(req.Outputs, o)
			dims := make([]int64, len(s.Shape))
			for k, d := range s.Shape {
				if dims[k] = d; d < 0 {
					dims[k] = rapid.Int64Range(0, 3).Draw(t, "actual")
				}
			}
			for q := range rows {
				rows[q] = append(rows[q], drawValue(t, s, dims, o.Binary))
			}
		}
		body, jsonLen, err := AppendResponse(nil, "m", "1", nil, &req, &sig, len(rows), answer(rows))
		if err != nil {
			t.Fatal(err)
		}
		back := bytes.Replace(body, []byte(`"outputs":[`), []byte(`"inputs":[`), 1)
		if jsonLen--; jsonLen < 0 {
			jsonLen = WholeBody
		}
		q, got, err := parse(string(back), jsonLen, &sig)
		if err != nil {
			t.Fatalf("%q: %v", back, err)
		}
		if q.Batched != req.Batched || len(got) != len(rows) {
			t.Fatalf("%q: %d queries, batched %v", back, len(got), q.Batched)
		}
		for i := range rows {
			for k := range rows[i] {
				if !bytes.Equal(rows[i][k].Data, got[i][k].Data) || api.ShapeString(rows[i][k].Dims) != api.ShapeString(got[i][k].Dims) {
					t.Fatalf("%q: query %d tensor %d: got %v, want %v", back, i, k, got[i][k], rows[i][k])
				}
			}
		}
	})
}

func drawValue(t *rapid.T, s api.TensorSpec, dims []int64, binaryForm bool) (v api.Value) {
	if !s.Fixed() && len(dims) > 0 {
		v.Dims = dims
	}
	for range api.Elements(dims) {
		switch {
		case s.DType == api.Bytes:
			item := rapid.StringN(0, 4, -1).Draw(t, "text")
			if binaryForm {
				item = string(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "bytes"))
			}
			if v.Data = append(v.Data, elements(item)...); len(dims) == 0 {
				v.Data = v.Data[4:]
			}
		case s.DType == api.Bool:
			v.Data = append(v.Data, rapid.ByteRange(0, 1).Draw(t, "bool"))
		case binaryForm || s.DType < api.Float16:
			v.Data = append(v.Data, rapid.SliceOfN(rapid.Byte(), s.DType.Size(), s.DType.Size()).Draw(t, "raw")...)
		case s.DType == api.Float16:
			v.Data = binary.LittleEndian.AppendUint16(v.Data, api.Float64ToFloat16(rapid.Float64Range(-65504, 65504).Draw(t, "float16")))
		case s.DType == api.Float32:
			v.Data = append(v.Data, floats(rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32).Draw(t, "float32"))...)
		default:
			v.Data = binary.LittleEndian.AppendUint64(v.Data, math.Float64bits(rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "float64")))
		}
	}
	return v
}

func TestMetadata(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{string(AppendModelMetadata(nil, "m", []string{"1", "2"}, "xebec", two)),
			`{"name":"m","versions":["1","2"],"platform":"xebec","inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]},{"name":"s","datatype":"BYTES","shape":[-1]}],` +
				`"outputs":[{"name":"label","datatype":"INT64","shape":[-1]},{"name":"p","datatype":"FP32","shape":[-1,-1]},{"name":"text","datatype":"BYTES","shape":[-1]}]}`},
		{string(AppendModelMetadata(nil, "m", nil, "", &api.Signature{})), `{"name":"m","versions":[],"platform":"","inputs":[],"outputs":[]}`},
		{string(AppendServerMetadata(nil, "xebec", "0.1.0", []string{"binary_tensor_data"})), `{"name":"xebec","version":"0.1.0","extensions":["binary_tensor_data"]}`},
		{string(AppendError(nil, api.NotFound, "no \"such\"\nmodel")), `{"error":"no \"such\"\nmodel","code":"not_found"}`},
	} {
		if c.got != c.want || !json.Valid([]byte(c.got)) {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	if got := string(AppendError(nil, api.NotFound, "\xff\x00")); !strings.Contains(got, "\ufffd") || !json.Valid([]byte(got)) {
		t.Errorf("got %s", got)
	}
}
