package scheduler

import (
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func TestAPriorIsForgottenWithEightBatches(t *testing.T) {
	prior := Prior{InterceptNanos: 2e6, SlopeNanos: 1e5, Batch: 8}
	var p profile
	p.begin(prior)
	if p.known() || !p.presumed() || p.predict(1) != 2_100_000 || p.predict(64) != 8_400_000 {
		t.Fatalf("at first: known %v, presumed %v, a batch of 1 takes %d, one of 64 %d", p.known(), p.presumed(), p.predict(1), p.predict(64))
	}
	// The model is now five times slower, and its batches have several sizes.
	cost := func(n int) int64 { return 5 * (2_000_000 + 100_000*int64(n)) }
	now := api.Nanos(0)
	off := func() float64 { return math.Abs(float64(p.predict(8))/float64(cost(8)) - 1) }
	before := off()
	for i, n := range []int{1, 8, 4, 12, 2, 6, 10, 3} {
		now += api.Nanos(cost(n))
		p.observe(now, n, cost(n))
		switch i {
		case 0:
			if off() > 0.7*before {
				t.Errorf("after the first batch the prediction is wrong by %.2f, and by %.2f before it", off(), before)
			}
		case 3:
			if off() > 0.15 {
				t.Errorf("after four batches the prediction is wrong by %.2f", off())
			}
		}
	}
	if p.priorWeight != 0 || off() > 1e-6 {
		t.Errorf("after eight batches %.4f of the prior are left, and the prediction is wrong by %.3g", p.priorWeight, off())
	}
	if p.known() || !p.presumed() {
		t.Error("eight batches make a profile known, or end that it can be planned with")
	}
	feed(&p, now, knownSamples-8, 16, cost)
	if !p.known() || p.presumed() {
		t.Error("a profile of sixteen batches is not known, or still presumed")
	}
}

func TestAPriorSaysNothingImpossible(t *testing.T) {
	for _, bad := range []Prior{
		{}, {Batch: 4}, {InterceptNanos: math.NaN(), SlopeNanos: 1}, {InterceptNanos: -1, SlopeNanos: 2}, {InterceptNanos: math.Inf(1)}, {SlopeNanos: 1, Batch: math.Inf(1)}, {SlopeNanos: 1, Batch: math.NaN()},
	} {
		m := New(Config{})
		m.SetPrior(bad)
		m.ReplicaReady(1, 1, 0)
		var s Snapshot
		if m.Snapshot(&s); s.Replicas[0].Presumed || s.Replicas[0].InterceptNanos != 0 || s.Replicas[0].SlopeNanos != 0 {
			t.Errorf("%+v is taken for a profile: %+v", bad, s.Replicas[0])
		}
	}
}

// TestAPriorIsShownAndRefusesNothing: it is for planning. A query that could not meet its deadline by the prior is accepted.
func TestAPriorIsShownAndRefusesNothing(t *testing.T) {
	m := New(Config{Batching: Batching{Policy: Fixed, MaxBatch: 4}})
	f := m.AddFunction(1)
	m.ReplicaReady(1, 1, 0)
	m.SetPrior(Prior{InterceptNanos: 1e9, SlopeNanos: 1e6, Batch: 2}) // it also applies to a replica that has evaluated nothing
	m.ReplicaReady(2, 2, 0)
	var s Snapshot
	m.Snapshot(&s)
	for _, r := range s.Replicas {
		if !r.Presumed || r.Samples != 0 || r.InterceptNanos != 1e9 || r.SlopeNanos != 1e6 {
			t.Errorf("the prior is not in %+v", r)
		}
	}
	for i := range 20 {
		it := &Item{}
		it.Query = api.Query{ID: uint64(i + 1), Function: f, Arrived: 3, Deadline: 3 + 50e6, Expires: 3 + 50e6}
		m.Arrive(3, it)
	}
	m.Snapshot(&s)
	if n := s.Counters.RefusedEarly + s.Counters.PassedOver; n > 0 || s.Held != 20 {
		t.Errorf("%d of 20 queries are refused because of a prior, %d are held", n, s.Held)
	}
}
