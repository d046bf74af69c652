package autoscale

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

// TestCapacity checks what one replica serves within the objective, by its profile.
func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		name             string
		intercept, slope float64
		cap              int
		slo              int64
		want             float64
	}{
		{"35 take 40 ms, which is two fifths of 100", 5e6, 1e6, 1000, 100e6, 875},
		{"31 take 39.1 ms, and 32 more than 40", 5e6, 1.1e6, 1000, 100e6, 31 / 39.1e-3},
		{"a cap of 20", 5e6, 1e6, 20, 100e6, 800},
		{"without an objective the cap is what there is", 5e6, 1e6, 45, 0, 900},
		{"each query costs nothing", 10e6, 0, 50, 100e6, 5000},
		{"one alone takes more than two fifths", 50e6, 1e6, 100, 100e6, 1e9 / 51e6},
		{"one alone takes too long", 150e6, 1e6, 100, 100e6, 1e9 / 151e6},
		{"a cap of 0 counts as 1", 5e6, 5e6, 0, 100e6, 100},
		{"a profile of zeros is invalid", 0, 0, 10, 100e6, 0},
		{"a negative profile is invalid", -1, 5, 10, 100e6, 0},
		{"a NaN profile is invalid", math.NaN(), 5, 10, 100e6, 0},
		{"an infinite profile is invalid", 1, math.Inf(1), 10, 100e6, 0},
	} {
		in := Sample{Known: true, InterceptNanos: c.intercept, SlopeNanos: c.slope, Cap: c.cap, SLONanos: c.slo}
		cfg := Config{}.normalized()
		var k capacity
		k.learn(&in, &cfg, 0)
		if math.Abs(k.profiled-c.want) > 1e-6 {
			t.Errorf("%s: %v queries/s, expected %v", c.name, k.profiled, c.want)
		}
	}
}

// TestPlanned checks that up to four replicas are used to the utilization, and more replicas more, but at least half of
// the rest stays spare.
func TestPlanned(t *testing.T) {
	cfg := Config{Utilization: 0.7}
	for _, c := range []struct{ full, want float64 }{{0, 0}, {0.7, 1}, {2.1, 3}, {2.8, 4}, {7, 8.9}, {16.5, 19.4}, {85, 100}} {
		if got := cfg.planned(c.full); math.Abs(got-c.want) > 0.02 {
			t.Errorf("%v replicas planned for the work of %v, expected %v", got, c.full, c.want)
		}
	}
	for _, utilization := range []float64{0.05, 0.3, 0.7, 0.99, 1} {
		cfg := Config{Utilization: utilization}
		before := 0.0
		for n := 1; n < 200; n++ {
			used := cfg.used(n)
			if back := cfg.planned(used * float64(n)); math.Abs(back-float64(n)) > 1e-9*float64(n) {
				t.Errorf("utilization %v: %d replicas are used to %v, which in turn plans %v", utilization, n, used, back)
			}
			if used < before-1e-12 || used < utilization-1e-12 || used > (1+utilization)/2+1e-12 {
				t.Errorf("utilization %v: %d replicas are used to %v, one less to %v", utilization, n, used, before)
			}
			before = used
		}
	}
	if got := cfg.used(0); got != 0.7 {
		t.Errorf("without replicas utilization %v, expected 0.7", got)
	}
}

