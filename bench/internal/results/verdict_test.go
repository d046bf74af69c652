package results

import (
	"math"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 5e-4 }

func TestGeometric(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		ratios []float64
		want   Interval
	}{
		{[]float64{1.18, 1.17, 1.33}, Interval{1.2246, 1.0245, 1.4638}},
		{[]float64{2, 2, 2}, Interval{2, 2, 2}},
		{[]float64{0.5, 2}, Interval{1, math.Exp(-12.7062 * math.Log(2)), math.Exp(12.7062 * math.Log(2))}}, // two values: t is 12.7
		{[]float64{1.5}, Interval{1.5, 0, inf}},
	} {
		if got := Geometric(c.ratios); !near(got.Value, c.want.Value) || !near(got.Low, c.want.Low) || got.High != c.want.High && math.Abs(got.High/c.want.High-1) > 1e-3 {
			t.Errorf("%v: got %+v, want %+v", c.ratios, got, c.want)
		}
	}
	if got := Geometric(nil); !math.IsNaN(got.Value) || AtLeast(0.5).Judge(got) != Untold {
		t.Errorf("of nothing: %+v", got)
	}
}

// The bounds of Clopper and Pearson are in many tables: 0 of 10 is at most 0.3085, 1 of 10 is 0.0025 to 0.4450.
func TestPart(t *testing.T) {
	for _, c := range []struct {
		so, all int
		want    Interval
	}{{0, 10, Interval{0, 0, 0.3085}}, {10, 10, Interval{1, 0.6915, 1}}, {1, 10, Interval{0.1, 0.0025, 0.4450}}, {0, 0, Interval{0, 0, 1}}, {5, 100, Interval{0.05, 0.0164, 0.1128}}} {
		if got := Part(c.so, c.all); !near(got.Value, c.want.Value) || !near(got.Low, c.want.Low) || !near(got.High, c.want.High) {
			t.Errorf("%d of %d: got %+v, want %+v", c.so, c.all, got, c.want)
		}
	}
	if AtMost(0.01).Judge(Part(0, 367)) != Untold || AtMost(0.01).Judge(Part(0, 368)) != Holds {
		t.Error("no late batch of 368 shows that at most one in a hundred is late, none of 367 does not")
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		claim     Claim
		low, high float64
		want      Finding
	}{
		{AtLeast(1.6), 1.6, 2, Holds}, {AtLeast(1.6), 1.5, 2, Untold}, {AtLeast(1.6), 1.1, 1.59, Fails}, {AtLeast(1.6), 1.6, math.Inf(1), Holds},
		{AtMost(1), 0.9, 1, Holds}, {AtMost(1), 0.9, 1.1, Untold}, {AtMost(1), 1.01, 1.1, Fails},
		{About(1, 0.1), 0.95, 1.05, Holds}, {About(1, 0.1), 0.85, 1, Untold}, {About(1, 0.1), 1.05, 1.2, Untold}, {About(1, 0.1), 0.8, 1.2, Untold}, {About(1, 0.1), 1.11, 1.2, Fails}, {About(1, 0.1), 0.8, 0.9, Fails},
		{AtLeast(1), 0, math.Inf(1), Untold}, {AtMost(1), math.NaN(), math.NaN(), Untold},
	} {
		if got := c.claim.Judge(Interval{Value: (c.low + c.high) / 2, Low: c.low, High: c.high}); got != c.want {
			t.Errorf("%+v of %v to %v: got %q, want %q", c.claim, c.low, c.high, got, c.want)
		}
	}
}

func TestAll(t *testing.T) {
	for _, c := range []struct {
		in   []Finding
		want Finding
	}{{nil, Holds}, {[]Finding{Holds, Holds}, Holds}, {[]Finding{Holds, Untold}, Untold}, {[]Finding{Untold, Fails, Holds}, Fails}} {
		if got := All(c.in...); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestFormat(t *testing.T) {
	if got := (Interval{1.2246, 1.0245, 1.4638}).Format(2); got != "1.22 (1.02–1.46)" {
		t.Errorf("got %q", got)
	}
	if got := Geometric([]float64{1.5}).Format(1); got != "1.5 (no interval)" {
		t.Errorf("got %q", got)
	}
}
