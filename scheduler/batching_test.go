package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// loaded is a replica under full load: each batch fills the cap at the time it is sent, depth batches are outstanding,
// and a batch of n takes (fixed + each·n)·factor·noise nanoseconds.
type loaded struct {
	c           controller
	fixed, each float64
	factor      float64
	noise       func() float64
	sent        []int
}

func newLoaded(b Batching, depth int, m model) *loaded {
	s := &loaded{c: newController(b), fixed: m.fixed, each: m.each, factor: 1, noise: func() float64 { return 1 }}
	for range depth {
		s.sent = append(s.sent, s.c.cap())
	}
	return s
}

// lognormal returns noise that scatters times by about sigma; its P99 is exp(2.326·sigma).
func lognormal(seed uint64, sigma float64) func() float64 {
	rng := rand.New(rand.NewPCG(seed, 7))
	return func() float64 { return math.Exp(sigma * rng.NormFloat64()) }
}

func (s *loaded) cost(n int) float64 { return (s.fixed + s.each*float64(n)) * s.factor }

// best is the largest batch that takes at most nanos, at least 1.
func (s *loaded) best(nanos float64) int {
	return max(1, int((nanos/s.factor-s.fixed)/s.each+1e-6))
}

// batch evaluates the oldest batch, delayed by the factor heldUp, and sends another.
func (s *loaded) batch(heldUp float64) (nanos float64) {
	n := s.sent[0]
	nanos = s.cost(n) * s.noise() * heldUp
	copy(s.sent, s.sent[1:])
	s.c.observe(n, true, int64(nanos))
	s.sent[len(s.sent)-1] = s.c.cap()
	return nanos
}

// run evaluates batches and returns the cap after each, and how many took longer than nanos.
func (s *loaded) run(batches int, nanos float64) (caps []int, misses int) {
	for range batches {
		if s.batch(1) > nanos {
			misses++
		}
		caps = append(caps, s.c.cap())
	}
	return caps, misses
}

// perSecond is the throughput, in queries per second, of batches of these sizes.
func (s *loaded) perSecond(sizes ...int) float64 {
	queries, nanos := 0.0, 0.0
	for _, n := range sizes {
		queries += float64(n)
		nanos += s.cost(n)
	}
	return queries / nanos * 1e9
}

func median(of []int) int {
	of = slices.Clone(of)
	slices.Sort(of)
	return of[len(of)/2]
}

// model is the cost of batches, in nanoseconds.
type model struct{ fixed, each float64 }

var models = []model{
	{2e6, 10e3},   // a linear model in an interpreted language
	{1.5e6, 30e3}, //
	{100e3, 20e3}, //
	{0, 100e3},    //
	{50e3, 5e6},   // a kernel SVM
}

// settings calls f for both adaptive controllers, and pipelines of one and of two batches.
func settings(t *testing.T, f func(t *testing.T, p Policy, depth int)) {
	for _, p := range []Policy{AIMD, Quantile} {
		for _, depth := range []int{1, 2} {
			t.Run(fmt.Sprintf("%v, depth %d", p, depth), func(t *testing.T) { f(t, p, depth) })
		}
	}
}

func adaptive(p Policy, objective float64) Batching {
	return Batching{Policy: p, MaxBatch: MaxMaxBatch, ObjectiveNanos: int64(objective)}
}

