//go:build !race

package oipwire

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
)

func TestAllocs(t *testing.T) {
	row := []api.Value{{Data: int64s(7)}, {Data: floats(1), Dims: []int64{1}}, {Data: []byte("x")}}
	for name, message := range map[string][]byte{
		"raw":   marshal(t, raw(tensorOf("x", "FP32", nil, 2, 2), floats(1, 2, 3, 4))),
		"typed": marshal(t, typed(tensorOf("x", "FP32", &pb.InferTensorContents{Fp32Contents: []float32{1, 2, 3, 4}}, 2, 2))),
	} {
		q, s := &Request{}, &store{width: 1}
		r := &Response{Model: "m", Signature: fixed, Outputs: []int{0, 1, 2}, Queries: 1, Output: func(_, k int) *api.Value { return &row[k] }}
		var out []byte
		n := testing.AllocsPerRun(100, func() {
			s.n = 0
			if err := q.Scan(message); err != nil {
				t.Fatal(err)
			}
			if err := q.Read(fixed, s, maxQueries); err != nil {
				t.Fatal(err)
			}
			r.Raw = q.Raw()
			if _, err := r.Measure(); err != nil {
				t.Fatal(err)
			}
			out = r.Append(out[:0])
		})
		if n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
