package driver

import (
	"math"
	"math/bits"
	"sync/atomic"
)

const (
	// sizeOctaves is the number of octaves of batch sizes (1, 2–3, 4–7, …) that times are kept of. The last one has all larger batches too.
	sizeOctaves = 17
	// sizeMemory is about how many batches of an octave its mean is of: later ones replace earlier ones.
	sizeMemory = 256
)

// SizeTime is the mean evaluation time of recent batches of From to To queries.
type SizeTime struct {
	From, To int
	// Batches counts all of these batches, MeanNanos is over about the last 256.
	Batches   uint64
	MeanNanos float64
}

// sizeTimes are means by octave. There is one writer, as with [Histogram].
type sizeTimes [sizeOctaves]struct{ batches, mean atomic.Uint64 }

func (s *sizeTimes) observe(n int, nanos int64) {
	o := &s[min(bits.Len(uint(max(n, 1)))-1, sizeOctaves-1)]
	count := o.batches.Load() + 1
	mean := math.Float64frombits(o.mean.Load())
	o.mean.Store(math.Float64bits(mean + (float64(nanos)-mean)/float64(min(count, sizeMemory))))
	o.batches.Store(count)
}

// list has the octaves with batches, the smallest first.
func (s *sizeTimes) list() (all []SizeTime) {
	for i := range s {
		if n := s[i].batches.Load(); n > 0 {
			all = append(all, SizeTime{From: 1 << i, To: 1<<(i+1) - 1, Batches: n, MeanNanos: math.Float64frombits(s[i].mean.Load())})
		}
	}
	return all
}
