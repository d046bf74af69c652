package cache

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

// shard is one part of a cache, with its own lock. Nothing under the lock waits or calls out, and the work is bounded
// by the largest entry and by maxHandSteps.
type shard struct {
	mu sync.Mutex
	pool
	index []uint32 // slot → first entry, further ones by sameSlot; the number of slots is a power of two
	eviction

	flights     []flight
	freeFlight  uint32 // number plus 1 of the first unused flight, further ones by entry
	inFlight    int    // flights in use
	maxInFlight int
	// inFlightBlocks is the number of blocks that pending entries hold, which cannot be evicted.
	inFlightBlocks, maxInFlightBlocks int

	fixedBytes int64 // of what exists however little is kept: index, ghosts, flights
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
	slotBytes    = 4    // of the index, and of the ghosts
	// indexSlots is the number of slots in the index for each ghost. A miss reads every entry of its slot's chain, and each
	// is a line of memory that no cache of the processor has.
	indexSlots = 2
)

// init sizes the shard for maxBytes. It returns false if not even one entry fits.
func (s *shard) init(maxBytes int64) bool {
	maxBytes = max(maxBytes, 0)
	// There is a ghost for every two to four blocks. If every entry is as small as possible, chains in the index have
	// one to two entries on average.
	ghosts := 1 << max(bits.Len64(uint64(maxBytes)/(2*(blockBytes+slotBytes)))-1, 0)
	s.maxInFlight = min(maxFlights, int(maxBytes/blockBytes/flightBlocks)+1)
	s.fixedBytes = int64((indexSlots+1)*ghosts*slotBytes + s.maxInFlight*flightBytes)
	capacity := (maxBytes - s.fixedBytes) / blockBytes
	if capacity < 1+entryShare { // block 0 is not used
		return false
	}
	s.pool.init(int(min(capacity-1, 1<<31)))
	s.index, s.ghosts = make([]uint32, indexSlots*ghosts), make([]uint32, ghosts)
	s.flights = make([]flight, 0, s.maxInFlight)
	s.quota = s.capacity / probationShare
	s.maxInFlightBlocks = max(s.capacity/2, 1)
	return true
}

// slot returns the index slot of a key and model. The serial is mixed in because the models of an ensemble are asked
// with the same key.
func (s *shard) slot(k Key, model uint32) *uint32 {
	return &s.index[(k.Hi+uint64(model)*0x9e3779b97f4a7c15)&uint64(len(s.index)-1)]
}

// find returns the entry of this key and model, or nil.
func (s *shard) find(k Key, model uint32) (uint32, *head) {
	for i := *s.slot(k, model); i != 0; {
		e := s.at(i)
		if e.key == k && e.model == model {
			return i, e
		}
		i = e.sameSlot
	}
	return 0, nil
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

	e, slot := s.at(first), s.slot(k, m.serial)
	next := e.next
	*e = head{
		next: next, sameSlot: *slot, key: k, model: m.serial, flight: f,
		inputBytes: uint32(n), saltBytes: uint32(len(salt)), inputs: uint8(len(inputs)),
	}
	*slot = first
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
	s.admit(f.entry, e)
	s.counts.entries++
	return true
}

// remove removes an entry that is in no queue from the index and frees its blocks.
func (s *shard) remove(i uint32, e *head) {
	at := s.slot(e.key, e.model)
	for *at != i {
		at = &s.at(*at).sameSlot
	}
	*at = e.sameSlot
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
	i, e := s.victim()
	if e == nil {
		return false
	}
	s.counts.evicted++
	s.counts.entries--
	s.remove(i, e)
	return true
}

// sweep removes a model's entries from a range of index slots, and returns the slot to continue with, 0 at the end.
// Pending entries are left to the end of their flight.
func (s *shard) sweep(model uint32, from, slots int) int {
	to := min(from+slots, len(s.index))
	for slot := from; slot < to; slot++ {
		for i := s.index[slot]; i != 0; {
			e := s.at(i)
			next := e.sameSlot
			if e.model == model && e.flight == 0 {
				s.unlink(e)
				s.counts.entries--
				s.remove(i, e)
			}
			i = next
		}
	}
	if to == len(s.index) {
		return 0
	}
	return to
}

// blocks returns the length of the entry's chain.
func (e *head) blocks() int { return blocksFor(int(e.inputBytes + e.outputBytes)) }
