package tensorjson

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// store is a sink that reuses its values.
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
	}
}

func BenchmarkParseBytes(b *testing.B) {
	text := []byte(`{"input": "` + strings.Repeat("A sentence of some length. ", 100) + `"}`)
	image := []byte(`{"input": {"b64": "` + base64.StdEncoding.EncodeToString(make([]byte, 3072)) + `"}}`)
	pixels := []byte(`{"input": [0` + strings.Repeat(",7,255,128", 261) + `]}`)
	for _, c := range []struct {
		name  string
		body  []byte
		specs []api.TensorSpec
	}{
		{"text", text, spec(api.Bytes)}, {"b64", image, spec(api.Bytes)}, {"784 uint8", pixels, spec(api.Uint8, 784)}, {"784 int64", pixels, spec(api.Int64, 784)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			s, q := &store{width: 1}, &Request{}
			for b.Loop() {
				s.n = 0
				if err := q.Parse(c.body, c.specs, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendValue(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 7))
	var list []float64
	for range 100 {
		list = append(list, rng.Float64())
	}
	for _, dtype := range []api.DType{api.Float16, api.Float32, api.Float64} {
		b.Run("100 "+dtype.String(), func(b *testing.B) {
			b.ReportAllocs()
			s, v := api.TensorSpec{DType: dtype, Shape: []int64{100}}, api.Value{Data: raw(dtype, list...)}
			var dst []byte
			for b.Loop() {
				dst = AppendValue(dst[:0], s, v)
			}
		})
	}
	b.Run("one int64", func(b *testing.B) {
		b.ReportAllocs()
		s, v := api.TensorSpec{DType: api.Int64}, api.Value{Data: raw(api.Int64, 7)}
		var dst []byte
		for b.Loop() {
			dst = AppendValue(dst[:0], s, v)
		}
	})
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		text := strings.Repeat("A sentence of some length. ", 100)
		b.SetBytes(int64(len(text)))
		var dst []byte
		for b.Loop() {
			dst = AppendString(dst[:0], text)
		}
	})
}
