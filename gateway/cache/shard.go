package cache

import (
	"sync"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

// shard is one part of a cache, with its own lock. Nothing under the lock waits or calls out, and the work is bounded
// by the largest entry and by maxHandSteps.
type shard struct {
	mu sync.Mutex
	pool
	index
	eviction

	flights     []flight
	freeFlight  uint32 // number plus 1 of the first unused flight, further ones by entry
	inFlight    int    // flights in use
	maxInFlight int
	// inFlightBlocks is the number of blocks that pending entries hold, which cannot be evicted.
	inFlightBlocks, maxInFlightBlocks int

	fixedBytes int64 // of what exists however little is kept: index and flights
	counts     shardCounts

	_ [64]byte // keeps the next shard's lock on another cache line
}

const shardBytes = int64(unsafe.Sizeof(shard{}))

// shardCounts are counters under the shard's lock.
type shardCounts struct {
	entries, evicted, collisions uint64
}

// flight is an evaluation in progress: a pending entry and its waiters.
type flight struct {
	entry, last   uint32 // first and last block of the entry
	first, newest *Waiter
	until         api.Nanos // the leader's
}

const (
	flightBytes  = 32
	flightBlocks = 16   // one flight for this many blocks of a shard, at most maxFlights
	maxFlights   = 4096 //xebec:limit evaluations in a shard that other queries may wait for
)

// init sizes the shard for maxBytes. It returns false if not even one entry fits.
func (s *shard) init(maxBytes int64) bool {
	maxBytes = max(maxBytes, 0)
	s.maxInFlight = min(maxFlights, int(maxBytes/blockBytes/flightBlocks)+1)
	rest := maxBytes - int64(s.maxInFlight*flightBytes)
	buckets := max(1, rest/(bucketLoad*blockBytes+bucketBytes))
	s.fixedBytes = maxBytes - rest + buckets*bucketBytes
	capacity := (maxBytes - s.fixedBytes) / blockBytes
	if capacity < 1+entryShare { // block 0 is not used
		return false
	}
	s.pool.init(int(min(capacity-1, 1<<31)))
	s.index.init(int(buckets), s.capacity)
	s.flights = make([]flight, 0, s.maxInFlight)
	s.quota = s.capacity / probationShare
	s.maxInFlightBlocks = max(s.capacity/2, 1)
	return true
}

// matches reports whether an entry is for exactly this input, and returns a cursor at its outputs.
func (s *shard) matches(e *head, salt []byte, inputs []api.Value, n int) (cursor, bool) {
	c := s.begin(e)
	if int(e.inputBytes) != n || int(e.saltBytes) != len(salt) || int(e.inputs) != len(inputs) {
		return c, false
	}
	return c, c.equal(salt) && c.equalValues(inputs)
}

// startFlight makes a pending entry for an input of n bytes, with w as its leader. It returns false if there is no
// room.
func (s *shard) startFlight(k Key, m *Model, salt []byte, inputs []api.Value, n int, w *Waiter) bool {
	blocks := blocksFor(n)
	if s.inFlight == s.maxInFlight || s.inFlightBlocks+blocks > s.maxInFlightBlocks || !s.makeRoom(blocks) {
		return false
	}
	first, last := s.take(blocks)
	s.inFlight++
	s.inFlightBlocks += blocks
	f := s.freeFlight
	if f == 0 {
		s.flights = append(s.flights, flight{})
		f = uint32(len(s.flights))
	} else {
		s.freeFlight = s.flights[f-1].entry
	}
	s.flights[f-1] = flight{entry: first, last: last, until: w.Until}

	e := s.at(first) // everything but next and the body is written
	e.sameBucket, e.key, e.confidence, e.newer, e.older = 0, k, 0, 0, 0
	e.inputBytes, e.outputBytes, e.saltBytes, e.model, e.flight = uint32(n), 0, uint32(len(salt)), m.serial, f
	e.inputs, e.outputs, e.in, e.uses = uint8(len(inputs)), 0, probation, 0
	if s.insert(first, e) {
		e.in = protected
	}
	c := s.begin(e)
	c.write(salt)
	c.writeValues(inputs)
	w.model, w.shard, w.flight, w.state = m, s, f, leading
	return true
}

// endFlight ends the flight that w leads and returns it with its entry. Its waiters become idle: a Cancel now returns
// false. The caller must keep or remove the entry.
func (s *shard) endFlight(w *Waiter) (flight, *head) {
	f := s.flights[w.flight-1]
	s.flights[w.flight-1] = flight{entry: s.freeFlight}
	s.freeFlight = w.flight
	e := s.at(f.entry)
	s.inFlight--
	s.inFlightBlocks -= blocksFor(int(e.inputBytes))
	e.flight = 0
	w.state = idle
	for x := f.first; x != nil; x = x.next {
		x.state = idle
	}
	return f, e
}

// keep adds outputs to the entry of an ended flight, which can then be found and evicted. It returns false if they are
// too large or there is no room for them.
func (s *shard) keep(f flight, e *head, outputs []api.Value, confidence float64, maxBytes int) bool {
	in, out := int(e.inputBytes), encodedBytes(outputs)
	if len(outputs) > maxValues || in+out > maxBytes {
		return false
	}
	have := blocksFor(in)
	if more := blocksFor(in+out) - have; more > 0 {
		if !s.makeRoom(more) {
			return false
		}
		first, _ := s.take(more)
		s.at(f.last).next = first
	}
	c := s.resume(f.entry, f.last, in)
	c.writeValues(outputs)
	e.outputBytes, e.outputs, e.confidence = uint32(out), uint8(len(outputs)), confidence
	s.push(e.in, f.entry, e)
	s.counts.entries++
	return true
}

// remove removes an entry that is in no queue from the index, perhaps with a ghost, and frees its blocks.
func (s *shard) remove(i uint32, e *head, ghost bool) {
	s.forget(i, e, ghost)
	s.release(i, e.blocks())
}

// makeRoom evicts until n blocks are available. It returns false if that is impossible now.
func (s *shard) makeRoom(n int) bool {
	for s.spare() < n {
		if !s.evict() {
			return false
		}
	}
	return true
}

// evict evicts one entry. It returns false if there is none.
func (s *shard) evict() bool {
	i, e, ghost := s.victim()
	if e == nil {
		return false
	}
	s.counts.evicted++
	s.counts.entries--
	s.remove(i, e, ghost)
	if next := s.queues[probation].oldest; next != 0 { // the next victim, as long as most inputs are seen once
		e := s.at(next) // the last eviction has prefetched it
		b, _ := s.place(hash(e.key, e.model))
		Prefetch(b)
		if e.newer != 0 {
			after := s.at(e.newer)
			Prefetch(after)
			Prefetch(&after.body) // on the next line
		}
	}
	return true
}

// sweep removes a model's entries from a range of the index's buckets, and returns the bucket to continue with, 0 at the
// end. Pending entries are left to the end of their flight.
func (s *shard) sweep(model uint32, from, count int) int {
	to := min(from+count, len(s.buckets))
	for n := from; n < to; n++ {
		s.each(n, func(i uint32, e *head) {
			if e.model == model && e.flight == 0 {
				s.unlink(e)
				s.counts.entries--
				s.remove(i, e, false)
			}
		})
	}
	if to == len(s.buckets) {
		return 0
	}
	return to
}

// blocks returns the length of the entry's chain.
func (e *head) blocks() int { return blocksFor(int(e.inputBytes + e.outputBytes)) }
