package obs

import (
	"math/bits"
	"sync/atomic"
)

const (
	// Sixteen buckets an octave, from 1 µs to 2^26 µs (67 s): one is at most a sixteenth of its lower bound wide.
	latencySubBits = 4
	latencyOctaves = 26
	latencyBuckets = latencyOctaves<<latencySubBits + 2
)

// Latency is a histogram of latencies that many goroutines add to: linear within an octave, logarithmic over all (Tene's HdrHistogram
// has the same layout). Percentiles are off by at most 6.25 %, between 1 µs and 67 s. It takes 3.3 KiB. The zero value is empty.
type Latency struct {
	buckets [latencyBuckets]atomic.Uint64
}

// Observe takes in one latency; a negative one counts as 0.
func (l *Latency) Observe(nanos int64) {
	l.buckets[bucketOf(nanos, latencySubBits, latencyOctaves)].Add(1)
}

// Count is how many latencies were observed since the last Reset.
func (l *Latency) Count() uint64 {
	n := uint64(0)
	for i := range l.buckets {
		n += l.buckets[i].Load()
	}
	return n
}

// Quantile is the latency in nanoseconds below which the part q (from 0 to 1) of those observed lies, 0 when there were none.
func (l *Latency) Quantile(q float64) float64 {
	var counts [latencyBuckets]uint64
	n := uint64(0)
	for i := range l.buckets {
		counts[i] = l.buckets[i].Load()
		n += counts[i]
	}
	return quantile(counts[:], n, q, latencySubBits)
}

// Histogram has cumulative counts at bounds in seconds, which ascend, right to a sixteenth; its sum is for the caller to know.
func (l *Latency) Histogram(bounds []float64) Histogram {
	h := Histogram{Buckets: make(map[float64]uint64, len(bounds))}
	b := 0
	for i := range l.buckets {
		for b < len(bounds) && lowerNanos(i, latencySubBits) >= bounds[b]*1e9 {
			h.Buckets[bounds[b]] = h.Count
			b++
		}
		h.Count += l.buckets[i].Load()
	}
	for ; b < len(bounds); b++ {
		h.Buckets[bounds[b]] = h.Count
	}
	return h
}

// Reset forgets everything. Of what is observed at the same time some may be forgotten too.
func (l *Latency) Reset() {
	for i := range l.buckets {
		l.buckets[i].Store(0)
	}
}

// bucketOf is the bucket of a latency, where each octave of microseconds has 1<<subBits buckets of equal width: bucket 0 is below
// 1 µs, and the last one, of octaves<<subBits + 2, everything from 1<<octaves µs on.
func bucketOf(nanos int64, subBits, octaves int) int {
	const (
		unitBits = 4 // counted in sixteenths of a microsecond, so that the octaves' bounds are whole, and the finest buckets too
		most     = 1 << 50
	)
	units := uint64(min(max(nanos, 0), most)) << unitBits / 1000
	octave := bits.Len64(units) - 1 - unitBits
	switch {
	case octave < 0:
		return 0
	case octave >= octaves:
		return octaves<<subBits + 1
	}
	sub := int(units>>(octave+unitBits-subBits)) & (1<<subBits - 1)
	return octave<<subBits + sub + 1
}

// lowerNanos is the least latency in a bucket.
func lowerNanos(bucket, subBits int) float64 {
	if bucket == 0 {
		return 0
	}
	bucket--
	octave, sub := bucket>>subBits, bucket&(1<<subBits-1)
	return 1000 * float64(uint64(1)<<octave) * (1 + float64(sub)/float64(int(1)<<subBits))
}

// quantile walks to the bucket that holds the part q of n, and as far into it as what is left of the part says.
func quantile(counts []uint64, n uint64, q float64, subBits int) float64 {
	if n == 0 || q != q {
		return 0
	}
	rank, below := min(max(q, 0), 1)*float64(n), 0.0
	for b, c := range counts[:len(counts)-1] {
		if c > 0 && below+float64(c) >= rank {
			lower := lowerNanos(b, subBits)
			return lower + (rank-below)/float64(c)*(lowerNanos(b+1, subBits)-lower)
		}
		below += float64(c)
	}
	return lowerNanos(len(counts)-1, subBits)
}
