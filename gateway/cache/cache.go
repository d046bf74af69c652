package cache

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
)

const (
	// MaxEntryBytes bounds an entry's inputs and outputs together, beside the fourth of a shard: what is done under a lock
	// is bounded by it.
	MaxEntryBytes = 1 << 20
	// maxValues bounds the inputs, and the outputs, of an entry; api.MaxTensors is well below it.
	maxValues = 255

	maxShards     = 64
	minShardBytes = 4 << 20 // a smaller shard would refuse entries of MaxEntryBytes
	entryShare    = 4       // an entry is at most one part in so many of a shard
	sweepSlots    = 256     // looked at under one lock, when a model is dropped
	stripes       = 8       // of a model's counters; a power of two
)

// hurry is how much sooner than its leader a query must want the prediction to evaluate it by itself: queries of one latency
// objective that come at the same time differ by less.
const coalesceSlack = api.Nanos(5e6)

// Cache keeps predictions of all model versions in a bounded memory. All methods may be called from any goroutine.
type Cache struct {
	shards        []shard // as many as a power of two; none: nothing is kept
	shardShift    int     // of a key, to get its shard's number
	maxEntryBytes int
	seed          uint64
	serials       atomic.Uint32
	// disguise lets tests make keys collide.
	testRekey func(Key) Key
}

// New makes a cache that holds at most maxBytes: inputs, outputs, and everything that it needs to find them again. Memory is taken
// as it is needed and never given back. A cache of less than a KiB keeps nothing, and says Bypass to everything.
func New(maxBytes int64) *Cache {
	n := 1
	for n < maxShards && n < 4*runtime.GOMAXPROCS(0) && maxBytes/int64(2*n) >= minShardBytes {
		n *= 2
	}
	return newCache(maxBytes, n, rand.Uint64())
}

func newCache(maxBytes int64, shards int, seed uint64) *Cache {
	c := &Cache{shards: make([]shard, shards), seed: seed, shardShift: 64 - bits.Len(uint(shards-1))}
	for i := range c.shards {
		if !c.shards[i].init(maxBytes/int64(shards) - shardBytes) {
			c.shards, c.maxEntryBytes = nil, -1
			return c
		}
	}
	c.maxEntryBytes = min(MaxEntryBytes, headBody+(c.shards[0].capacity/entryShare-1)*tailBody)
	return c
}

// Model is the cache of one model version. It is made when the version is declared, and dropped with it.
type Model struct {
	cache   *Cache
	serial  uint32
	dropped atomic.Bool
	counts  atomic.Pointer[[stripes]modelCounts] // nil until the first request: half a KiB that most of ten thousand models never need
}

// modelCounts is one stripe of a model's counters, on a cache line of its own.
type modelCounts struct {
	hits, misses, coalesced, bypassed atomic.Uint64
	_                                 [32]byte
}

// Model returns a new model version without any entries, whatever others there are or were. It panics after four thousand million
// of them.
func (c *Cache) Model() *Model {
	serial := c.serials.Add(1)
	if serial == 0 {
		panic("cache: 2^32 model versions in one process: restart it")
	}
	return &Model{cache: c, serial: serial}
}

// counted has the model's counters.
func (m *Model) counters() *[stripes]modelCounts {
	if all := m.counts.Load(); all != nil {
		return all
	}
	m.counts.CompareAndSwap(nil, new([stripes]modelCounts)) // of several that try at once one succeeds, and all of them count there
	return m.counts.Load()
}

// Drop forgets everything of the model. From the call on nothing of it is found or kept: requests bypass the cache, and flights
// that are under way still answer whoever waits for them. The memory is there for others when Drop returns. It goes through the
// whole index, a few entries at a time, so it is for whoever deletes models and not for the way of a query.
func (m *Model) Drop() {
	m.dropped.Store(true)
	if m.Stats().Misses == 0 {
		return // what is kept has been a miss that was counted before it was filled
	}
	for i := range m.cache.shards {
		s := &m.cache.shards[i]
		for slot, more := 0, true; more; more = slot != 0 {
			s.mu.Lock()
			slot = s.sweep(m.serial, slot, sweepSlots)
			s.mu.Unlock()
		}
	}
}

// Outcome is what [Model.Request] found.
type Outcome uint8

const (
	// Bypass: the cache has nothing to do with this query, and the caller evaluates it. The input is too large, too much is in
	// flight, the model was dropped, another input with the same key is there, or a query that has more time is being evaluated.
	Bypass Outcome = iota
	// Hit: the prediction is in the waiter.
	Hit
	// Lead: it is not there. The caller evaluates the query, and calls the waiter's Fill or Fail exactly once.
	Lead
	// Wait: another query with the same input is being evaluated. The waiter's owner is called when that has ended, unless Cancel
	// comes before.
	Wait
)

// String is the outcome's name, as metrics use it.
func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

var outcomes = [...]string{Bypass: "bypass", Hit: "hit", Lead: "lead", Wait: "wait"}

