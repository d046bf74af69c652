package obs

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

// stripes spreads counters over cache lines, so that concurrent cores do not share one.
const (
	stripes    = 1 << stripeBits
	stripeBits = 3
)

const (
	// Latencies are kept in four buckets an octave from 1 µs to 2^25 µs (34 s). The error of a percentile is at most
	// the width of a bucket, a quarter of its lower bound, and far less if latencies are spread over the bucket.
	endpointSubBits = 2
	endpointOctaves = 25
	endpointBuckets = endpointOctaves<<endpointSubBits + 2
	// Prometheus gets one bucket an octave, from 2^6 µs on: series are expensive, and dashboards rely on these.
	firstShownLog2Micros = 6
	maxCodes             = 24
)

// The fields that every request changes come first, with the code OK: a request touches this line and one of the buckets.
type stripe struct {
	queries atomic.Uint64
	nanos   atomic.Uint64
	failed  atomic.Uint64 // the part of nanos of requests that did not end in OK
	hits    atomic.Uint64
	misses  atomic.Uint64
	codes   [maxCodes]atomic.Uint64
	buckets [endpointBuckets]atomic.Uint64
	_       [64]byte
}

// Endpoint counts the requests of one function, or of one model that is addressed directly. The zero value is ready for
// use. It allocates its 8 KiB with the first request: most of ten thousand models never get one.
type Endpoint struct {
	stripes atomic.Pointer[[stripes]stripe]
}

// Observe counts one request of n queries that ended with code after the given time.
func (e *Endpoint) Observe(code api.Code, n int, took api.Nanos) { observe(e.stripe(), code, n, took) }

// ObserveSLO is Observe for a request with a latency objective.
func (e *Endpoint) ObserveSLO(code api.Code, n int, took, slo api.Nanos) {
	s := e.stripe()
	observe(s, code, n, took)
	switch {
	case code == api.Cancelled || code == api.InvalidArgument: // the caller's doing
	case code == api.OK && took <= slo+sloGrace:
		s.hits.Add(1)
	default:
		s.misses.Add(1)
	}
}

// sloGrace is how long after its objective an answer still meets it. At the deadline an ensemble answers from the predictions
// that it has: the timer that ends the wait is up to a tick of 0.26 ms late, and the thread that runs it has to wake.
const sloGrace = api.Nanos(time.Millisecond)

func observe(s *stripe, code api.Code, n int, took api.Nanos) {
	s.codes[min(int(code), maxCodes-1)].Add(1)
	s.queries.Add(uint64(n))
	s.nanos.Add(uint64(max(took, 0)))
	if code != api.OK {
		s.failed.Add(uint64(max(took, 0)))
	}
	s.buckets[bucketOf(int64(took), endpointSubBits, endpointOctaves)].Add(1)
}

// CountMalformed counts a request that was refused before timing started.
func (e *Endpoint) CountMalformed(code api.Code) {
	e.stripe().codes[min(int(code), maxCodes-1)].Add(1)
}

// stripe is the same one for all requests that a goroutine counts at the same depth of its stack, so that a core which serves a function by
// itself keeps its counters in its own cache.
func (e *Endpoint) stripe() *stripe {
	all := e.stripes.Load()
	if all == nil {
		all = e.allocate()
	}
	return &all[goroutineHash()>>(64-stripeBits)]
}

// goroutineHash differs between most goroutines that run at once: it is a hash of where their stacks are, which is a KiB apart or more.
func goroutineHash() uint64 {
	var here byte
	return uint64(uintptr(unsafe.Pointer(&here))>>10) * 0x9e3779b97f4a7c15
}

// allocate makes the counters. Of several concurrent attempts one succeeds, and all use its result.
func (e *Endpoint) allocate() *[stripes]stripe {
	e.stripes.CompareAndSwap(nil, new([stripes]stripe))
	return e.stripes.Load()
}

// Reading is the sum over the stripes at one time.
type Reading struct {
	Codes   [maxCodes]uint64
	Queries uint64
	Seconds float64
	// FailedSeconds is the part of Seconds of requests that did not end in OK.
	FailedSeconds float64
	// SLOHits and SLOMisses count the requests that met their latency objective and those that did not. Requests that the
	// caller got wrong or gave up are neither.
	SLOHits, SLOMisses uint64
	Count              uint64
	Buckets            map[float64]uint64 // cumulative, by upper bound in seconds, one an octave; nil when Count is 0

	fine [endpointBuckets]uint64 // not cumulative
}

// Read sums the stripes.
func (e *Endpoint) Read() Reading {
	var r Reading
	all := e.stripes.Load()
	if all == nil {
		return r
	}
	var nanos, failed uint64
	for i := range all {
		s := &all[i]
		for c := range r.Codes {
			r.Codes[c] += s.codes[c].Load()
		}
		for b := range r.fine {
			r.fine[b] += s.buckets[b].Load()
		}
		r.Queries += s.queries.Load()
		r.SLOHits += s.hits.Load()
		r.SLOMisses += s.misses.Load()
		nanos += s.nanos.Load()
		failed += s.failed.Load()
	}
	r.Seconds, r.FailedSeconds = float64(nanos)/1e9, float64(failed)/1e9
	r.aggregate()
	return r
}

// aggregate computes Count and Buckets from the fine buckets.
func (r *Reading) aggregate() {
	r.Count, r.Buckets = 0, nil
	var below [endpointOctaves + 1]uint64 // below[i] counts latencies up to 2^i µs
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

// Since returns what was counted after an earlier reading of the same endpoint. If a count has decreased, the earlier
// reading is of a previous endpoint with the same name, and everything is new.
func (r Reading) Since(earlier Reading) Reading {
	d := r
	d.Queries -= earlier.Queries
	d.SLOHits -= earlier.SLOHits
	d.SLOMisses -= earlier.SLOMisses
	d.Seconds, d.FailedSeconds = max(0, r.Seconds-earlier.Seconds), max(0, r.FailedSeconds-earlier.FailedSeconds)
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

// Quantile returns the latency in seconds below which the fraction q (from 0 to 1) of the requests lies, or 0 if there
// were none. It assumes that latencies are spread evenly within a bucket, and that those beyond the last bucket are at
// its bound, 34 s.
func (r Reading) Quantile(q float64) float64 {
	return quantile(r.fine[:], r.Count, q, endpointSubBits) / 1e9
}
