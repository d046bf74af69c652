package capacity

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

// TestShapes: every rate lies between the lowest and the highest, and both are reached.
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
		if most < x.Peak-slack && shape != "spiky" { // there, chance decides
			t.Fatalf("%s does not reach %g: %g", shape, x.Peak, most)
		}
	})
}

func TestShapedRefuses(t *testing.T) {
	for _, c := range []struct {
		shape     string
		low, peak float64
		over      time.Duration
		says      string
	}{
		{"round", 1, 2, time.Hour, "expected steady, daily"}, {"daily", -1, 2, time.Hour, "a rate of -1"}, {"daily", 0, 0, time.Hour, "a peak of 0"},
		{"daily", math.NaN(), 2, time.Hour, "a rate of NaN"}, {"daily", 5, 2, time.Hour, "below the rate"}, {"daily", 1, 1e7, time.Hour, "up to 1e+06"},
		{"daily", 1, 2, time.Second, "a span of 1s"}, {"daily", 1, 2, 2 * MaxSpan, "a span of"},
	} {
		if _, err := Shaped(c.shape, c.low, c.peak, c.over, 1); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestSpikes: about a spike an hour, of about a minute.
func TestSpikes(t *testing.T) {
	edges := spikes(31*day, 3)
	total := api.Nanos(0)
	for i := 0; i < len(edges); i += 2 {
		total += edges[i+1] - edges[i]
	}
	if n := len(edges) / 2; n < 600 || n > 900 || !slices.IsSorted(edges) {
		t.Errorf("%d spikes in 744 hours", n)
	}
	if part := float64(total) / float64(31*day); part < 0.012 || part > 0.022 {
		t.Errorf("they take %g of the time: expected a sixtieth", part)
	}
}

// TestRecorded: of a recording with a busy minute, that minute is simulated, with as many queries as the scale says.
func TestRecorded(t *testing.T) {
	rec := &Recording{PerSecond: make([]uint32, 3600), Scale: 1}
	var times []api.Nanos
	rng := rand.New(rand.NewPCG(1, 1))
	for s := range rec.PerSecond {
		rec.PerSecond[s] = 2
		if s >= 1800 && s < 1860 {
			rec.PerSecond[s] = 100
		}
	}
	from, to := rec.Busiest()
	if from != 1800 || to != 1860 {
		t.Fatalf("the busiest part is from %d to %d: expected 1800 to 1860", from, to)
	}
	for range 6000 {
		times = append(times, api.Nanos(rng.Int64N(60e9)))
	}
	for _, scale := range []float64{1, 2.5, 0.5} {
		rec.Scale = scale
		from, to := rec.Busiest()
		inside := 0 // with a smaller scale the busiest part is longer: it is not asked for anew here
		for _, at := range times {
			if at < api.Nanos(to-from)*1e9 {
				inside++
			}
		}
		x, err := Recorded(rec, times, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := float64(len(x.busiest)), scale*float64(inside); math.Abs(got-want) > 0.05*want {
			t.Errorf("scale %g: %g queries are simulated: expected %g", scale, got, want)
		}
		if x.Low != 2*scale || x.rate(1830e9) != 100*scale || x.rate(0) != 2*scale || x.Span != time.Hour {
			t.Errorf("scale %g: from %g, %g at noon, over %s", scale, x.Low, x.rate(1830e9), x.Span)
		}
		if !slices.IsSorted(x.busiest) || x.busiest[0] < 0 || x.busiest[len(x.busiest)-1] >= x.busiestNanos {
			t.Errorf("scale %g: queries are not within the part", scale)
		}
		if l := x.load(1e9); l.duration != l.warm+x.busiestNanos || l.warm <= 0 || l.traffic[1].Times[0] < l.warm {
			t.Errorf("scale %g: a load of %v after %v", scale, l.duration, l.warm)
		}
	}
	if _, err := Recorded(&Recording{Scale: 1}, nil, 1); err == nil {
		t.Error("a recording of nothing was accepted")
	}
	rec.Scale = 1e6
	if _, err := Recorded(rec, times, 1); err == nil || !strings.Contains(err.Error(), "a peak of 1e+08") {
		t.Errorf("a rate that nobody can simulate: %v", err)
	}
}

// TestBusiestIsBounded: what is simulated of a recording is bounded, and not empty, whatever it is.
func TestBusiestIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec := &Recording{
			PerSecond: rapid.SliceOfN(rapid.Uint32Range(0, 100_000), 1, 200).Draw(t, "counts"), Scale: rapid.SampledFrom([]float64{0.1, 1, 7.3}).Draw(t, "scale"),
		}
		from, to := rec.Busiest()
		if from < 0 || to <= from || to > len(rec.PerSecond) {
			t.Fatalf("from %d to %d of %d", from, to, len(rec.PerSecond))
		}
		width, sum := to-from, 0.0
		_, most := rec.densest(width)
		for _, n := range rec.PerSecond[from:to] {
			sum += float64(n)
		}
		if sum != most {
			t.Fatalf("from %d to %d has %g queries, but there is a part with %g", from, to, sum, most)
		}
	})
}
