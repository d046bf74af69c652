package api

import (
	"math"
	"slices"
	"testing"
)

// TestNumbers: NumbersOf returns the elements that Numbers was given; the data is little-endian.
func TestNumbers(t *testing.T) {
	v := Numbers[float32](1, -0.5, math.MaxFloat32)
	if !slices.Equal(v.Data[:4], []byte{0, 0, 0x80, 0x3f}) || len(v.Data) != 12 {
		t.Errorf("data %v", v.Data)
	}
	if x, err := NumbersOf[float32](v); err != nil || !slices.Equal(x, []float32{1, -0.5, math.MaxFloat32}) {
		t.Errorf("%v, %v", x, err)
	}
	if x, err := NumbersOf[int64](Numbers[int64](math.MinInt64, 7)); err != nil || !slices.Equal(x, []int64{math.MinInt64, 7}) {
		t.Errorf("%v, %v", x, err)
	}
	if x, err := NumbersOf[uint8](Numbers[uint8]()); err != nil || len(x) != 0 {
		t.Errorf("%v, %v", x, err)
	}
	if _, err := NumbersOf[float64](v); err == nil {
		t.Error("12 bytes were taken for float64")
	}
}