// TestCapsSettle: the caps settle at the best fixed cap. For Quantile that is the largest batch whose P99 is within the
// objective. AIMD holds between 90 % and 100 % of the objective, so it is judged by throughput.
func TestCapsSettle(t *testing.T) {
	settings(t, func(t *testing.T, p Policy, depth int) {
		for _, m := range models {
			for _, objective := range []float64{5e6, 10e6, 20e6, 50e6} {
				for _, sigma := range []float64{0, 0.05} {
					s := newLoaded(adaptive(p, objective), depth, m)
					s.noise = lognormal(1, sigma)
					s.run(300, objective)
					caps, misses := s.run(4000, objective)
					best := s.best(objective / math.Exp(2.326*sigma))
					name := fmt.Sprintf("%.0f + %.0f n ns, objective %.0f ms, scatter %.2f: median cap %d of %d, from %d to %d, %d misses",
						m.fixed, m.each, objective/1e6, sigma, median(caps), best, slices.Min(caps), slices.Max(caps), misses)
					t.Log(name)
					if !s.c.settled() {
						t.Errorf("not settled: %s", name)
					}
					if s.cost(1)*math.Exp(2.326*sigma) > objective {
						if slices.Max(caps) > 1 {
							t.Errorf("a single query misses the objective, so the cap must be 1: %s", name)
						}
						continue
					}
					switch p {
					case Quantile:
						low, high := int(0.9*float64(best)), int(math.Ceil(1.02*float64(best)))
						if got := median(caps); got < low || got > high {
							t.Errorf("cap: %s", name)
						}
						if misses > 60 {
							t.Errorf("more than 1.5 %% misses: %s", name)
						}
					case AIMD:
						if share := s.perSecond(caps...) / s.perSecond(best); share < 0.9 {
							t.Errorf("%.3f of the best throughput: %s", share, name)
						}
						if float64(median(caps)) > 1.02*float64(s.best(objective)) {
							t.Errorf("cap: %s", name)
						}
						if sigma == 0 && misses > 40 {
							t.Errorf("more than 1 %% misses: %s", name)
						}
					}
				}
			}
		}
	})
}

// TestFastStart: going from one query to hundreds takes about as many batches as there are doublings, and where times
// do not scatter none of them misses on the way. The comment of aimd has the proof.
func TestFastStart(t *testing.T) {
	settings(t, func(t *testing.T, p Policy, depth int) {
		for _, m := range models[:4] {
			for _, fits := range []int{100, 500, 5000} {
				objective := m.fixed + m.each*float64(fits)
				if m.fixed > objective/2 {
					continue // a batch of n proves little about 2n there
				}
				s := newLoaded(adaptive(p, objective), depth, m)
				batches, most := 0, (4+int(1.5*math.Log2(float64(fits))))*depth
				for s.cost(s.c.cap()) < 0.85*objective && batches < 10*most {
					if s.batch(1) > objective {
						t.Fatalf("%+v: a batch missed on the way to %d", m, fits)
					}
					batches++
				}
				if batches > most {
					t.Errorf("%+v: %d batches to grow from 1 to %d, of %d that fit", m, batches, s.c.cap(), fits)
				}
				if _, misses := s.run(200, objective); misses > 0 {
					t.Errorf("%+v: %d of 200 batches of up to %d missed", m, misses, fits)
				}
			}
		}
	})
}

// TestSpeedChange: a core is throttled to half its speed and back, then to a fifth and back.
func TestSpeedChange(t *testing.T) {
	const objective = 20e6
	settings(t, func(t *testing.T, p Policy, depth int) {
		for _, m := range models[:4] {
			for seed := range uint64(5) {
				s := newLoaded(adaptive(p, objective), depth, m)
				s.noise = lognormal(seed, 0.05)
				s.run(400, objective)
				for _, factor := range []float64{2, 1, 5, 1} {
					s.factor = factor
					s.run(60*depth, objective)
					best := float64(s.best(objective))
					caps, _ := s.run(20, objective)
					if got := float64(median(caps)); got < 0.7*best || got > 1.05*best {
						t.Errorf("%+v, seed %d, factor %.0f: caps %v after %d batches; the best is %.0f", m, seed, factor, caps, 60*depth, best)
					}
					s.run(400, objective)
				}
			}
		}
	})
}

