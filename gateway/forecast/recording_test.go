package forecast

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/api"
)

// busyMinute is an hour of two queries per second with a minute of 100 per second in the middle, and when the queries
// of that minute came.
func busyMinute() (*recording, []api.Nanos) {
	rec := &recording{perSecond: make([]uint32, 3600), scale: 1}
	for s := range rec.perSecond {
		rec.perSecond[s] = 2
		if s >= 1800 && s < 1860 {
			rec.perSecond[s] = 100
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var times []api.Nanos
	for range 6000 {
		times = append(times, api.Nanos(rng.Int64N(60e9)))
	}
	return rec, times
}

// TestRecordedTraffic: of a recording with a busy minute, that minute is simulated, with as many queries as the scale
// says.
func TestRecordedTraffic(t *testing.T) {
	rec, times := busyMinute()
	if from, to := rec.busiest(); from != 1800 || to != 1860 {
		t.Fatalf("the busiest part is from %d to %d: expected 1800 to 1860", from, to)
	}
	for _, scale := range []float64{1, 2.5, 0.5} {
		rec.scale = scale
		from, to := rec.busiest()
		inside := 0 // a smaller scale has a longer busiest part, of which times has only the first minute
		for _, at := range times {
			if at < api.Nanos(to-from)*1e9 {
				inside++
			}
		}
		x, err := rec.traffic(times, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := float64(len(x.busiest)), scale*float64(inside); math.Abs(got-want) > 0.05*want {
			t.Errorf("scale %g: %g queries are simulated: expected %g", scale, got, want)
		}
		if x.Low != 2*scale || x.rate(1830e9) != 100*scale || x.rate(0) != 2*scale || x.Span != time.Hour {
			t.Errorf("scale %g: from %g, %g in the middle, over %s", scale, x.Low, x.rate(1830e9), x.Span)
		}
		if !slices.IsSorted(x.busiest) || x.busiest[0] < 0 || x.busiest[len(x.busiest)-1] >= x.busiestNanos {
			t.Errorf("scale %g: the queries are not sorted, or not within the busiest part", scale)
		}
		if l := x.load(1e9); l.duration != l.warm+x.busiestNanos || l.warm <= 0 || l.traffic[1].Times[0] < l.warm {
			t.Errorf("scale %g: the load lasts %v, of which %v do not count", scale, l.duration, l.warm)
		}
	}
	rec.scale = 1e6
	if _, err := rec.traffic(times, 1); err == nil || !strings.Contains(err.Error(), "the peak is 1e+08") {
		t.Errorf("a rate that is too high to simulate: %v", err)
	}
	rec.scale = 2e6
	if _, err := rec.traffic(times, 1); err == nil || !strings.Contains(err.Error(), "each logged query stands for 2e+06") {
		t.Errorf("a scale that is too large: %v", err)
	}
}

// TestRecorded: a log is read twice. Sampling and the scale multiply its queries.
func TestRecorded(t *testing.T) {
	reads := 0
	log := func(queries int, apartMicros int64, sample float64) LogReader {
		return func(each func(int64, float64) error) error {
			reads++
			for i := range queries {
				if err := each(-5e6+int64(i)*apartMicros, sample); err != nil {
					return err
				}
			}
			return nil
		}
	}
	x, err := Recorded(log(1000, 10_000, 0.5), 3, 1) // ten seconds of 100 per second, around the beginning of 1970
	if err != nil {
		t.Fatal(err)
	}
	if reads != 2 || x.Shape != "recorded" || x.Span != 10*time.Second || x.Low != 600 || x.Peak != 600 || len(x.busiest) != 6000 {
		t.Errorf("after %d reads: %+v, %d queries in the busiest part", reads, x, len(x.busiest))
	}
	if x, err := Recorded(log(10, 1e6, 0), 1, 1); err != nil || x.Peak != 1 {
		t.Errorf("a log without sampling: %+v, %v", x, err)
	}
	if _, err := Recorded(log(0, 1, 1), 1, 1); !errors.Is(err, ErrNoQueries) {
		t.Errorf("a log without queries: %v", err)
	}
	if _, err := Recorded(log(2, 32*24*3600e6, 1), 1, 1); err == nil || !strings.Contains(err.Error(), "over more than 744h0m0s") {
		t.Errorf("two queries in two months: %v", err)
	}
	broken := errors.New("broken")
	if _, err := Recorded(func(func(int64, float64) error) error { return broken }, 1, 1); !errors.Is(err, broken) {
		t.Errorf("a log that cannot be read: %v", err)
	}
}

// TestBusiestIsBounded: the busiest part is not empty, lies within the recording, and no part of its length has more
// queries.
func TestBusiestIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec := &recording{
			perSecond: rapid.SliceOfN(rapid.Uint32Range(0, 100_000), 1, 200).Draw(t, "counts"), scale: rapid.SampledFrom([]float64{0.1, 1, 7.3}).Draw(t, "scale"),
		}
		from, to := rec.busiest()
		if from < 0 || to <= from || to > len(rec.perSecond) {
			t.Fatalf("from %d to %d of %d", from, to, len(rec.perSecond))
		}
		width, sum := to-from, 0.0
		_, most := rec.densest(width)
		for _, n := range rec.perSecond[from:to] {
			sum += float64(n)
		}
		if sum != most {
			t.Fatalf("from %d to %d there are %g queries, but another part has %g", from, to, sum, most)
		}
	})
}
