package scheduler

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestQuantileIsSmall(t *testing.T) {
	if bytes := unsafe.Sizeof(quantile{}); bytes > 7<<10 {
		t.Errorf("a controller has %d bytes, want at most 7 KiB, because there are thousands of replicas", bytes)
	}
}

// loss is what a fitted line minimizes, divided by the number of samples that may lie above it.
func loss(w *window, l line) float64 {
	sum := 0.0
	for i := range w.count {
		r := w.nanos[i] - l.fixed - l.each*w.size[i]
		sum += max(0, r) - w.allowedAbove()/float64(w.count)*r
	}
	return sum
}

// TestFitIsBest: no line through two samples, through one sample and the origin, or level through one sample is better.
// The best line is one of these, because the loss is linear in between.
func TestFitIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		scale := rapid.SampledFrom([]float64{1, 1e3, 1e6, 1e15}).Draw(t, "scale")
		for range rapid.IntRange(2, 60).Draw(t, "samples") {
			w.add(rapid.IntRange(1, 100).Draw(t, "n"), scale*float64(rapid.IntRange(1, 1000).Draw(t, "nanos")))
		}
		l, found := w.fit(line{})
		if l.fixed < 0 || l.each < 0 {
			t.Fatalf("negative: %+v", l)
		}
		if !found {
			if l.fixed != 0 {
				t.Fatalf("a line without a slope that could be found has a fixed part: %+v", l)
			}
			return
		}
		got := loss(&w, l)
		best := math.Inf(1)
		try := func(other line) {
			if other.fixed >= 0 && other.each >= 0 {
				best = min(best, loss(&w, other))
			}
		}
		for i := range w.count {
			try(line{0, w.nanos[i] / w.size[i]})
			try(line{w.nanos[i], 0})
			for j := range i {
				if w.size[i] != w.size[j] {
					each := (w.nanos[i] - w.nanos[j]) / (w.size[i] - w.size[j])
					try(line{w.nanos[i] - each*w.size[i], each})
				}
			}
		}
		if got > best+1e-6*scale*1000*float64(w.count) {
			t.Fatalf("%+v has a loss of %g; the best line has %g", l, got, best)
		}
	})
}

// TestFitFindsTheP99 fits batches of mixed sizes.
func TestFitFindsTheP99(t *testing.T) {
	noise := lognormal(5, 0.1)
	rng := rand.New(rand.NewPCG(1, 1))
	var fixed, each []float64
	for range 200 {
		var w window
		for range windowSamples {
			n := 1 + rng.IntN(64)
			w.add(n, (1e6+5e4*float64(n))*noise())
		}
		l, _ := w.fit(line{})
		fixed, each = append(fixed, l.fixed), append(each, l.each)
	}
	slices.Sort(fixed)
	slices.Sort(each)
	p99 := math.Exp(2.326 * 0.1)
	if a, b := fixed[100], each[100]; !near(a, 1e6*p99, 0.05) || !near(b, 5e4*p99, 0.05) {
		t.Errorf("the median line is %.0f + %.0f n, want %.0f + %.0f n", a, b, 1e6*p99, 5e4*p99)
	}
}

// TestWindowKeepsRareSizes: the slope stays known under a steady load, but no sample stays forever.
func TestWindowKeepsRareSizes(t *testing.T) {
	var w window
	for n := range 20 {
		w.add(1+n, 1e6+1e4*float64(1+n))
	}
	for range 5000 {
		w.add(500, 6e6)
	}
	w.dropExpired()
	l, found := w.fit(line{})
	if !found || !near(l.fixed, 1e6, 0.01) || !near(l.each, 1e4, 0.01) {
		t.Errorf("%+v, found %v", l, found)
	}
	if w.count != windowSamples || w.perOctave[octave(1)] != 1 || w.perOctave[octave(10)] != 8 {
		t.Errorf("%d samples; by octaves %v", w.count, w.perOctave)
	}
	for range 5000 {
		w.add(500, 12e6)
	}
	w.dropExpired()
	held := l
	if l, found = w.fit(l); found || !near(l.at(500), 12e6, 0.001) || !near(l.fixed/l.each, held.fixed/held.each, 0.001) {
		t.Errorf("%+v, found %v: want the shape of %+v", l, found, held)
	}
	sum := 0
	for _, n := range w.perOctave {
		sum += n
	}
	if sum != w.count {
		t.Errorf("%d samples, %d in octaves", w.count, sum)
	}
}