// TestPauses: one batch that takes fifty times as long costs a tenth of the cap for a while; five in a row cost at most
// two fifths.
func TestPauses(t *testing.T) {
	const objective = 20e6
	settings(t, func(t *testing.T, p Policy, depth int) {
		for _, m := range models[:4] {
			for _, pauses := range []int{1, 5} {
				s := newLoaded(adaptive(p, objective), depth, m)
				s.noise = lognormal(3, 0.02)
				s.run(500, objective)
				before := float64(s.c.cap())
				least := s.c.cap()
				for range pauses {
					s.batch(50)
					least = min(least, s.c.cap())
				}
				caps, _ := s.run(40*depth, objective)
				least = min(least, slices.Min(caps))
				after, _ := s.run(60*depth, objective)
				if bound := 0.98 * math.Pow(0.9, float64(pauses)); float64(least) < bound*before-5 {
					t.Errorf("%+v, %d pauses: the cap fell from %.0f to %d", m, pauses, before, least)
				}
				if got := float64(median(after)); got < 0.9*before {
					t.Errorf("%+v, %d pauses: the cap was %.0f and is %.0f a hundred batches later", m, pauses, before, got)
				}
			}
		}
	})
}

// TestFreshReplicaIsCold: the first batch of a replica takes a second.
func TestFreshReplicaIsCold(t *testing.T) {
	settings(t, func(t *testing.T, p Policy, depth int) {
		s := newLoaded(adaptive(p, 20e6), depth, models[0])
		s.batch(500)
		s.run(40*depth, 20e6)
		if got, best := s.c.cap(), s.best(20e6); float64(got) < 0.8*float64(best) {
			t.Errorf("the cap is %d after %d batches, the best is %d", got, 40*depth, best)
		}
	})
}

func TestNewController(t *testing.T) {
	for _, c := range []struct {
		b    Batching
		want controller
	}{
		{Batching{Policy: AIMD, MaxBatch: 9, ObjectiveNanos: 1, Pad: true}, fixedCap(9)},
		{Batching{Policy: None, MaxBatch: 9, ObjectiveNanos: 1, Pad: true}, fixedCap(9)},
		{Batching{Policy: Quantile, MaxBatch: 9, ObjectiveNanos: 1, Pad: true}, fixedCap(9)},
		{Batching{Policy: Fixed, MaxBatch: 9, ObjectiveNanos: 1}, fixedCap(9)},
		{Batching{Policy: None, MaxBatch: 9, ObjectiveNanos: 1}, fixedCap(1)},
		{Batching{Policy: AIMD, MaxBatch: 9}, fixedCap(9)},
		{Batching{Policy: Quantile, MaxBatch: 9}, fixedCap(9)},
	} {
		got := newController(c.b)
		got.observe(9, true, 1e9)
		if got != c.want || !got.settled() {
			t.Errorf("%+v: %v", c.b, got)
		}
	}
	if _, ok := newController(adaptive(AIMD, 1)).(*aimd); !ok {
		t.Error("newController did not make an AIMD controller")
	}
	if _, ok := newController(adaptive(Quantile, 1)).(*quantile); !ok {
		t.Error("newController did not make a Quantile controller")
	}
	if Quantile.String() != "quantile" {
		t.Error(Quantile)
	}
}

