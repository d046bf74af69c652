package results

import (
	"math"
	"testing"
)

// The t interval of 1 to 5: mean 3, standard error √(2.5/5), 2.776 of them.
func TestAverage(t *testing.T) {
	got := Average([]float64{1, 2, 3, 4, 5})
	if got.Value != 3 || math.Abs(got.High-3-2.7764*math.Sqrt(0.5)) > 1e-3 || math.Abs(got.High+got.Low-6) > 1e-12 {
		t.Errorf("got %+v", got)
	}
	if got.PlusMinus(2) != "3.00 ± 1.96" || got.Signed(1) != "+3.0 ± 2.0" || got.Over(2).PlusMinus(1) != "1.5 ± 1.0" {
		t.Errorf("formatted %s, %s, %s", got.PlusMinus(2), got.Signed(1), got.Over(2).PlusMinus(1))
	}
	if got := Average([]float64{2}); got.Value != 2 || AtLeast(1).Judge(got) != Untold || got.PlusMinus(1) != "2.0 (no interval)" {
		t.Errorf("one value is %+v", got)
	}
	if got := Differences([]float64{3, 1}, []float64{1, 2}); got[0] != 2 || got[1] != -1 {
		t.Errorf("differences %v", got)
	}
}

func TestMinus(t *testing.T) {
	got := Interval{10, 7, 14}.Minus(2, Interval{3, 1, 5})
	if want := (Interval{4, 4 - 5, 4 + math.Hypot(4, 4)}); math.Abs(got.Value-want.Value)+math.Abs(got.Low-want.Low)+math.Abs(got.High-want.High) > 1e-12 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
