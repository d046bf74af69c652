package obs

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
)

// stripes spreads counters over cache lines, so that cores that answer at the same time do not share one. A power of two.
const stripes = 8

const (
	// Latencies are kept in four buckets an octave from 1 µs to 2^25 µs (34 s): a percentile is then off by no more than the width of
	// one, a quarter of its lower bound, and where latencies are spread over the bucket by far less.
	endpointSubBits = 2
	endpointOctaves = 25
	endpointBuckets = endpointOctaves<<endpointSubBits + 2
	// Prometheus is shown one bucket an octave, from 2^6 µs on: series are dear, and dashboards have these.
	firstShownLog2Micros = 6
	maxCodes             = 24
)

type stripe struct {
	codes   [maxCodes]atomic.Uint64
	queries atomic.Uint64
	nanos   atomic.Uint64
	buckets [endpointBuckets]atomic.Uint64
	_       [64]byte
}

// Endpoint counts the requests of one function, or of one model that is addressed by itself. The zero value counts; it takes
// 8 KiB from the first request on and nothing before: of ten thousand models most never see one.
type Endpoint struct {
	stripes atomic.Pointer[[stripes]stripe]
}

// Observe counts one request of n queries that ended with code after the given time.
func (e *Endpoint) Observe(code api.Code, n int, took api.Nanos) {
	s := e.stripe()
	s.codes[min(int(code), maxCodes-1)].Add(1)
	s.queries.Add(uint64(n))
	s.nanos.Add(uint64(max(took, 0)))
	s.buckets[bucketOf(int64(took), endpointSubBits, endpointOctaves)].Add(1)
}

// Refuse counts one request that was refused before there was anything to time.
func (e *Endpoint) Refuse(code api.Code) {
	e.stripe().codes[min(int(code), maxCodes-1)].Add(1)
}

func (e *Endpoint) stripe() *stripe {
	all := e.stripes.Load()
	if all == nil {
		all = e.allocate()
	}
	return &all[rand.Uint32()&(stripes-1)]
}

// first makes the counters. Of several that try at once one succeeds, and all of them count there.
func (e *Endpoint) allocate() *[stripes]stripe {
	e.stripes.CompareAndSwap(nil, new([stripes]stripe))
	return e.stripes.Load()
}

// Reading is the sum over the stripes at one time.
type Reading struct {
	Codes   [maxCodes]uint64
	Queries uint64
	Seconds float64
	Count   uint64
	Buckets map[float64]uint64 // cumulative, by upper bound in seconds, one an octave; nil when Count is 0

	fine [endpointBuckets]uint64 // not cumulative
}

// Read sums the stripes.
func (e *Endpoint) Read() Reading {
	var r Reading
	all := e.stripes.Load()
	if all == nil {
		return r
	}
	var nanos uint64
	for i := range all {
		s := &all[i]
		for c := range r.Codes {
			r.Codes[c] += s.codes[c].Load()
		}
		for b := range r.fine {
			r.fine[b] += s.buckets[b].Load()
		}
		r.Queries += s.queries.Load()
		nanos += s.nanos.Load()
	}
	r.Seconds = float64(nanos) / 1e9
	r.aggregate()
	return r
}

// sumUp makes Count and Buckets of the fine buckets.
func (r *Reading) aggregate() {
	r.Count, r.Buckets = 0, nil
	var below [endpointOctaves + 1]uint64 // below[i]: up to 2^i µs
	for b, n := range r.fine {
		r.Count += n
		if b < endpointBuckets-1 && b&(1<<endpointSubBits-1) == 0 {
			below[b>>endpointSubBits] = r.Count
		}
	}
	if r.Count == 0 {
		return
	}
	r.Buckets = make(map[float64]uint64, len(below)-firstShownLog2Micros)
	for i := firstShownLog2Micros; i < len(below); i++ {
		r.Buckets[float64(uint64(1)<<i)/1e6] = below[i]
	}
}

// Empty reports whether nothing has been counted.
func (r *Reading) Empty() bool {
	return r.Queries == 0 && r.Count == 0 && r.Codes == [maxCodes]uint64{}
}

// Since is what came after an earlier reading of the same endpoint. Where something has become less, the earlier reading is of another
// one of the same name, and everything is new.
func (r Reading) Since(earlier Reading) Reading {
	d := r
	d.Queries -= earlier.Queries
	d.Seconds = max(0, r.Seconds-earlier.Seconds)
	reset := r.Queries < earlier.Queries
	for c, n := range earlier.Codes {
		reset = reset || d.Codes[c] < n
		d.Codes[c] -= n
	}
	for b, n := range earlier.fine {
		reset = reset || d.fine[b] < n
		d.fine[b] -= n
	}
	if reset {
		return r
	}
	d.aggregate()
	return d
}

// Quantile is the latency in seconds below which the part q (from 0 to 1) of the requests lies, 0 when there were none. Latencies are
// taken to be spread evenly within a bucket, and those beyond the last one to be at its bound, 34 s.
func (r Reading) Quantile(q float64) float64 {
	return quantile(r.fine[:], r.Count, q, endpointSubBits) / 1e9
}
