package tfserving

import (
	"bytes"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

var fuzzInputs = [][]api.TensorSpec{
	{{Name: "x", DType: api.Float32, Shape: []int64{2}}},
	{{Name: "x", DType: api.Float64}},
	{{Name: "x", DType: api.Int64, Shape: []int64{-1}}},
	{{Name: "a", DType: api.Int32}, {Name: "b", DType: api.Float16, Shape: []int64{2, -1}}},
	{{Name: "s", DType: api.String}},
	{{Name: "image_bytes", DType: api.Bytes}},
	{{Name: "raw", DType: api.Bytes, Shape: []int64{-1}}, {Name: "t", DType: api.String, Shape: []int64{1}}},
	{},
}

// FuzzRequest: nothing panics; a refusal has a code and a message for its caller; what is accepted fits the signature, and the answer that has the
// inputs as its outputs is read as the same inputs.
func FuzzRequest(f *testing.F) {
	for i, body := range []string{
		`{"instances":[[1,2],[NaN,-Infinity]]}`, `{"inputs":1.5,"parameters":{"slo_ms":3,"k":[1]}}`, `{"instances":[[1],[2,3],[]]}`,
		`{"inputs":{"a":[7],"b":[[[1],[2]]]},"signature_name":"serving_default"}`, `{"instances":["a",{"b64":"w6Q="},{"s":"x"}]}`,
		`{"instances":[{"b64":"/w=="}]}`, `{"inputs":{"raw":[["a"],[]],"t":[["x"],["y"]]}}`, `{"instances":[{}]}`,
	} {
		f.Add([]byte(body), i, false)
	}
	f.Add([]byte(`{"context":{"a":1},"examples":[{"b":[1,2]},{"b":[3,4]}]}`), 3, true)
	f.Fuzz(func(t *testing.T, body []byte, which int, examples bool) {
		specs := fuzzInputs[uint(which)%uint(len(fuzzInputs))]
		q, s := &Request{}, &rows{specs: len(specs)}
		parse := q.Parse
		if examples {
			parse = q.ParseExamples
		}
		if err := parse(body, true, specs, s); err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument || !utf8.ValidString(e.Message) {
				t.Fatalf("%q: error %#v", body, err)
			}
			return
		}
		if s.n < 1 || len(q.rows) != s.n || !q.Batched && s.n != 1 {
			t.Fatalf("%q: %d queries", body, s.n)
		}
		text := []byte(`{"instances":[`)
		for i, row := range s.list[:s.n] {
			if i > 0 {
				text = append(text, ',')
			}
			for k := range specs {
				text = appendValue(appendName(text, &specs[k], k == 0), &specs[k], row[k])
			}
			if len(specs) == 0 {
				text = append(text, '{')
			}
			text = append(text, '}')
		}
		text = append(text, "]}"...)
		again, other := &Request{}, &rows{specs: len(specs)}
		if err := again.Parse(text, true, specs, other); err != nil || other.n != s.n {
			t.Fatalf("%q, written as %q: %v, %d queries", body, text, err, other.n)
		}
		for i := range s.list[:s.n] {
			for k := range specs {
				a, b := s.list[i][k], other.list[i][k]
				if !sameData(specs[k].DType, a.Data, b.Data) {
					t.Fatalf("%q, written as %q: query %d, input %d changed", body, text, i, k)
				}
			}
		}
	})
}

// sameData compares data; NaNs are the same whatever their payload.
func sameData(dtype api.DType, a, b []byte) bool {
	if !dtype.Float() {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(elements(dtype, a), elements(dtype, b))
}

func elements(dtype api.DType, data []byte) (text []byte) {
	for size := dtype.Size(); len(data) >= size; data = data[size:] {
		text = append(appendNumber(text, dtype, data[:size]), ' ')
	}
	return text
}

var _ tensorjson.Sink = (*rows)(nil)