// TestExamples checks the numbers in the comments' worked examples.
func TestExamples(t *testing.T) {
	w := newWorld(new(Scaler))
	s := w.scaler.(*Scaler)
	in := &w.sample
	cfg := in.Config.normalized()
	s.Decide(in)

	// Quarters of 3 s with 1,000, 1,200, 1,400 and 1,600 queries/s.
	for _, rate := range []float64{1000, 1200, 1400, 1600} {
		s.window.add(3*rate, 3e9)
	}
	s.tickNanos = 1e9
	if got := s.trend(5e9); math.Abs(got-2021) > 0.5 {
		t.Errorf("a trend to %v, expected 2,021", got)
	}

	// A jump from 1,000 to 2,000 in the middle of the second quarter makes two steps, and chance a third one, of more
	// than a deviation.
	s.window = window{}
	s.window.span(60e9)
	for _, rate := range []float64{1000, 1500, 2000, 2050} {
		s.window.add(3*rate, 3e9)
	}
	if got := s.trend(5e9); got != 0 {
		t.Errorf("trend to %v after a jump, expected none", got)
	}

	// Zero to 3,000 in a minute extrapolates to 6,750 after another minute, but at most twice the current rate is used.
	s.window = window{}
	s.window.span(60e9)
	for _, rate := range []float64{0, 1000, 2000, 3000} {
		s.window.add(15*rate, 15e9)
	}
	if got := s.trend(60e9); got != 6000 {
		t.Errorf("a trend to %v, expected 6,000", got)
	}

	// A minute with a mean of 3,000, its last 6 s with 4,000.
	s.window = window{}
	s.window.span(60e9)
	s.window.add(156000, 54e9)
	s.window.add(24000, 6e9)
	mean, rush, _ := s.rates(in)
	if math.Abs(mean-3000) > 1 || math.Abs(rush*6-23535) > 1 {
		t.Errorf("rates of %v and %v, expected 3,000 and 23,535/6", mean, rush)
	}
	urgent, all := s.demand(in, &cfg)
	if math.Abs(urgent.replicas-5.34) > 0.005 || all.reason != Rush || replicas(all.replicas) != 6 {
		t.Errorf("%+v, %+v: expected 5.34 for the rush", urgent, all)
	}
	within := (1e9 + 80e6) / 1e9
	if got := s.window.burst() / within / s.capacity.full(); math.Abs(got-3.70) > 0.005 {
		t.Errorf("%v for the burst, expected 3.70", got)
	}

	// Two waiting queries are worked off beside the current 500 queries/s, not beside the mean of a load that has gone.
	s.window = window{}
	s.window.span(60e9)
	s.window.add(54*4000, 54e9)
	s.window.add(6*500, 6e9)
	s.delayed, s.backlog = maximum{}, backlog{least: 2, before: 2, whole: true}
	s.delayed.span(30e9)
	if urgent, all := s.demand(in, &cfg); urgent.rate > 510 || all.replicas > 1 {
		t.Errorf("%+v, %+v: expected the need of about 500 queries/s", urgent, all)
	}

	// 600 queries in a minute leave a band of 8 %.
	s.window = window{}
	s.window.span(60e9)
	s.window.add(600, 60e9)
	if got := s.band(); math.Abs(got-0.082) > 0.001 {
		t.Errorf("a band of %v, expected 8 %%", got)
	}
}

// TestRestartedCounters checks that a restarted version counts from zero and keeps its replicas.
func TestRestartedCounters(t *testing.T) {
	w := newWorld(new(Scaler))
	w.rate = func() float64 { return 6900 }
	w.run(5 * time.Minute)
	settled := w.last.Replicas
	w.onDecision = func(d Decision, before int) {
		if d.Replicas != settled {
			t.Errorf("%v: %+v, expected %d as before", time.Duration(w.now-worldBegins), d, settled)
		}
	}
	w.sample.Arrived, w.sample.Refused = 0, 0
	w.run(5 * time.Minute)
}

// TestClock checks that needed replicas stay when the clock jumps back or forward or stands still.
func TestClock(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, -time.Second, 0, time.Minute, time.Hour, 1000 * time.Hour} {
		w := newWorld(new(Scaler))
		w.rate = func() float64 { return 6900 }
		w.run(5 * time.Minute)
		settled := w.last.Replicas
		w.onDecision = func(d Decision, before int) {
			if d.Replicas != settled {
				t.Errorf("after a jump by %v: %+v, expected %d as before", jump, d, settled)
			}
		}
		w.now += api.Nanos(jump)
		for i := range w.queue {
			w.queue[i].until += api.Nanos(jump)
		}
		w.tick()
		w.tick()
		w.run(5 * time.Minute)
	}
}

// TestTickLengths checks that decisions do not depend on how often or how evenly the scaler is called.
func TestTickLengths(t *testing.T) {
	for _, tick := range []int64{100e6, 300e6, 1e9, 2e9, 5e9, 10e9, -1} {
		w := newWorld(new(Scaler))
		rng := rand.New(rand.NewPCG(1, 2))
		w.rate = func() float64 {
			if w.now < worldBegins+300e9 {
				return 6900
			}
			return 20000
		}
		w.onDecision = func(Decision, int) {
			if w.tickNanos = tick; tick < 0 { // uneven
				w.tickNanos = 100e6 + rng.Int64N(10e9)
			}
		}
		w.onDecision(Decision{}, 0)
		w.run(5 * time.Minute)
		first := w.last.Replicas
		w.run(5 * time.Minute)
		second := w.last.Replicas
		if first != 9 || second < 24 || second > 25 {
			t.Errorf("ticks of %v: %d and %d, expected 9 and 24 or 25", time.Duration(tick), first, second)
		}
	}
}

