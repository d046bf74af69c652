package driver

import (
	"sync/atomic"

	"github.com/xebec-serving/xebec/scheduler"
)

// Histogram counts values on the scheduler's logarithmic scale ([scheduler.Bucket]): four buckets per power of two. One
// goroutine at a time writes (the holder of a lane's lock; but see observeShared), any number read. A reader may see a
// value in the sum that is not in the buckets yet.
type Histogram struct {
	counts [scheduler.Buckets]atomic.Uint64
	sum    atomic.Int64
}

// observe adds v. There is one writer, so plain loads and stores suffice instead of atomic additions.
func (h *Histogram) observe(v int64) {
	c := &h.counts[scheduler.Bucket(v)]
	c.Store(c.Load() + 1)
	h.sum.Store(h.sum.Load() + v)
}

// observeShared adds v to a histogram with several writers; all of them must use it.
func (h *Histogram) observeShared(v int64) {
	h.counts[scheduler.Bucket(v)].Add(1)
	h.sum.Add(v)
}

// Buckets calls yield for every bucket that is not empty, in ascending order, with its inclusive upper bound and its own
// count (not the cumulative one), until yield returns false.
func (h *Histogram) Buckets(yield func(bound int64, count uint64) bool) {
	for i := range h.counts {
		if n := h.counts[i].Load(); n > 0 && !yield(scheduler.BucketBound(i), n) {
			return
		}
	}
}

// Count is the number of values.
func (h *Histogram) Count() uint64 {
	n := uint64(0)
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// Sum is the sum of all values, in their own unit.
func (h *Histogram) Sum() int64 { return h.sum.Load() }

// Quantile is the upper bound of the bucket that holds the quantile q of all values so far, 0 when there are none.
func (h *Histogram) Quantile(q float64) int64 {
	n := h.Count()
	left := min(uint64(float64(n)*(1-q)), max(n, 1)-1) // values above the quantile
	seen := uint64(0)
	for i := len(h.counts) - 1; i >= 0; i-- {
		if seen += h.counts[i].Load(); seen > left {
			return scheduler.BucketBound(i)
		}
	}
	return 0
}
