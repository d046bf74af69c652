package tensorjson

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

func TestAppendValue(t *testing.T) {
	for _, c := range []struct {
		dtype api.DType
		shape []int64
		value api.Value
		want  string
	}{
		{api.Float32, nil, api.Value{Data: raw(api.Float32, 0.1)}, "0.1"},
		{api.Float64, nil, api.Value{Data: raw(api.Float64, 0.1)}, "0.1"},
		{api.Float64, nil, api.Value{Data: raw(api.Float64, float64(float32(0.1)))}, "0.10000000149011612"},
		{api.Float16, nil, api.Value{Data: raw(api.Float16, 0.1)}, "0.1"},
		{api.Float16, []int64{4}, api.Value{Data: raw(api.Float16, 65504, 1e-7, 1.0/3, -2050)}, "[65500,1e-7,0.3333,-2050]"},
		{api.Float32, []int64{7}, api.Value{Data: raw(api.Float32, 1, -3, 1e-6, 1e-7, 1e21, 16777216, 123456790528)}, "[1,-3,0.000001,1e-7,1e+21,16777216,123456790000]"},
		{api.Float64, []int64{4}, api.Value{Data: raw(api.Float64, math.Copysign(0, -1), 1e20, 5e-324, math.MaxFloat64)}, "[-0,100000000000000000000,5e-324,1.7976931348623157e+308]"},
		{api.Float32, []int64{3}, api.Value{Data: raw(api.Float32, math.NaN(), math.Inf(1), math.Inf(-1))}, "[null,null,null]"},
		{api.Float16, []int64{2}, api.Value{Data: raw(api.Float16, math.NaN(), math.Inf(-1))}, "[null,null]"},
		{api.Bool, []int64{2}, api.Value{Data: []byte{0, 1}}, "[false,true]"},
		{api.Int8, nil, api.Value{Data: raw(api.Int8, -128)}, "-128"},
		{api.Uint8, nil, api.Value{Data: raw(api.Uint8, 255)}, "255"},
		{api.Int16, nil, api.Value{Data: raw(api.Int16, -32768)}, "-32768"},
		{api.Uint16, nil, api.Value{Data: raw(api.Uint16, 65535)}, "65535"},
		{api.Int32, nil, api.Value{Data: raw(api.Int32, -7)}, "-7"},
		{api.Uint32, nil, api.Value{Data: raw(api.Uint32, 4294967295)}, "4294967295"},
		{api.Int64, nil, api.Value{Data: raw(api.Int64, math.MinInt64)}, "-9223372036854775808"},
		{api.Uint64, nil, api.Value{Data: []byte(strings.Repeat("\xff", 8))}, "18446744073709551615"},
		{api.Int32, []int64{2, 3}, api.Value{Data: raw(api.Int32, 1, 2, 3, 4, 5, 6)}, "[[1,2,3],[4,5,6]]"},
		{api.Int32, []int64{-1, 3}, api.Value{Data: raw(api.Int32, 1, 2, 3), Dims: []int64{1, 3}}, "[[1,2,3]]"},
		{api.Int32, []int64{-1, -1}, api.Value{Dims: []int64{2, 0}}, "[[],[]]"},
		{api.Int32, []int64{-1, -1}, api.Value{Dims: []int64{0, 2}}, "[]"},
		{api.Int32, []int64{0, 2}, api.Value{}, "[]"},
		{api.Int32, []int64{-1, -1, -1}, api.Value{Dims: []int64{2, 1 << 29, 0}}, "[]"},
		{api.Int32, []int64{-1, -1, -1}, api.Value{Dims: []int64{1, 2, 0}}, "[[[],[]]]"},
		{api.Bytes, nil, api.Value{Data: []byte("\x00\xff")}, `{"b64":"AP8="}`},
		{api.Bytes, nil, api.Value{}, `{"b64":""}`},
		{api.String, nil, api.Value{Data: []byte("pos \"é\"\n")}, `"pos \"é\"\n"`},
		{api.String, []int64{-1}, api.Value{Data: elements("a", "", "bcd"), Dims: []int64{3}}, `["a","","bcd"]`},
		{api.Bytes, []int64{-1}, api.Value{Data: elements("a", "", "bcd"), Dims: []int64{3}}, `[{"b64":"YQ=="},{"b64":""},{"b64":"YmNk"}]`},
		{api.Bytes, []int64{2}, api.Value{Data: elements("a", "b"), Dims: []int64{2}}, `[{"b64":"YQ=="},{"b64":"Yg=="}]`},
		// Values that contradict their specs.
		{api.Int32, []int64{2}, api.Value{Data: raw(api.Int32, 1)}, "null"},
		{api.Int32, []int64{-1}, api.Value{Data: raw(api.Int32, 1)}, "null"},
		{api.Int32, []int64{-1}, api.Value{Data: raw(api.Int32, 1), Dims: []int64{-1}}, "null"},
		{api.Int32, []int64{-1, -1}, api.Value{Dims: []int64{1 << 40, 1 << 40}}, "null"},
		{api.Bytes, []int64{-1}, api.Value{Data: elements("a"), Dims: []int64{2}}, "null"},
		{api.Bytes, []int64{-1}, api.Value{Data: elements("abc")[:6], Dims: []int64{1}}, "null"},
		{api.Bytes, []int64{-1}, api.Value{Data: elements("abc", ""), Dims: []int64{1}}, "null"},
		{api.Bytes, []int64{-1}, api.Value{Data: []byte("\xff\xff\xff\xff"), Dims: []int64{1}}, "null"},
		{api.InvalidDType, nil, api.Value{}, "null"},
	} {
		s := api.TensorSpec{Name: "y", DType: c.dtype, Shape: c.shape}
		got := string(AppendValue([]byte("> "), s, c.value))
		if got != "> "+c.want {
			t.Errorf("%s: got %s, want %s", s, got, c.want)
		}
		buf := make([]byte, 0, 256)
		if n := testing.AllocsPerRun(20, func() { buf = AppendValue(buf[:0], s, c.value) }); n != 0 {
			t.Errorf("%s: %v allocations", s, n)
		}
	}
}

