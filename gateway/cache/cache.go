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
	// MaxEntryBytes bounds the inputs and outputs of an entry, in addition to a quarter of a shard. It bounds the work
	// that is done while holding a lock.
	MaxEntryBytes = 1 << 20 //xebec:limit inputs and outputs of a cached query, or a quarter of a shard if that is less
	// maxValues bounds the number of inputs, and of outputs, of an entry; api.MaxTensors is well below it.
	maxValues = 255 //xebec:limit tensors of a cached query

	maxShards = 64 //xebec:limit shards of the cache
	//xebec:limit smallest shard, if there is more than one
	minShardBytes = 4 << 20 // a smaller shard would refuse entries of MaxEntryBytes
	entryShare    = 4       // an entry takes at most 1/entryShare of a shard
	sweepBuckets  = 32      // of the index that Drop processes under one lock
	stripes       = 8       // of a model's counters; must be a power of two
)

// coalesceSlack is how much earlier than its leader a query may want the prediction and still wait for it. Queries that
// arrive together with the same latency objective differ by less.
const coalesceSlack = api.Nanos(5e6)

// Cache keeps predictions of all model versions in bounded memory. It is safe for concurrent use.
type Cache struct {
	shards        []shard // a power of two of them; none if nothing is kept
	shardShift    int     // shifts a key to its shard's number
	maxEntryBytes int
	seed          uint64
	serials       atomic.Uint32
	// testRekey lets tests make keys collide.
	testRekey func(Key) Key
}

// New returns a cache that takes at most maxBytes for inputs, outputs, and the data structures that find them. It
// allocates memory as needed and never frees it. A cache of less than one KiB keeps nothing and returns Bypass for
// everything.
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

// Model is the cache of one model version. It is made when the version is declared and dropped with it.
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

// Model returns a handle for a new model version, without entries, whatever versions exist or existed. It panics after
// 2^32-1 versions.
func (c *Cache) Model() *Model {
	serial := c.serials.Add(1)
	if serial == 0 {
		panic("cache: 2^32 model versions in one process: restart it")
	}
	return &Model{cache: c, serial: serial}
}

// counters returns the model's counters and allocates them on first use.
func (m *Model) counters() *[stripes]modelCounts {
	if all := m.counts.Load(); all != nil {
		return all
	}
	m.counts.CompareAndSwap(nil, new([stripes]modelCounts)) // of several concurrent attempts one succeeds
	return m.counts.Load()
}

// Drop removes all entries of the model. From the call on, nothing of it is found or kept: requests bypass the cache,
// and flights in progress still answer their waiters. When Drop returns, the memory is available to others. Drop goes
// through the whole index, a few entries at a time, so it is for deleting models, not for the path of a query.
func (m *Model) Drop() {
	m.dropped.Store(true)
	if m.Stats().Misses == 0 {
		return // an entry was counted as a miss before it was filled
	}
	for i := range m.cache.shards {
		s := &m.cache.shards[i]
		for next, more := 0, true; more; more = next != 0 {
			s.mu.Lock()
			next = s.sweep(m.serial, next, sweepBuckets)
			s.mu.Unlock()
		}
	}
}

// Outcome is the result of [Model.Request].
type Outcome uint8

const (
	// Bypass: the cache takes no part in this query, and the caller evaluates it. The input is too large, too much is
	// in flight, the model was dropped, the key collides with another input's, or the leader of the same input has too
	// late a deadline.
	Bypass Outcome = iota
	// Hit: the prediction is in the waiter.
	Hit
	// Lead: there is no prediction. The caller evaluates the query, and calls the waiter's Fill or Fail exactly once.
	Lead
	// Wait: another query with the same input is being evaluated. The waiter's owner is called when it has ended,
	// unless Cancel comes first.
	Wait
)

// String returns the outcome's name, as used in metrics.
func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

var outcomes = [...]string{Bypass: "bypass", Hit: "hit", Lead: "lead", Wait: "wait"}

// Prefetch makes the processor load what a Request with the key reads first. It is worth calling as soon as the key is
// known, if something else is to be done before the Request.
func (m *Model) Prefetch(k Key) {
	if c := m.cache; len(c.shards) > 0 {
		b, _ := c.shard(k).place(hash(k, m.serial))
		Prefetch(b)
	}
}

// Request looks up the prediction for an input, where k is [Cache.Key] of the same salt and inputs. It does not wait.
// It compares and copies its arguments and does not retain them. The waiter must be idle.
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

// Fetch looks up the prediction for an input that was requested before, for feedback by input. It returns false if
// there is none yet. It is not counted as a request, and does not count as a use of the entry.
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

// Add adds a prediction that was evaluated outside of Request, because it was not known at the start of the query
// whether it may be cached. An existing or pending entry stays as it is. Add does not retain its arguments and is not
// counted as a request.
func (m *Model) Add(k Key, salt []byte, inputs, outputs []api.Value, confidence float64) {
	c := m.cache
	n := len(salt) + encodedBytes(inputs)
	if n > c.maxEntryBytes || len(inputs) > maxValues || m.dropped.Load() {
		return
	}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	var w Waiter // leads only while the lock is held, so it has no followers
	if _, e := s.find(k, m.serial); e != nil || !s.startFlight(k, m, salt, inputs, n, &w) {
		return
	}
	if f, e := s.endFlight(&w); m.dropped.Load() || !s.keep(f, e, outputs, confidence, c.maxEntryBytes) {
		s.remove(f.entry, e, false)
	}
}

func (c *Cache) shard(k Key) *shard { return &c.shards[k.Lo>>c.shardShift] }

// Stats describes a cache. Counts are since it was made.
type Stats struct {
	// Entries can be hit. Pending entries are being evaluated.
	Entries, Pending int
	// Bytes is the memory that entries, pending entries and their indexes use. HeldBytes is the memory allocated so
	// far, including free memory. Neither exceeds MaxBytes.
	Bytes, HeldBytes, MaxBytes int64
	// Evicted counts evictions. Collisions counts look-ups that found another input under the same key.
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

// ModelStats counts the outcomes of a model version's requests since it was declared.
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
