package autoscale

import (
	"math"
	"testing"
)

// TestTrials checks when measurements override a profile of 1,000 queries/s for each replica. Four replicas are ready.
func TestTrials(t *testing.T) {
	// Each second 2,000 queries arrive, of which 400 are refused: each of the four serves 400.
	usual := func(in *Sample, second int) {
		in.Ready, in.InFlight, in.Queued = 4, 8, 5
		in.Arrived = uint64(second) * 2000
		in.Refused = uint64(second) * 400
	}
	for _, c := range []struct {
		name   string
		change func(c *capacity, in *Sample, second int)
		needed float64
		want   float64 // measured; 0: nothing is learned
	}{
		{"busy and too slow", nil, 3, 400},
		{"busy, and the queue never empties", func(_ *capacity, in *Sample, second int) {
			in.Refused = 0
			in.Queued = 5 + 400*second
			in.Arrived = uint64(second) * 2000
		}, 3, 400},
		{"busy, and no more waits than the next batches take", func(c *capacity, in *Sample, _ int) { c.batch, in.Refused, in.Queued = 20, 0, 60 }, 3, 0},
		{"without a profile", func(c *capacity, _ *Sample, _ int) { c.profiled = 0 }, 3, 400},
		{"too few replicas by the profile", nil, 5, 0},
		{"the replicas are idle", func(_ *capacity, in *Sample, _ int) { in.InFlight = 3 }, 3, 0},
		{"no query can be answered in time, and the queue empties", func(c *capacity, in *Sample, _ int) { c.fits, in.Queued = false, 0 }, 3, 0},
		{"less than one in a hundred is refused, and the queue empties", func(_ *capacity, in *Sample, second int) {
			in.Refused, in.Queued = uint64(second)*19, 0
		}, 3, 0},
		{"the number of replicas changes", func(_ *capacity, in *Sample, second int) { in.Ready = 4 + second%2 }, 3, 0},
		{"one pause of three seconds", func(_ *capacity, in *Sample, second int) {
			in.Refused, in.Queued = uint64(min(second, 3))*400, 0
		}, 3, 0},
		{"a burst every three seconds, many of it refused: the served rate is the arrival rate", func(_ *capacity, in *Sample, second int) {
			in.Refused, in.Queued = uint64(second/3)*400, 0
		}, 3, 0},
		{"nine of ten are refused: the measurement is at least half of the arrivals", func(_ *capacity, in *Sample, second int) {
			in.Refused = uint64(second) * 1800
		}, 3, 250},
		{"they serve the profile's rate", func(_ *capacity, in *Sample, second int) {
			in.Arrived, in.Refused = uint64(second)*5000, uint64(second)*500
		}, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := capacity{profiled: 1000, fits: true}
			cfg := Config{}.normalized()
			var before Sample
			for second := range 12 {
				in := Sample{}
				usual(&in, second)
				if c.change != nil {
					c.change(&k, &in, second)
				}
				if second > 0 {
					k.observe(&in, &cfg, counterGrowth(in.Arrived, before.Arrived), counterGrowth(in.Refused, before.Refused), 1e9, c.needed)
				}
				before = in
			}
			if math.Abs(k.measured-c.want) > 0.01*c.want {
				t.Errorf("%v measured, expected %v", k.measured, c.want)
			}
		})
	}
}

