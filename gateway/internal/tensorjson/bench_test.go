package tensorjson

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/bytedance/sonic"

	"github.com/xebec-serving/xebec/api"
)

// store is a sink over reused values.
type store struct {
	rows  [][]api.Value
	n     int
	width int
	limit int
}

func (s *store) Next() ([]api.Value, error) {
	if s.limit > 0 && s.n == s.limit {
		return nil, api.Errorf(api.TooLarge, "too many queries: expected at most %d", s.limit)
	}
	if s.n == len(s.rows) {
		s.rows = append(s.rows, make([]api.Value, s.width))
	}
	s.n++
	return s.rows[s.n-1], nil
}

func floatsBody(n, digits int, sep string) []byte {
	rng := rand.New(rand.NewPCG(7, 7))
	b := []byte(`{"input": [`)
	for i := range n {
		if i > 0 {
			b = append(b, sep...)
		}
		b = strconv.AppendFloat(b, rng.Float64(), 'f', digits, 64)
	}
	return append(b, "]}"...)
}

func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"784x4digits", floatsBody(784, 4, ",")},
		{"784x4digits,space", floatsBody(784, 4, ", ")},
		{"784x17digits", floatsBody(784, 17, ",")},
		{"64x17digits", floatsBody(64, 17, ", ")},
		{"4x1digit", []byte(`{"input": [1, 2, 3, 4]}`)},
	} {
		for _, dtype := range []api.DType{api.Float32, api.Float64} {
			specs := []api.TensorSpec{{Name: "x", DType: dtype, Shape: []int64{-1}}}
			b.Run(c.name+"/"+dtype.String(), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(c.body)))
				s, q := &store{width: 1}, &Request{}
				for b.Loop() {
					s.n = 0
					if err := q.Parse(c.body, specs, s); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(c.name+"/encoding_json", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			var v struct{ Input []float32 }
			for b.Loop() {
				v.Input = v.Input[:0]
				if err := json.Unmarshal(c.body, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/sonic", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			var v struct {
				Input []float32 `json:"input"`
			}
			for b.Loop() {
				v.Input = v.Input[:0]
				if err := sonic.Unmarshal(c.body, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