// Finite floats are formatted like encoding/json.
func TestAppendFloatsAsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, g := rapid.Float64().Draw(t, "float64"), rapid.Float32().Draw(t, "float32")
		if math.IsNaN(f+float64(g)) || math.IsInf(f, 0) || math.IsInf(float64(g), 0) {
			return
		}
		want, _ := json.Marshal(f)
		if got := appendFloat(nil, f, 64); string(got) != string(want) {
			t.Errorf("float64: got %s, want %s", got, want)
		}
		want, _ = json.Marshal(g)
		if got := appendFloat(nil, float64(g), 32); string(got) != string(want) {
			t.Errorf("float32: got %s, want %s", got, want)
		}
	})
}

func TestEveryHalfReadsBack(t *testing.T) {
	s := api.TensorSpec{Name: "x", DType: api.Float16}
	var r Reader
	var v api.Value
	for h := range 1 << 16 {
		if h&0x7c00 == 0x7c00 {
			continue // not finite
		}
		data := []byte{byte(h), byte(h >> 8)}
		text := AppendValue(nil, s, api.Value{Data: data})
		r.Reset(text)
		if err := r.Value(&v, &s); err != nil || string(v.Data) != string(data) {
			t.Fatalf("half %04x: %s reads back as %x, %v", h, text, v.Data, err)
		}
	}
}

func TestEveryBFloat16ReadsBack(t *testing.T) {
	s := api.TensorSpec{Name: "x", DType: api.BFloat16}
	var r Reader
	var v api.Value
	for h := range 1 << 16 {
		if h&0x7f80 == 0x7f80 {
			continue // not finite
		}
		data := []byte{byte(h), byte(h >> 8)}
		text := AppendValue(nil, s, api.Value{Data: data})
		r.Reset(text)
		if err := r.Value(&v, &s); err != nil || string(v.Data) != string(data) {
			t.Fatalf("bfloat16 %04x: %s reads back as %x, %v", h, text, v.Data, err)
		}
	}
	for f, want := range map[float64]string{0.1: "0.1", 1.0 / 3: "0.334", 3e38: "3e+38", 255: "255", -1000: "-1000", 0x1p-133: "9e-41"} {
		h := api.Float64ToBFloat16(f)
		if got := string(AppendValue(nil, s, api.Value{Data: []byte{byte(h), byte(h >> 8)}})); got != want {
			t.Errorf("%v is written as %s: expected %s", f, got, want)
		}
	}
}

// drawSpec and drawValue draw a tensor and one value of it.
func drawSpec(t *rapid.T, name string) api.TensorSpec {
	s := api.TensorSpec{Name: name, DType: api.DType(rapid.IntRange(int(api.Bool), int(api.Bytes)).Draw(t, "dtype"))}
	for range rapid.IntRange(0, 4).Draw(t, "rank") {
		s.Shape = append(s.Shape, rapid.Int64Range(-1, 3).Draw(t, "dim"))
	}
	return s
}

