package oip

import (
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func BenchmarkParse(b *testing.B) {
	sig := &api.Signature{Inputs: []api.TensorSpec{{Name: "x", DType: api.Float32, Shape: []int64{784}}}, Outputs: outputs}
	var data []string
	for i := range 784 {
		data = append(data, strconv.FormatFloat(float64(i)/255, 'g', -1, 64))
	}
	for _, c := range []struct {
		name, json string
		data       []byte
	}{
		{"json", `{"id":"1","inputs":[{"name":"x","shape":[1,784],"datatype":"FP32","data":[` + strings.Join(data, ",") + `]}],"outputs":[{"name":"p"}]}`, nil},
		{"binary", `{"inputs":[{"name":"x","shape":[1,784],"datatype":"FP32","parameters":{"binary_data_size":3136}}],"outputs":[{"name":"p","parameters":{"binary_data":true}}]}`, make([]byte, 3136)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			body, jsonLen := binaryBody(c.json, c.data)
			bytes, s, q := []byte(body), &store{width: 1}, &Request{}
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				s.n = 0
				if err := q.Parse(bytes, jsonLen, sig, s, maxQueries); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendResponse(b *testing.B) {
	rows := []row{{{Data: int64s(7)}, {Data: floats(0.1, 0.25, 0.3, 0.35), Dims: []int64{4}}, {Data: []byte("seven")}}}
	req := &Request{Batched: true, Outputs: []Output{{Index: 0, Binary: false}, {Index: 1, Binary: false}, {Index: 2, Binary: false}}}
	var body []byte
	out := answer(rows)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if body, _, err = AppendResponse(body[:0], "m", "1", nil, req, fixed, 1, out); err != nil {
			b.Fatal(err)
		}
	}
}