// Request looks for the prediction of an input, where k is [Cache.Key] of the same salt and inputs. It never waits. What it
// is given is compared and copied, and not kept. The waiter must be idle.
func (m *Model) Request(k Key, salt []byte, inputs []api.Value, w *Waiter) Outcome {
	c := m.cache
	counts := &m.counters()[k.Lo&(stripes-1)]
	if w.state != idle {
		panic("cache: Request with a waiter that still leads or waits: use one waiter for each query")
	}
	n := len(salt) + encodedBytes(inputs)
	if n > c.maxEntryBytes || len(inputs) > maxValues || m.dropped.Load() {
		counts.bypassed.Add(1)
		return Bypass
	}
	s := c.shard(k)
	s.mu.Lock()
	o := s.request(m, k, salt, inputs, n, w)
	s.mu.Unlock()
	switch o {
	case Hit:
		counts.hits.Add(1)
	case Lead:
		counts.misses.Add(1)
	case Wait:
		counts.coalesced.Add(1)
	default:
		counts.bypassed.Add(1)
	}
	return o
}

func (s *shard) request(m *Model, k Key, salt []byte, inputs []api.Value, n int, w *Waiter) Outcome {
	_, e := s.find(k, m.serial)
	if e == nil {
		if !s.startFlight(k, m, salt, inputs, n, w) {
			return Bypass
		}
		return Lead
	}
	outputs, matches := s.matches(e, salt, inputs, n)
	if !matches {
		s.counts.collisions++
		return Bypass
	}
	if e.flight != 0 {
		if s.flights[e.flight-1].until-w.Until > coalesceSlack {
			return Bypass
		}
		s.addFollower(e.flight, w)
		return Wait
	}
	e.recordHit()
	w.Outputs, w.Confidence = outputs.readValues(w.Outputs, int(e.outputs)), e.confidence
	return Hit
}

// Fetch looks for the prediction of an input that was asked for before, as feedback by input does. It returns false where there is
// none, or none yet. It is counted nowhere, and the entry stays no longer for it.
func (m *Model) Fetch(k Key, salt []byte, inputs []api.Value, w *Waiter) bool {
	c := m.cache
	n := len(salt) + encodedBytes(inputs)
	if n > c.maxEntryBytes || m.dropped.Load() {
		return false
	}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, e := s.find(k, m.serial)
	if e == nil || e.flight != 0 {
		return false
	}
	outputs, matches := s.matches(e, salt, inputs, n)
	if !matches {
		s.counts.collisions++
		return false
	}
	w.Outputs, w.Confidence = outputs.readValues(w.Outputs, int(e.outputs)), e.confidence
	return true
}

// Keep takes a prediction of which nobody knew, when its query began, whether it may be kept. An entry that is there, or is being
// evaluated, stays as it is. Nothing of what is given is kept, and it is counted nowhere.
func (m *Model) Keep(k Key, salt []byte, inputs, outputs []api.Value, confidence float64) {
	c := m.cache
	n := len(salt) + encodedBytes(inputs)
	if n > c.maxEntryBytes || len(inputs) > maxValues || m.dropped.Load() {
		return
	}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	var w Waiter // leads for no longer than the lock is held, so that nobody waits behind it
	if _, e := s.find(k, m.serial); e != nil || !s.startFlight(k, m, salt, inputs, n, &w) {
		return
	}
	if f, e := s.endFlight(&w); m.dropped.Load() || !s.keep(f, e, outputs, confidence, c.maxEntryBytes) {
		s.remove(f.entry, e)
	}
}

func (c *Cache) shard(k Key) *shard { return &c.shards[k.Lo>>c.shardShift] }

// Stats is what a cache holds and has done. Counts are since it was made.
type Stats struct {
	// Entries can be hit, Pending are being evaluated.
	Entries, Pending int
	// Bytes is what both take, with everything that is needed to find them; HeldBytes is the memory that was taken so far, for
	// these and those that were there before. Neither exceeds MaxBytes.
	Bytes, HeldBytes, MaxBytes int64
	// Evicted made room for others. Collisions are look-ups that found another input under the same key.
	Evicted, Collisions uint64
}

// Stats adds up the shards, one after the other.
func (c *Cache) Stats() Stats {
	var t Stats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		t.Entries += int(s.counts.entries)
		t.Pending += s.inFlight
		t.Evicted += s.counts.evicted
		t.Collisions += s.counts.collisions
		fixed := shardBytes + s.fixedBytes
		t.Bytes += fixed + int64(s.used)*blockBytes
		t.HeldBytes += fixed + s.heldBytes()
		t.MaxBytes += fixed + int64(s.capacity+1)*blockBytes
		s.mu.Unlock()
	}
	return t
}

// ModelStats is how the requests of a model version have ended, since it was declared.
type ModelStats struct {
	Hits, Misses, Coalesced, Bypassed uint64
}

// Stats adds up the model's counters.
func (m *Model) Stats() ModelStats {
	var t ModelStats
	all := m.counts.Load()
	if all == nil {
		return t
	}
	for i := range all {
		c := &all[i]
		t.Hits += c.hits.Load()
		t.Misses += c.misses.Load()
		t.Coalesced += c.coalesced.Load()
		t.Bypassed += c.bypassed.Load()
	}
	return t
}