// TestPlannedByChance checks how much less replicas are used because queries arrive close together by chance.
func TestPlannedByChance(t *testing.T) {
	cfg := Config{Utilization: 0.7}
	for _, c := range []struct {
		name             string
		intercept, slope float64
		cap              int
		slo              int64
		n                int
		want             float64 // the planned part of n replicas
	}{
		{"batches of 7 in 200 ms, one replica", 60e6, 20e6, 100, 500e6, 1, 3.5 / (3.5 + 4.605)},
		{"two", 60e6, 20e6, 100, 500e6, 2, 0.7},
		{"many", 60e6, 20e6, 100, 500e6, 100, 0.85},
		{"one query at a time for two fifths of the objective, one replica", 0, 40e6, 1, 100e6, 1, 0.5 / (0.5 + 4.605)},
		{"four", 0, 40e6, 1, 100e6, 4, 5 / (5 + 4.605)},
		{"one for three fifths of it: no worse than two fifths", 0, 60e6, 1, 100e6, 4, (4*(60./60) - 40./60) / (4*(60./60) - 40./60 + 4.605)},
		{"for longer than the objective: no number of replicas helps", 0, 150e6, 1, 100e6, 1, 0.7},
		{"in a twentieth of it", 0, 5e6, 1, 100e6, 1, 0.7},
		{"batches of 20 in 20 ms, of 100", 0, 1e6, 20, 100e6, 1, 0.7},
		{"no objective", 60e6, 20e6, 7, 0, 1, 0.7},
	} {
		in := Sample{Known: true, InterceptNanos: c.intercept, SlopeNanos: c.slope, Cap: c.cap, SLONanos: c.slo}
		var k capacity
		k.learn(&in, &cfg, 0)
		s := Scaler{capacity: k, chance: k.chance(c.slo)}
		got := s.used(&cfg, c.n)
		if math.Abs(got-c.want) > 0.001 {
			t.Errorf("%s: utilization %.4f, expected %.4f", c.name, got, c.want)
		}
		if n := s.chance.planned(&cfg, got*float64(c.n)*k.full()); math.Abs(n-float64(c.n)) > 1e-3 {
			t.Errorf("%s: %v replicas for the planned rate of %d", c.name, n, c.n)
		}
		if n := s.chance.planned(&cfg, 0); n != 0 {
			t.Errorf("%s: %v replicas for the rate 0", c.name, n)
		}
	}
	if got := -math.Log(lateByChance) / 2; math.Abs(got-chanceExponent) > 0.001 {
		t.Errorf("an exponent of %v, expected %v", chanceExponent, got)
	}
}

// TestMeasurementIsDropped checks that a measurement is dropped once the profile says less, even if the profile says
// more again later.
func TestMeasurementIsDropped(t *testing.T) {
	cfg := Config{}.normalized()
	k := capacity{profiled: 1000, measured: 400, fits: true}
	if got := k.full(); got != 400 {
		t.Errorf("capacity %v, expected the measured 400", got)
	}
	var in Sample
	k.profiled = 390
	k.observe(&in, &cfg, 0, 0, 1e9, 1)
	k.profiled = 1000
	if got := k.full(); got != 1000 {
		t.Errorf("capacity %v, expected the profile's 1,000", got)
	}
	k.measured = 400
	k.observe(&in, &cfg, 0, 0, 60*60e9, 1)
	if got := k.full(); math.Abs(got-800) > 1 {
		t.Errorf("capacity %v after sixty stable windows, expected twice 400", got)
	}
}

// TestProfilesAreSmoothed checks smoothing over a tenth of the stable window at first and over all of it later, and
// that a profile of free queries does not outweigh a minute of others.
func TestProfilesAreSmoothed(t *testing.T) {
	cfg := Config{}.normalized()
	in := Sample{Known: true, SlopeNanos: 1e6, Cap: 20}
	var k capacity
	k.learn(&in, &cfg, 0) // 1,000 queries/s
	in.SlopeNanos = 2e6
	k.learn(&in, &cfg, 2e9)
	if got := 1e9 / k.profiled; math.Abs(got-1.25e6) > 1 {
		t.Errorf("%v ns for a query after 2 s of twice the time, expected a quarter more", got)
	}
	for range 60 {
		k.learn(&in, &cfg, 1e9)
	}
	settled := k.profiled
	if math.Abs(settled-500) > 20 {
		t.Errorf("%v queries/s after a minute of 500, expected about 500", settled)
	}
	in.SlopeNanos, in.InterceptNanos, in.Cap = 0, 1, maxBatch
	k.learn(&in, &cfg, 1e9)
	if k.profiled > 1.02*settled {
		t.Errorf("%v queries/s after a second of free queries, expected hardly more than %v", k.profiled, settled)
	}
}

// TestInvalidProfilesAreIgnored checks that invalid profiles change nothing.
func TestInvalidProfilesAreIgnored(t *testing.T) {
	cfg := Config{}.normalized()
	in := Sample{Known: true, SlopeNanos: 1e6, Cap: 20}
	var k capacity
	k.learn(&in, &cfg, 0)
	for _, v := range []float64{math.Inf(1), math.NaN(), -1} {
		in.SlopeNanos = v
		k.learn(&in, &cfg, 10e9)
		in.SlopeNanos, in.InterceptNanos = 1e6, v
		k.learn(&in, &cfg, 10e9)
		in.InterceptNanos = 0
	}
	if k.profiled != 1000 || k.batchNanos != 20e6 {
		t.Errorf("%+v, expected 1,000/s and 20 ms as before", k)
	}
}