// TestQuantileSteady: weeks of full batches of one size neither move the cap nor lose the shape of the line, even after
// all small batches have left the window.
func TestQuantileSteady(t *testing.T) {
	s := newLoaded(adaptive(Quantile, 20e6), 2, models[1])
	s.noise = lognormal(9, 0.05)
	s.run(300, 20e6)
	best := float64(s.best(20e6 / math.Exp(2.326*0.05)))
	for range 10 {
		caps, _ := s.run(5000, 20e6)
		if low, high := float64(slices.Min(caps)), float64(slices.Max(caps)); low < 0.9*best || high > 1.1*best {
			t.Errorf("caps from %.0f to %.0f, the best is %.0f", low, high, best)
		}
	}
}

// TestQuantilePausesOften: where one batch in fifty is a pause, the P99 is a pause and no cap can help. The cap suffers
// no more than from pauses of three times the median.
func TestQuantilePausesOften(t *testing.T) {
	for _, m := range models[:4] {
		s := newLoaded(adaptive(Quantile, 20e6), 2, m)
		s.noise = lognormal(4, 0.05)
		s.run(300, 20e6)
		least := float64(s.best(20e6 / 3 / math.Exp(2.326*0.05)))
		var caps []int
		for i := range 4000 {
			heldUp := 1.0
			if i%50 == 0 {
				heldUp = 50
			}
			s.batch(heldUp)
			caps = append(caps, s.c.cap())
		}
		if got := float64(median(caps)); got < 0.8*least {
			t.Errorf("%+v: the median cap is %.0f, want %.0f at least", m, got, least)
		}
	}
}

// TestQuantileTail: the P99 is kept within the objective for a model that takes three times as long for one batch in
// twenty.
func TestQuantileTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	s := newLoaded(adaptive(Quantile, 20e6), 1, models[2])
	s.noise = func() float64 {
		if rng.IntN(20) == 0 {
			return 3
		}
		return 1
	}
	s.run(1000, 20e6)
	_, misses := s.run(4000, 20e6)
	if best := s.best(20e6 / 3); misses > 60 || float64(s.c.cap()) < 0.9*float64(best) {
		t.Errorf("%d of 4000 batches missed; the cap is %d, the best is %d", misses, s.c.cap(), best)
	}
}

// TestQuantileLowLoad: batches that the cap did not limit raise it only as far as the sizes seen allow, and lower it
// when the replica becomes slower.
func TestQuantileLowLoad(t *testing.T) {
	s := newLoaded(adaptive(Quantile, 20e6), 1, models[1])
	s.run(6, 20e6)
	before := s.c.cap()
	for i := range 500 {
		n := 1 + i%8
		s.c.observe(n, false, int64(s.cost(n)))
	}
	if got := s.c.cap(); got > 2*before {
		t.Errorf("the cap went from %d to %d although no batch was full", before, got)
	}
	s.run(100, 20e6)
	s.factor = 2
	for i := range 100 {
		n := 1 + i%8
		s.c.observe(n, false, int64(s.cost(n)))
	}
	if got, best := float64(s.c.cap()), float64(s.best(20e6)); got > 1.1*best || got < 0.7*best {
		t.Errorf("the cap is %.0f on a replica of half the speed, the best is %.0f", got, best)
	}
}

// TestQuantileTakesOverCap: sizes up to a cap found by another controller count as seen.
func TestQuantileTakesOverCap(t *testing.T) {
	before, now := newController(adaptive(AIMD, 10e6)).(*aimd), newController(adaptive(Quantile, 10e6))
	before.size = 80
	carryOver(before, now, &profile{})
	for i := range 2 * fitEvery {
		n := 10 + 4*i
		now.observe(n, false, 1e6+1e5*int64(n))
	}
	if got := now.cap(); got != 90 {
		t.Errorf("the cap is %d; 90 fit, and 80 were seen", got)
	}
}

// TestQuantilePausesBeyondObjective: where one batch in twenty is held up for longer than the objective, no cap keeps
// the P99 within it. Batches of one would not either, and would serve next to nothing.
func TestQuantilePausesBeyondObjective(t *testing.T) {
	c := newQuantile(Batching{MaxBatch: 4096, ObjectiveNanos: 10e6})
	for i := range 4000 {
		n := c.cap()
		nanos := int64(4e6) + int64(n)*20e3
		if i%20 == 7 {
			nanos += 8e6
		}
		c.observe(n, true, nanos)
	}
	if got := c.cap(); got < 100 || got > 320 {
		t.Errorf("the cap is %d, want between 100 and the 300 whose median is within the objective", got)
	}
}
