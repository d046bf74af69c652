package drift

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// With concurrent Observe and Report, no query is counted twice or in part. How many are skipped is up to chance.
func TestConcurrentObserveAndReport(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := world{}.baseline(r, 200)
	watch := NewWatch(b)
	const goroutines, each = 8, 2000
	var observing, reporting sync.WaitGroup
	done := make(chan struct{})
	for g := range goroutines {
		observing.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 4))
			for range each {
				watch.Observe((world{}).query(r))
			}
		})
	}
	reporting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			served := watch.served()
			first := 0
			for i, f := range b.features {
				sum := 0
				for _, n := range served.bins[first : first+len(f.validated)] {
					sum += int(n)
				}
				if first += len(f.validated); sum != served.queries {
					t.Errorf("feature %d counted %d of %d queries", i, sum, served.queries)
					return
				}
			}
			if got := watch.Report(); got.Served > goroutines*each || got.Served > 2*windowQueries {
				t.Errorf("%d served", got.Served)
			}
		}
	})
	observing.Wait()
	close(done)
	reporting.Wait()
	// The lock is free now, so this query is counted.
	before := watch.Report().Served
	watch.Observe((world{}).query(r))
	if after := watch.Report().Served; after == before {
		t.Errorf("%d served both before and after another query", after)
	}
}

// A query that arrives while another is being counted is skipped immediately.
func TestObserveNeverWaits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 100))
	watch.mu.Lock()
	watch.Observe((world{}).query(r)) // would hang
	watch.mu.Unlock()
	watch.Observe((world{}).query(r))
	if got := watch.Report(); got.Served != 1 {
		t.Errorf("%d served, want 1", got.Served)
	}
}

func BenchmarkObserve(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 1000))
	in, out := (world{}).query(r)
	for b.Loop() {
		watch.Observe(in, out)
	}
}

func BenchmarkReport(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 1000))
	(world{shift: 1}).serve(r, watch, 1000)
	for b.Loop() {
		watch.Report()
	}
}
