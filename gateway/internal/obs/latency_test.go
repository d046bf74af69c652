package obs

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// Every latency lies between its bucket's bounds, and buckets are contiguous.
func TestBucketsAreContiguous(t *testing.T) {
	for _, layout := range []struct{ subBits, octaves int }{{endpointSubBits, endpointOctaves}, {latencySubBits, latencyOctaves}} {
		last := layout.octaves<<layout.subBits + 1
		rapid.Check(t, func(t *rapid.T) {
			nanos := rapid.OneOf(rapid.Int64Range(0, 1e6), rapid.Int64Range(0, 1e11), rapid.Int64()).Draw(t, "nanos")
			b := bucketOf(nanos, layout.subBits, layout.octaves)
			at := math.Max(float64(nanos), 0)
			if b < 0 || b > last || at < lowerNanos(b, layout.subBits) || b < last && at >= lowerNanos(b+1, layout.subBits) {
				t.Fatalf("%d ns are in bucket %d of %d: from %g", nanos, b, last, lowerNanos(b, layout.subBits))
			}
		})
		for b := 1; b < last; b++ {
			lower, upper := lowerNanos(b, layout.subBits), lowerNanos(b+1, layout.subBits)
			if width := upper/lower - 1; width <= 0 || width > 1/float64(int(1)<<layout.subBits)+1e-9 {
				t.Errorf("bucket %d from %g to %g ns", b, lower, upper)
			}
			if got := bucketOf(int64(math.Ceil(lower)), layout.subBits, layout.octaves); got != b {
				t.Errorf("%g ns are in bucket %d, not in %d", lower, got, b)
			}
		}
	}
}

// samples returns realistic latencies in nanoseconds: a body and a long tail.
func samples(seed uint64, n int) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	scale := math.Exp(r.Float64()*12) * 2e3 // 2 µs to 325 ms
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Floor(scale * math.Exp(0.7*r.NormFloat64()))
	}
	return out
}

func exact(sorted []float64, q float64) float64 {
	return sorted[min(int(math.Ceil(q*float64(len(sorted)))), len(sorted))-1]
}

var quantiles = []float64{0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1}

func TestLatencyQuantilesAgainstSortedSamples(t *testing.T) {
	for seed := range uint64(60) {
		all := samples(seed, 20_000)
		var l Latency
		for _, v := range all {
			l.Observe(int64(v))
		}
		slices.Sort(all)
		for _, q := range quantiles {
			want := exact(all, q)
			if want < 1000 {
				continue // everything below the first bound is one bucket
			}
			if got := l.Quantile(q); math.Abs(got-want) > 0.07*want {
				t.Errorf("seed %d: quantile %g is %g ns, want %g", seed, q, got, want)
			}
		}
		if l.Count() != uint64(len(all)) {
			t.Errorf("%d counted, want %d", l.Count(), len(all))
		}
		l.Reset()
		if l.Count() != 0 || l.Quantile(0.5) != 0 {
			t.Errorf("after a reset: count %d, median %g", l.Count(), l.Quantile(0.5))
		}
	}
}

func TestEndpointQuantilesAgainstSortedSamples(t *testing.T) {
	for seed := range uint64(60) {
		all := samples(seed, 20_000)
		var e Endpoint
		for _, v := range all {
			e.Observe(api.OK, 1, api.Nanos(v))
		}
		slices.Sort(all)
		r := e.Read()
		for _, q := range quantiles[:len(quantiles)-2] { // the highest quantiles depend on a few samples, anywhere in their bucket
			want := exact(all, q) / 1e9
			if want < 1e-6 {
				continue
			}
			if got := r.Quantile(q); math.Abs(got-want) > 0.1*want {
				t.Errorf("seed %d: quantile %g is %g s, want %g", seed, q, got, want)
			}
		}
	}
}

