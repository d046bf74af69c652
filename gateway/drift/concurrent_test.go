package drift

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// With concurrent Observe and Report, every query is counted once, and none in part.
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
				in, out := (world{}).query(r)
				watch.Observe(0, in, out)
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
		}
	})
	observing.Wait()
	close(done)
	reporting.Wait()
	if got := watch.Report().Served; got != goroutines*each {
		t.Errorf("%d queries are counted, want %d", got, goroutines*each)
	}
}

func BenchmarkObserve(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 1000))
	in, out := (world{}).query(r)
	for b.Loop() {
		observe(watch, in, out)
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
