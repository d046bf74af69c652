package api

import (
	"math"
	"strings"
	"testing"
)

// TestCheck: a value whose dimensions and length fit the spec passes; any other gets an error that says what was
// expected.
func TestCheck(t *testing.T) {
	floats := TensorSpec{Name: "x", DType: Float32, Shape: []int64{2, 2}}
	rows := TensorSpec{Name: "x", DType: Int16, Shape: []int64{-1, 2}}
	text := TensorSpec{Name: "x", DType: Bytes}
	words := TensorSpec{Name: "x", DType: Bytes, Shape: []int64{-1}}
	for _, c := range []struct {
		name  string
		spec  TensorSpec
		value Value
		want  string // part of the error; empty: none
	}{
		{"fixed", floats, Value{Data: make([]byte, 16)}, ""},
		{"too short", floats, Value{Data: make([]byte, 15)}, "15 bytes: expected 16"},
		{"superfluous dimensions", floats, Value{Data: make([]byte, 16), Dims: []int64{2, 2}}, "expected none"},
		{"open", rows, Value{Data: make([]byte, 12), Dims: []int64{3, 2}}, ""},
		{"open and empty", rows, Value{Dims: []int64{0, 2}}, ""},
		{"no dimensions", rows, Value{Data: make([]byte, 12)}, "expected those of int16[-1, 2]"},
		{"another dimension", rows, Value{Data: make([]byte, 12), Dims: []int64{2, 3}}, "expected those of int16[-1, 2]"},
		{"dimensions that overflow", rows, Value{Dims: []int64{1 << 62, 2}}, "expected those of int16[-1, 2]"},
		{"dimensions of other data", rows, Value{Data: make([]byte, 12), Dims: []int64{2, 2}}, "12 bytes: expected 8 for int16[2, 2]"},
		{"bytes", text, Value{Data: []byte("any")}, ""},
		{"elements", words, Value{Data: []byte("\x02\x00\x00\x00hi\x00\x00\x00\x00"), Dims: []int64{2}}, ""},
		{"strings", TensorSpec{Name: "x", DType: String, Shape: []int64{1}}, Value{Data: []byte("\x02\x00\x00\x00hi"), Dims: []int64{1}}, ""},
		{"a missing string", TensorSpec{Name: "x", DType: String, Shape: []int64{2}}, Value{Data: []byte("\x02\x00\x00\x00hi"), Dims: []int64{2}}, "end in element 1"},
		{"a short element", words, Value{Data: []byte("\x03\x00\x00\x00hi"), Dims: []int64{1}}, "end in element 0"},
		{"a huge element", words, Value{Data: []byte("\xff\xff\xff\xffhi"), Dims: []int64{1}}, "end in element 0"},
		{"a missing element", words, Value{Data: []byte("\x02\x00\x00\x00hi"), Dims: []int64{2}}, "end in element 1"},
		{"more than the elements", words, Value{Data: []byte("\x02\x00\x00\x00hi!"), Dims: []int64{1}}, "1 bytes behind"},
	} {
		err := c.spec.Check(&c.value)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, expected %q", c.name, err, c.want)
		}
	}
}

// Every bfloat16 is a float32 that rounds to itself; what lies between two neighbours rounds to the nearer one, and to the even one from the middle.
func TestBFloat16(t *testing.T) {
	for h := range uint16(0x7f80) {
		f := float64(BFloat16ToFloat32(h))
		next := float64(BFloat16ToFloat32(h + 1))
		if h == 0x7f7f {
			next = 0x1p128
		}
		middle := (f + next) / 2
		even := h + h&1
		for x, want := range map[float64]uint16{f: h, middle: even, math.Nextafter(middle, 0): h, math.Nextafter(middle, math.Inf(1)): h + 1} {
			if got := Float64ToBFloat16(x); got != want {
				t.Fatalf("%b rounds to %04x: expected %04x", x, got, want)
			}
			if got := Float64ToBFloat16(-x); got != want|0x8000 {
				t.Fatalf("%b rounds to %04x: expected %04x", -x, got, want|0x8000)
			}
		}
	}
	for x, want := range map[float64]uint16{math.Inf(1): 0x7f80, math.Inf(-1): 0xff80, math.MaxFloat64: 0x7f80, 5e-324: 0, -5e-324: 0x8000} {
		if got := Float64ToBFloat16(x); got != want {
			t.Errorf("%v rounds to %04x: expected %04x", x, got, want)
		}
	}
	if got := Float64ToBFloat16(math.NaN()); got != 0x7fc0 {
		t.Errorf("NaN is %04x", got)
	}
}