func TestQuantileAtTheEdges(t *testing.T) {
	var l Latency
	if got := l.Quantile(0.5); got != 0 {
		t.Errorf("quantile of an empty histogram: %g", got)
	}
	l.Observe(-5)
	l.Observe(math.MinInt64)
	if got := l.Quantile(1); got != 1000 {
		t.Errorf("maximum of two negative latencies: %g ns, want the first bucket's bound", got)
	}
	l.Reset()
	l.Observe(math.MaxInt64)
	l.Observe(int64(time.Hour))
	for _, q := range []float64{-1, 0, 0.5, 1, 2} {
		if got := l.Quantile(q); got != float64(uint64(1)<<latencyOctaves)*1000 {
			t.Errorf("quantile %g of two hours: %g ns, want the last bound", q, got)
		}
	}
	if got := l.Quantile(math.NaN()); got != 0 {
		t.Errorf("quantile NaN: %g", got)
	}
	var e Endpoint
	if r := e.Read(); r.Count != 0 || r.Quantile(0.99) != 0 || r.Buckets != nil {
		t.Errorf("an endpoint without requests: %+v", r)
	}
	e.CountMalformed(api.InvalidArgument)
	if r := e.Read(); r.Codes[api.InvalidArgument] != 1 || r.Count != 0 || r.Quantile(0.5) != 0 {
		t.Errorf("an endpoint that refused one request: %+v", r)
	}
}

func TestSince(t *testing.T) {
	var e Endpoint
	for range 100 {
		e.Observe(api.OK, 2, 1e6)
	}
	earlier := e.Read()
	for range 10 {
		e.Observe(api.Overloaded, 3, 20e6)
	}
	r := e.Read().Since(earlier)
	if r.Count != 10 || r.Queries != 30 || r.Codes[api.OK] != 0 || r.Codes[api.Overloaded] != 10 || math.Abs(r.Seconds-0.2) > 1e-9 {
		t.Errorf("Since: %+v", r)
	}
	if p50 := r.Quantile(0.5); p50 < 0.016 || p50 > 0.025 {
		t.Errorf("the median of Since is %g s, want 20 ms", p50)
	}
	if n := r.Buckets[float64(1<<14)/1e6]; n != 0 || r.Buckets[float64(1<<15)/1e6] != 10 {
		t.Errorf("the buckets of Since: %v", r.Buckets)
	}
	if again := e.Read().Since(e.Read()); again.Count != 0 || again.Queries != 0 || again.Buckets != nil {
		t.Errorf("Since the same reading: %+v", again)
	}
	// A new endpoint of the same name has lower counts than the previous one.
	var fresh Endpoint
	fresh.Observe(api.OK, 1, 5e6)
	if r := fresh.Read().Since(earlier); r.Count != 1 || r.Queries != 1 || r.Codes[api.OK] != 1 {
		t.Errorf("Since another endpoint's reading: %+v", r)
	}
}

// Concurrent first requests are all counted.
func TestConcurrentFirstRequests(t *testing.T) {
	for range 200 {
		var e Endpoint
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { e.Observe(api.OK, 1, 1e6) })
		}
		wg.Wait()
		if r := e.Read(); r.Count != 4 {
			t.Fatalf("%d counted, want 4", r.Count)
		}
	}
}

func TestLatencyCountsAll(t *testing.T) {
	var l Latency
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				l.Observe(int64(g*1000 + i))
			}
		})
	}
	wg.Wait()
	if l.Count() != 8000 {
		t.Errorf("%d counted, want 8000", l.Count())
	}
}

func BenchmarkLatencyObserve(b *testing.B) {
	var l Latency
	nanos := int64(1)
	for b.Loop() {
		nanos = nanos*1664525 + 1013904223&0xffffff
		l.Observe(nanos & 0xffffff)
	}
}

func BenchmarkEndpointObserve(b *testing.B) {
	var e Endpoint
	for b.Loop() {
		e.Observe(api.OK, 1, 1e6)
	}
}
