package scheduler

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

func TestBuckets(t *testing.T) {
	if BucketBound(Buckets-1) != 1<<42 {
		t.Errorf("the scale ends at %d", BucketBound(Buckets-1))
	}
	for i := range Buckets {
		bound := BucketBound(i)
		if Bucket(bound) != i || i+1 < Buckets && Bucket(bound+1) != i+1 {
			t.Fatalf("bucket %d ends at %d, but %d and %d are in %d and %d", i, bound, bound, bound+1, Bucket(bound), Bucket(bound+1))
		}
		if i > 4 && float64(bound) > 1.251*float64(BucketBound(i-1)) {
			t.Errorf("bucket %d is too wide: (%d, %d]", i, BucketBound(i-1), bound)
		}
	}
	for v, want := range map[int64]int{math.MinInt64: 0, -1: 0, 0: 0, 1: 0, math.MaxInt64: Buckets - 1} {
		if got := Bucket(v); got != want {
			t.Errorf("%d is in bucket %d, want %d", v, got, want)
		}
	}
}

// feed gives the profile batches of random sizes up to most, one after the other, that take cost(n).
func feed(p *profile, now api.Nanos, batches, most int, cost func(n int) int64) api.Nanos {
	rng := rand.New(rand.NewPCG(1, 2))
	for range batches {
		n := 1 + rng.IntN(most)
		now += api.Nanos(cost(n))
		p.observe(now, n, cost(n))
	}
	return now
}

func near(got, want, by float64) bool { return math.Abs(got-want) <= by*want }

func TestProfileFindsTheLine(t *testing.T) {
	var p profile
	if p.known() || p.predict(100) != 0 {
		t.Error("an empty profile is known, or predicts a time")
	}
	cost := func(n int) int64 { return 2_000_000 + 10_000*int64(n) }
	now := feed(&p, 0, knownSamples, 64, cost)
	if !p.known() || !near(float64(p.predict(1)), 2.01e6, 0.01) || !near(float64(p.predict(1000)), 12e6, 0.01) {
		t.Errorf("predicts %d and %d", p.predict(1), p.predict(1000))
	}
	for nanos, want := range map[int64]int{1_000_000: 0, 2_000_000: 0, 2_650_000: 64, 1e9: 100} {
		if got := p.within(nanos, 100); got < want-1 || got > want+1 {
			t.Errorf("%d fit into %d ns, want %d", got, nanos, want)
		}
	}

	// One pause of a second is not the model's doing.
	before := p.predict(32)
	p.observe(now, 32, 1e9)
	if after := p.predict(32); after > before*3/2 {
		t.Errorf("one outlier moves the prediction from %d to %d", before, after)
	}

	// A model that has become five times slower is recognized.
	feed(&p, now, 100, 64, func(n int) int64 { return 5 * cost(n) })
	if !near(float64(p.predict(32)), float64(5*cost(32)), 0.1) {
		t.Errorf("predicts %d after the change, want %d", p.predict(32), 5*cost(32))
	}
}

func TestProfileOfOneSize(t *testing.T) {
	// Batches of a single size say nothing about others.
	var p profile
	feed(&p, 0, 20, 1, func(int) int64 { return 1e6 })
	if !near(float64(p.predict(1)), 1e6, 0.001) || p.predict(1000) != p.predict(1) {
		t.Errorf("predicts %d and %d", p.predict(1), p.predict(1000))
	}
	// The slope that was learned is kept while only one size occurs.
	p = profile{}
	now := feed(&p, 0, 100, 50, func(n int) int64 { return 1e6 + 1e5*int64(n) })
	for range 500 {
		now += 6e6
		p.observe(now, 50, 6e6)
	}
	if !near(float64(p.predict(10)), 2e6, 0.1) {
		t.Errorf("predicts %d for 10, want 2 ms", p.predict(10))
	}
	// A cost without a fixed part.
	p = profile{}
	feed(&p, 0, 100, 50, func(n int) int64 { return max(1, 1e5*int64(n)-5e4) })
	if p.intercept != 0 || !near(p.slope, 1e5, 0.05) {
		t.Errorf("%f + %f n", p.intercept, p.slope)
	}
}

func TestProfileForgetsTheTail(t *testing.T) {
	var p profile
	now := feed(&p, 0, 200, 1, func(int) int64 { return 1e9 })
	if !near(float64(p.p99Nanos), 1e9, 0.25) {
		t.Errorf("p99 is %d", p.p99Nanos)
	}
	feed(&p, now, 20*histogramMemory, 1, func(int) int64 { return 1e6 })
	if !near(float64(p.p99Nanos), 1e6, 0.25) {
		t.Errorf("p99 is still %d", p.p99Nanos)
	}
}

func TestConfigBounds(t *testing.T) {
	c := DefaultConfig()
	if !c.Retry || c.Depth != DefaultDepth || c.MaxQueue != DefaultMaxQueue || c.Batching.MaxBatch != DefaultMaxBatch {
		t.Errorf("defaults %+v", c)
	}
	c = New(Config{Depth: 1000, MaxQueue: 1 << 30, TimeoutNanos: -1,
		Batching: Batching{MaxBatch: 1 << 20, HoldNanos: 1e12, ObjectiveNanos: -1}}).Config()
	if c.Depth != MaxDepth || c.MaxQueue != MaxMaxQueue || c.TimeoutNanos != 0 || c.Batching.MaxBatch != MaxMaxBatch ||
		c.Batching.HoldNanos != MaxHoldNanos || c.Batching.ObjectiveNanos != 0 {
		t.Errorf("bounds %+v", c)
	}
	for s, want := range map[string]string{AIMD.String(): "aimd", Fixed.String(): "fixed", None.String(): "none", Policy(9).String(): "unknown"} {
		if s != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

func TestConfigOf(t *testing.T) {
	spec := api.ModelSpec{Batching: api.BatchingSpec{Policy: api.BatchQuantile, Max: 64, Hold: time.Millisecond, Objective: time.Second, Pad: true}}.WithDefaults()
	c := ConfigOf(&spec)
	want := Batching{Policy: Quantile, MaxBatch: 64, MaxBatchBytes: int(spec.Batching.MaxBytes), HoldNanos: 1e6, ObjectiveNanos: 1e9, Pad: true}
	if c.Batching != want || c.MaxQueue != spec.Queue.Max || c.Retry != spec.Retries() {
		t.Errorf("got %+v, want %+v", c, want)
	}
	for policy, want := range map[string]Policy{api.BatchFixed: Fixed, api.BatchNone: None, "": AIMD} {
		spec.Batching.Policy = policy
		if got := ConfigOf(&spec).Batching.Policy; got != want {
			t.Errorf("policy %q is %s, want %s", policy, got, want)
		}
	}
}
