package replay

import (
	"math"
	"math/bits"
)

// latencies is a histogram of fixed size. There are eight buckets per power of two, so a quantile is off by 6 % at
// most.
type latencies struct {
	n       uint64
	buckets [64 * 8]uint64
}

func (l *latencies) add(micros int64) {
	l.n++
	l.buckets[bucketOf(uint64(max(micros, 0)))]++
}

func bucketOf(micros uint64) int {
	if micros < 8 {
		return int(micros)
	}
	e := bits.Len64(micros) - 4
	return 8*e + int(micros>>e)
}

// middleOf is the middle of a bucket in microseconds.
func middleOf(bucket int) float64 {
	if bucket < 16 {
		return float64(bucket)
	}
	e := bucket/8 - 1
	return math.Ldexp(float64(bucket-8*e)+0.5, e)
}

// quantileMillis is 0 if no latency was added.
func (l *latencies) quantileMillis(q float64) float64 {
	rank, seen := uint64(math.Ceil(q*float64(l.n))), uint64(0)
	for b, n := range l.buckets {
		if seen += n; seen >= rank && seen > 0 {
			return middleOf(b) / 1e3
		}
	}
	return 0
}
