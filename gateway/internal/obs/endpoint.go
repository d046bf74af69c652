package obs

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
)

// stripes spreads counters over cache lines, so that cores that answer at the same time do not share one. A power of two.
const stripes = 8

// latency buckets are powers of two of microseconds, from 64 µs to 2^25 µs (34 s): bucket i holds latencies below
// 2^(i+6) µs, the last one the rest.
const (
	firstBucketLog2Micros = 6
	latencyBuckets        = 20
	maxCodes              = 24
)

type stripe struct {
	codes   [maxCodes]atomic.Uint64
	queries atomic.Uint64
	nanos   atomic.Uint64
	buckets [latencyBuckets + 1]atomic.Uint64
	_       [64]byte
}

// Endpoint counts the requests of one function, or of one model that is addressed by itself.
type Endpoint struct {
	stripes [stripes]stripe
}

// Observe counts one request of n queries that ended with code after the given time.
func (e *Endpoint) Observe(code api.Code, n int, took api.Nanos) {
	s := &e.stripes[rand.Uint32()&(stripes-1)]
	s.codes[min(int(code), maxCodes-1)].Add(1)
	s.queries.Add(uint64(n))
	s.nanos.Add(uint64(max(took, 0)))
	s.buckets[bucket(took)].Add(1)
}

// Refuse counts one request that was refused before there was anything to time.
func (e *Endpoint) Refuse(code api.Code) {
	e.stripes[rand.Uint32()&(stripes-1)].codes[min(int(code), maxCodes-1)].Add(1)
}

func bucket(took api.Nanos) int {
	micros := uint64(max(took, 0)) / 1000
	return min(max(bits.Len64(micros)-firstBucketLog2Micros, 0), latencyBuckets)
}

// Reading is the sum over the stripes at one time.
type Reading struct {
	Codes   [maxCodes]uint64
	Queries uint64
	Seconds float64
	Count   uint64
	Buckets map[float64]uint64 // cumulative, by upper bound in seconds
}

// Read sums the stripes.
func (e *Endpoint) Read() Reading {
	r := Reading{Buckets: make(map[float64]uint64, latencyBuckets)}
	var buckets [latencyBuckets + 1]uint64
	var nanos uint64
	for i := range e.stripes {
		s := &e.stripes[i]
		for c := range r.Codes {
			r.Codes[c] += s.codes[c].Load()
		}
		for b := range buckets {
			buckets[b] += s.buckets[b].Load()
		}
		r.Queries += s.queries.Load()
		nanos += s.nanos.Load()
	}
	r.Seconds = float64(nanos) / 1e9
	for b, n := range buckets {
		r.Count += n
		if b < latencyBuckets {
			r.Buckets[float64(uint64(1)<<(b+firstBucketLog2Micros))/1e6] = r.Count
		}
	}
	return r
}