func drawValue(t *rapid.T, s api.TensorSpec) api.Value {
	var v api.Value
	dims := make([]int64, len(s.Shape))
	empty := false
	for i, d := range s.Shape {
		if dims[i] = d; d < 0 {
			dims[i] = rapid.Int64Range(0, 3).Draw(t, "actual")
		}
		if empty && d < 0 {
			dims[i] = 0 // dimensions below an empty array cannot be told from JSON
		}
		empty = empty || dims[i] == 0
	}
	if !s.Fixed() && len(dims) > 0 {
		v.Dims = dims
	}
	for range api.Elements(dims) {
		switch s.DType {
		case api.Bytes:
			item := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "item")
			if len(dims) == 0 {
				v.Data = item
			} else {
				v.Data = append(v.Data, elements(string(item))...)
			}
		case api.Bool:
			v.Data = append(v.Data, rapid.ByteRange(0, 1).Draw(t, "bool"))
		case api.Float64:
			v.Data = append(v.Data, raw(s.DType, rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "float64"))...)
		case api.Float32:
			v.Data = append(v.Data, raw(s.DType, float64(rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32).Draw(t, "float32")))...)
		case api.Float16:
			v.Data = append(v.Data, raw(s.DType, rapid.Float64Range(-65504, 65504).Draw(t, "float16"))...)
		default:
			v.Data = append(v.Data, rapid.SliceOfN(rapid.Byte(), s.DType.Size(), s.DType.Size()).Draw(t, "int")...)
		}
	}
	return v
}

// A batch that AppendValue wrote reads back unchanged, nested and, if the shape can be inferred, flat.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs := []api.TensorSpec{drawSpec(t, "a"), drawSpec(t, `b"é`)}[:rapid.IntRange(1, 2).Draw(t, "inputs")]
		space := func() string {
			return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")
		}
		body := []byte(`{"input_batch":[`)
		var want [][]api.Value
		for q := range rapid.IntRange(1, 3).Draw(t, "queries") {
			if q > 0 {
				body = append(body, ","...)
			}
			if len(specs) > 1 {
				body = append(body, "{"...)
			}
			var row []api.Value
			for i, s := range specs {
				v := drawValue(t, s)
				row = append(row, v)
				if len(specs) > 1 {
					if i > 0 {
						body = append(body, ","+space()...)
					}
					body = append(AppendString(body, s.Name), space()+":"...)
				}
				body = append(body, space()+inputText(s, v, rapid.Bool().Draw(t, "flat"))+space()...)
			}
			if len(specs) > 1 {
				body = append(body, "}"...)
			}
			want = append(want, row)
		}
		body = append(body, "]}"...)
		q, got, err := parse(string(body), specs)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if q.Queries != len(want) {
			t.Fatalf("%s: %d queries", body, q.Queries)
		}
		for i := range want {
			for k := range want[i] {
				if string(got[i][k].Data) != string(want[i][k].Data) || api.ShapeString(got[i][k].Dims) != api.ShapeString(want[i][k].Dims) {
					t.Fatalf("%s: query %d input %d: got %v, want %v", body, i, k, got[i][k], want[i][k])
				}
			}
		}
	})
}

// inputText formats a value as a caller would.
func inputText(s api.TensorSpec, v api.Value, flat bool) string {
	text := string(AppendValue(nil, s, v))
	open := 0
	for _, d := range s.Shape {
		if d < 0 {
			open++
		}
	}
	if flat && len(s.Shape) > 1 && open == 0 && s.DType != api.Bytes {
		text = "[" + strings.NewReplacer("[", "", "]", "").Replace(text) + "]"
		text = strings.ReplaceAll(text, ",,", "")
		if strings.Trim(text, "[,]") == "" {
			text = "[]"
		}
	}
	if s.DType != api.Bytes {
		return text
	}
	var out strings.Builder
	for i, part := range strings.Split(text, `{"b64":"`) {
		if i == 0 {
			out.WriteString(part)
			continue
		}
		part, after, _ := strings.Cut(part, `"}`)
		item, err := base64.StdEncoding.DecodeString(part)
		if err != nil {
			panic(err)
		}
		if json.Valid([]byte(`"`+string(item)+`"`)) && len(item) > 0 && isASCII(item) {
			out.WriteString(`"` + string(item) + `"`)
		} else {
			out.WriteString(`{"b64":"` + part + `"}`)
		}
		out.WriteString(after)
	}
	return out.String()
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 || c == '\\' {
			return false
		}
	}
	return true
}

func TestAppendString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		text := AppendString([]byte("x"), s)
		if string(text) != string(AppendString([]byte("x"), []byte(s))) {
			t.Fatalf("a string and its bytes are written differently: %s", text)
		}
		var got string
		if err := json.Unmarshal(text[1:], &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if want := string([]rune(s)); got != want { // the conversion replaces invalid UTF-8 by U+FFFD
			t.Fatalf("%s: got %q, want %q", text, got, want)
		}
		var r Reader
		r.Reset(text[1:])
		if back, err := r.String(); err != nil || string(back) != got {
			t.Fatalf("%s: read back %q, %v", text, back, err)
		}
	})
}
