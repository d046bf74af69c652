package forecast

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

// TestShapes: every rate is between the lowest and the highest, and both are reached.
func TestShapes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SampledFrom(Shapes).Draw(t, "shape")
		low := rapid.Float64Range(0, 1000).Draw(t, "low")
		peak := low + rapid.Float64Range(1, 1000).Draw(t, "more")
		over := time.Duration(rapid.Int64Range(int64(MinSpan), int64(72*time.Hour)).Draw(t, "over"))
		x, err := Shaped(shape, low, peak, over, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		least, most := math.Inf(1), 0.0
		for i := range 10_000 {
			r := x.rate(api.Nanos(float64(over) * float64(i) / 10_000))
			least, most = min(least, r), max(most, r)
		}
		slack := 1e-3 * peak
		if least < x.Low-1e-9 || most > x.Peak+1e-9 || least > x.Low+slack {
			t.Fatalf("%s from %g to %g: rates from %g to %g", shape, low, peak, least, most)
		}
		if most < x.Peak-slack && shape != "spiky" { // whether there is a spike is random
			t.Fatalf("%s does not reach %g: %g", shape, x.Peak, most)
		}
	})
}

func TestShapedRejects(t *testing.T) {
	for _, c := range []struct {
		shape     string
		low, peak float64
		over      time.Duration
		says      string
	}{
		{"round", 1, 2, time.Hour, "expected steady, daily"}, {"daily", -1, 2, time.Hour, "the rate is -1"}, {"daily", 0, 0, time.Hour, "the peak is 0"},
		{"daily", math.NaN(), 2, time.Hour, "the rate is NaN"}, {"daily", 5, 2, time.Hour, "less than the rate"}, {"daily", 1, 1e7, time.Hour, "up to 1e+06"},
		{"daily", 1, 2, time.Second, "the span is 1s"}, {"daily", 1, 2, 2 * MaxSpan, "the span is"},
	} {
		if _, err := Shaped(c.shape, c.low, c.peak, c.over, 1); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got %v, want an error with %q", c, err, c.says)
		}
	}
}

// TestSpikes: there is about one spike an hour, of about a minute.
func TestSpikes(t *testing.T) {
	edges := spikes(31*day, 3)
	total := api.Nanos(0)
	for i := 0; i < len(edges); i += 2 {
		total += edges[i+1] - edges[i]
	}
	if n := len(edges) / 2; n < 600 || n > 900 || !slices.IsSorted(edges) {
		t.Errorf("%d spikes in 744 hours: expected about 744", n)
	}
	if part := float64(total) / float64(31*day); part < 0.012 || part > 0.022 {
		t.Errorf("spikes last %g of the time: expected about a sixtieth", part)
	}
}