// TestChance checks that random arrivals at a rate that needs about a whole number of replicas rarely change the
// number, however few they are.
func TestChance(t *testing.T) {
	for _, each := range []float64{3, 10, 100, 1000} { // what a replica is planned with
		for _, needs := range []float64{0.9, 1, 1.5, 3, 9.99, 30} {
			w := newWorld(new(Scaler))
			w.rng = rand.New(rand.NewPCG(1, uint64(each*needs)))
			w.each = each / 0.7
			w.sample.SlopeNanos = 1e9 / w.each
			w.sample.SLONanos = int64(50 * w.sample.SlopeNanos)
			w.rate = func() float64 { return each * needs }
			w.run(6 * time.Minute)
			changes := 0
			w.onDecision = func(d Decision, before int) {
				if d.Replicas != before {
					changes++
				}
			}
			w.run(30 * time.Minute)
			// A replica of 3 queries/s gets so few that a minute's mean is off by a tenth now and then.
			most := 8
			if each >= 100 {
				most = 1
			}
			if changes > most {
				t.Errorf("%v queries/s of replicas that are planned with %v each: %d changes in half an hour, expected %d at most", each*needs, each, changes, most)
			}
		}
	}
}

// TestFirstQuery checks that a gateway started by the first query for a sleeping model does not wait for a second one.
func TestFirstQuery(t *testing.T) {
	in := newWorld(nil).sample
	in.Ready, in.Wanted = 0, 0
	in.Now, in.Arrived = 1000e9, 1

	in.LastArrival = 999e9
	if d := New().Decide(&in); d.Replicas != 1 || d.Reason != Waking {
		t.Errorf("%+v, expected 1 replica and Waking", d)
	}
	in.LastArrival = 600e9
	if d := New().Decide(&in); d.Replicas != 0 {
		t.Errorf("%+v, expected 0 replicas: the query is 400 s old", d)
	}
	in.LastArrival = 0
	if d := New().Decide(&in); d.Replicas != 0 {
		t.Errorf("%+v, expected 0 replicas: there was no query", d)
	}
	in.Queued = 1
	if d := New().Decide(&in); d.Replicas != 1 || d.Reason != Waking {
		t.Errorf("%+v, expected 1 replica and Waking", d)
	}
}

// TestCrowded checks that without a profile busy replicas that do not keep up cause more replicas. If some are idle,
// the queue waits for something else, for example a turn on a device.
func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		name                      string
		queued, inFlight, refused int
		want                      int
	}{
		{"one is idle", 10, 1, 0, 2},
		{"one is idle, and queries are refused", 10, 1, 5, 2},
		{"busy, and the queue stands", 10, 2, 0, 3},
		{"busy, and queries are refused", 0, 2, 5, 3},
		{"busy", 0, 2, 0, 2},
	} {
		s := New()
		in := newWorld(nil).sample
		in.Known, in.Ready, in.Wanted, in.Queued, in.InFlight = false, 2, 2, c.queued, c.inFlight
		most := 0
		for range 5 {
			in.Now += 1e9
			in.Arrived += 10
			in.Refused += uint64(c.refused)
			most = max(most, s.Decide(&in).Replicas)
		}
		if most != c.want {
			t.Errorf("%s: %d, expected %d", c.name, most, c.want)
		}
	}
}

// TestSize checks that a thousand models take about a megabyte.
func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(Scaler{}); n > 1280 {
		t.Errorf("a scaler is %d bytes, expected 1,280 at most", n)
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range reasons {
		name := r.String()
		if name == "" || seen[name] {
			t.Errorf("reason %d has the name %q, empty or used twice", r, name)
		}
		seen[name] = true
	}
	if got := reasons.String(); got != "unknown" {
		t.Errorf("%q, expected unknown", got)
	}
}
