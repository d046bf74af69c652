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

// bodies are requests of n numbers each. There are so many that the processor cannot learn their digits by heart, as it does with one body.
func bodies(n int, sep string, number func(*rand.Rand, []byte) []byte) [][]byte {
	rng := rand.New(rand.NewPCG(7, 7))
	list := make([][]byte, 64)
	for k := range list {
		b := []byte(`{"input": [`)
		for i := range n {
			if i > 0 {
				b = append(b, sep...)
			}
			b = number(rng, b)
		}
		list[k] = append(b, "]}"...)
	}
	return list
}

// fixed are numbers from 0 to 1 with that many digits after the point.
func fixed(digits int) func(*rand.Rand, []byte) []byte {
	return func(rng *rand.Rand, b []byte) []byte { return strconv.AppendFloat(b, rng.Float64(), 'f', digits, 64) }
}

// shortest are float32s of the normal distribution as encoders write them: with the fewest digits that read back. bits is 32 for encoders that know
// the type, and 64 for those that convert to float64 first, as Python's and JavaScript's do.
func shortest(bits int) func(*rand.Rand, []byte) []byte {
	return func(rng *rand.Rand, b []byte) []byte {
		return strconv.AppendFloat(b, float64(float32(rng.NormFloat64())), 'g', -1, bits)
	}
}

func pixel(rng *rand.Rand, b []byte) []byte { return strconv.AppendUint(b, rng.Uint64N(256), 10) }

func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name   string
		bodies [][]byte
		dtypes []api.DType
	}{
		{"784x4digits", bodies(784, ",", fixed(4)), floats},
		{"784x4digits,space", bodies(784, ", ", fixed(4)), floats},
		{"768 shortest", bodies(768, ",", shortest(32)), floats},
		{"768 widened", bodies(768, ", ", shortest(64)), floats},
		{"784x17digits", bodies(784, ",", fixed(17)), floats},
		{"64x17digits", bodies(64, ", ", fixed(17)), floats},
		{"10 shortest", bodies(10, ",", shortest(32)), floats},
		{"784 pixels", bodies(784, ",", pixel), []api.DType{api.Uint8, api.Int64, api.Float32}},
		{"4x1digit", [][]byte{[]byte(`{"input": [1, 2, 3, 4]}`)}, floats},
	} {
		for _, dtype := range c.dtypes {
			specs := []api.TensorSpec{{Name: "x", DType: dtype, Shape: []int64{-1}}}
			b.Run(c.name+"/"+dtype.String(), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(c.bodies[0])))
				s, q := &store{width: 1}, &Request{}
				for i := 0; b.Loop(); i++ {
					s.n = 0
					if err := q.Parse(c.bodies[i%len(c.bodies)], specs, s); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(c.name+"/encoding_json", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.bodies[0])))
			var v struct{ Input []float32 }
			for i := 0; b.Loop(); i++ {
				v.Input = v.Input[:0]
				if err := json.Unmarshal(c.bodies[i%len(c.bodies)], &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var floats = []api.DType{api.Float32, api.Float64}

func BenchmarkParseBytes(b *testing.B) {
	text := []byte(`{"input": "` + strings.Repeat("A sentence of some length. ", 100) + `"}`)
	image := []byte(`{"input": {"b64": "` + base64.StdEncoding.EncodeToString(make([]byte, 3072)) + `"}}`)
	for _, c := range []struct {
		name  string
		body  []byte
		specs []api.TensorSpec
	}{
		{"text", text, spec(api.Bytes)}, {"b64", image, spec(api.Bytes)},
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
