package driver

import "testing"

func TestHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Count() != 0 {
		t.Error("an empty histogram has values")
	}
	for v := range int64(1000) {
		h.observe(v + 1)
	}
	if h.Count() != 1000 || h.Sum() != 500500 {
		t.Errorf("count %d, sum %d", h.Count(), h.Sum())
	}
	for _, c := range []struct {
		q    float64
		want int64
	}{{0, 1}, {0.5, 512}, {0.99, 1024}, {1, 1024}} {
		if got := h.Quantile(c.q); got != c.want {
			t.Errorf("quantile %v is %d, want %d", c.q, got, c.want)
		}
	}
	last, n := int64(0), uint64(0)
	h.Buckets(func(bound int64, count uint64) bool {
		if bound <= last || count == 0 {
			t.Errorf("bucket %d after %d with %d values", bound, last, count)
		}
		last, n = bound, n+count
		return bound < 100
	})
	if last != 112 || n != 112 {
		t.Errorf("stopped at %d after %d values", last, n)
	}
}