// TestCarryOver: a new controller starts from what is known of its replica.
func TestCarryOver(t *testing.T) {
	var known profile
	feed(&known, 0, 100, 50, func(n int) int64 { return 1e6 + 1e5*int64(n) }) // 90 fit into 10 ms
	trained := func(p Policy) controller {
		s := newLoaded(adaptive(p, 10e6), 1, model{1e6, 1e5})
		s.run(100, 10e6)
		return s.c
	}
	for _, c := range []struct {
		name       string
		before     controller
		p          *profile
		after      Batching
		least, top int
	}{
		{"unknown replica", fixedCap(50), &profile{}, adaptive(AIMD, 10e6), 1, 1},
		{"known profile", fixedCap(50), &known, adaptive(AIMD, 10e6), 88, 91},
		{"known profile, for Quantile", fixedCap(50), &known, adaptive(Quantile, 10e6), 88, 91},
		{"cap found by AIMD", trained(AIMD), &profile{}, adaptive(Quantile, 10e6), 80, 90},
		{"cap found by Quantile", trained(Quantile), &profile{}, adaptive(AIMD, 10e6), 88, 90},
		{"smaller maximum", trained(AIMD), &known, Batching{Policy: AIMD, MaxBatch: 7, ObjectiveNanos: 10e6}, 7, 7},
		{"smaller maximum, for Quantile", trained(Quantile), &known, Batching{Policy: Quantile, MaxBatch: 7, ObjectiveNanos: 10e6}, 7, 7},
		{"smaller objective: three quarters at once", trained(Quantile), &known, adaptive(Quantile, 5e6), 66, 68},
		{"larger objective: twice the last full batch", trained(Quantile), &known, adaptive(Quantile, 100e6), 170, 180},
		{"policy none", trained(Quantile), &known, Batching{Policy: None}, 1, 1},
	} {
		now := newController(c.after)
		carryOver(c.before, now, c.p)
		if got := now.cap(); got < c.least || got > c.top {
			t.Errorf("%s: the cap is %d, want %d to %d", c.name, got, c.least, c.top)
		}
	}
}

// TestCapsStayInBounds: whatever is observed, a cap is between 1 and MaxBatch, and the same observations lead to the
// same caps.
func TestCapsStayInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Batching {
			return Batching{
				Policy:         rapid.SampledFrom([]Policy{AIMD, Quantile}).Draw(t, "policy"),
				MaxBatch:       rapid.SampledFrom([]int{1, 2, 7, 100, MaxMaxBatch}).Draw(t, "max"),
				ObjectiveNanos: rapid.SampledFrom([]int64{1, 1000, 10e6, math.MaxInt64}).Draw(t, "objective"),
			}
		}
		b := draw()
		c, twin := newController(b), newController(b)
		for range rapid.IntRange(1, 400).Draw(t, "batches") {
			n := rapid.OneOf(rapid.Just(c.cap()), rapid.IntRange(1, c.cap()), rapid.IntRange(-3, 3*MaxMaxBatch), rapid.Just(math.MaxInt)).Draw(t, "n")
			nanos := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, 50e6), rapid.Int64(), rapid.Just(int64(math.MaxInt64))).Draw(t, "nanos")
			full := rapid.Bool().Draw(t, "full")
			c.observe(n, full, nanos)
			twin.observe(n, full, nanos)
			if rapid.IntRange(0, 99).Draw(t, "change") == 0 {
				b = draw()
				next, nextTwin := newController(b), newController(b)
				carryOver(c, next, &profile{})
				carryOver(twin, nextTwin, &profile{})
				c, twin = next, nextTwin
			}
			if c.cap() < 1 || c.cap() > b.MaxBatch {
				t.Fatalf("the cap is %d, want 1 to %d", c.cap(), b.MaxBatch)
			}
			if c.cap() != twin.cap() || c.settled() != twin.settled() {
				t.Fatalf("the same observations lead to caps %d and %d", c.cap(), twin.cap())
			}
		}
	})
}

// BenchmarkController measures what one batch costs its replica's controller, under full load and with settled caps.
func BenchmarkController(b *testing.B) {
	for _, p := range []Policy{AIMD, Quantile} {
		for _, sigma := range []float64{0, 0.05, 0.5} {
			b.Run(fmt.Sprintf("%v, scatter %.2f", p, sigma), func(b *testing.B) {
				s := newLoaded(adaptive(p, 20e6), 2, models[0])
				s.noise = lognormal(1, sigma)
				var noise [1024]float64
				for i := range noise {
					noise[i] = s.noise()
				}
				i := 0
				s.noise = func() float64 { i++; return noise[i%len(noise)] }
				s.run(1000, 20e6)
				b.ReportAllocs()
				for b.Loop() {
					s.batch(1)
				}
			})
		}
	}
}
