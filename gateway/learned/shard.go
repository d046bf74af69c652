package learned

import (
	"bytes"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/xebec-serving/xebec/gateway/selection"
)

const (
	maxShards = 16
	// minShardContexts is the least number of contexts for each shard. Each shard evicts on its own, and smaller shards
	// would evict long before the function's bound is reached.
	minShardContexts = 64
)

// none terminates lists of entries and records.
const none int32 = -1

// Flags of an entry.
const (
	// live: the entry is in the index.
	live uint8 = 1 << iota
	// resident: the entry counts as a context in memory. An entry that is live but not resident was evicted, and stays
	// until the store has confirmed its deltas.
	resident
	// followsGlobal: nothing was learned about this context, so it follows the function's global state.
	followsGlobal
	// wanted: the state has not been read from the store yet.
	wanted
	// complete: the store is known to have every number.
	complete
)

// entry is one context. It holds no pointers, only indices into its shard.
type entry struct {
	hash               xxh3.Uint128
	next               int32 // in its bucket or the free list
	newer, older       int32 // in the list of resident entries
	wantPrev, wantNext int32 // in the list of wanted entries
	record             int32
	key                int32
	keyBytes           uint16
	flags              uint8
	seen               uint32 // the shard's round at the last use
	version            uint32 // of the global state, when a context that follows it was last derived
}

// record is an entry's ledger, while it has one.
type record struct {
	entry int32
	next  int32 // in the send queue or the free list
	// inFlight: an update has been sent. queued: the record is in the send queue.
	inFlight, queued bool
}

// shard holds the contexts of a function whose hashes select it.
type shard struct {
	mu sync.Mutex
	// moved means that the candidates have changed and the contexts have moved to another layout. The data here remains
	// as it was, for readers.
	moved    bool
	capacity int // most contexts in memory
	layout   *layout
	entries  []entry
	freed    int32
	buckets  []int32
	count    int // live entries
	resident int
	newest   int32
	oldest   int32
	wantHead int32
	wantTail int32
	round    uint32

	values  floats
	ledgers floats
	keys    keys
	scratch []float64

	records   []record
	freedRec  int32
	sendHead  int32
	sendTail  int32
	ledgerLen int // records in use

	_ [64]byte // keeps the next shard's lock on another cache line
}

func (s *shard) init(l *layout, capacity int) {
	s.layout, s.capacity = l, capacity
	s.values.width, s.ledgers.width = l.width(), ledgerVectors*l.width()
	s.freed, s.newest, s.oldest, s.wantHead, s.wantTail = none, none, none, none, none
	s.freedRec, s.sendHead, s.sendTail = none, none, none
}

func (s *shard) value(e int32) []float64 { return s.values.at(e) }

func (s *shard) ledger(r int32) ledger { return ledgerIn(s.ledgers.at(r)) }

func (s *shard) context(e *entry) []byte { return s.keys.at(e.key, int(e.keyBytes)) }

// find returns the context's entry, resident or not, or none.
func (s *shard) find(context []byte, hash xxh3.Uint128) int32 {
	if len(s.buckets) == 0 {
		return none
	}
	for i := s.buckets[int(hash.Lo)&(len(s.buckets)-1)]; i != none; i = s.entries[i].next {
		e := &s.entries[i]
		if e.hash == hash && bytes.Equal(s.context(e), context) {
			return i
		}
	}
	return none
}

// insert adds an entry with no flags but live and resident. It does not write the value. The caller has made room.
func (s *shard) insert(context []byte, hash xxh3.Uint128) int32 {
	i := s.freed
	if i != none {
		s.freed = s.entries[i].next
	} else {
		i = int32(len(s.entries))
		s.entries = append(s.entries, entry{})
		s.values.grow(len(s.entries))
	}
	if s.count == len(s.buckets) {
		s.rehash()
	}
	s.count++
	bucket := &s.buckets[int(hash.Lo)&(len(s.buckets)-1)]
	s.entries[i] = entry{
		hash: hash, next: *bucket, newer: none, older: none, wantPrev: none, wantNext: none, record: none,
		key: s.keys.put(context), keyBytes: uint16(len(context)), flags: live,
	}
	*bucket = i
	s.pushNewest(i)
	return i
}

func (s *shard) rehash() {
	s.buckets = make([]int32, max(16, 2*len(s.buckets)))
	for i := range s.buckets {
		s.buckets[i] = none
	}
	for i := range s.entries {
		if e := &s.entries[i]; e.flags&live != 0 {
			bucket := &s.buckets[int(e.hash.Lo)&(len(s.buckets)-1)]
			e.next, *bucket = *bucket, int32(i)
		}
	}
}

// remove removes an entry from the index. The entry must not be resident or have a record.
func (s *shard) remove(i int32) {
	e := &s.entries[i]
	at := &s.buckets[int(e.hash.Lo)&(len(s.buckets)-1)]
	for *at != i {
		at = &s.entries[*at].next
	}
	*at = e.next
	s.keys.drop(e.key, int(e.keyBytes))
	s.unwant(i)
	e.flags, e.next = 0, s.freed
	s.freed = i
	s.count--
}

// pushNewest makes an entry resident and the most recently used one.
func (s *shard) pushNewest(i int32) {
	e := &s.entries[i]
	e.flags |= resident
	e.seen = s.round
	e.older, e.newer = s.newest, none
	if s.newest != none {
		s.entries[s.newest].newer = i
	} else {
		s.oldest = i
	}
	s.newest = i
	s.resident++
}

func (s *shard) unlink(i int32) {
	e := &s.entries[i]
	if e.newer != none {
		s.entries[e.newer].older = e.older
	} else {
		s.newest = e.older
	}
	if e.older != none {
		s.entries[e.older].newer = e.newer
	} else {
		s.oldest = e.newer
	}
	e.flags &^= resident
	s.resident--
}

// evict evicts the least recently used context. Unsent deltas keep it in the index.
func (s *shard) evict() {
	i := s.oldest
	s.unlink(i)
	if s.entries[i].record == none {
		s.remove(i)
	}
}

// use makes a found entry the most recently used one. If it had been evicted, the caller has made room.
func (s *shard) use(i int32) {
	if i == s.newest {
		s.entries[i].seen = s.round
		return
	}
	if s.entries[i].flags&resident != 0 {
		s.unlink(i)
	}
	s.pushNewest(i)
}

// want appends an entry to the list of states to read.
func (s *shard) want(i int32) {
	e := &s.entries[i]
	e.flags |= wanted
	e.wantNext, e.wantPrev = none, s.wantTail
	if s.wantTail != none {
		s.entries[s.wantTail].wantNext = i
	} else {
		s.wantHead = i
	}
	s.wantTail = i
}

func (s *shard) unwant(i int32) {
	e := &s.entries[i]
	if e.flags&wanted == 0 {
		return
	}
	e.flags &^= wanted
	if e.wantPrev != none {
		s.entries[e.wantPrev].wantNext = e.wantNext
	} else {
		s.wantHead = e.wantNext
	}
	if e.wantNext != none {
		s.entries[e.wantNext].wantPrev = e.wantPrev
	} else {
		s.wantTail = e.wantPrev
	}
}

// openLedger opens a ledger for an entry that has none.
func (s *shard) openLedger(i int32) int32 {
	r := s.freedRec
	if r != none {
		s.freedRec = s.records[r].next
	} else {
		r = int32(len(s.records))
		s.records = append(s.records, record{})
		s.ledgers.grow(len(s.records))
	}
	s.records[r] = record{entry: i, next: none}
	s.entries[i].record = r
	s.ledger(r).open(s.value(i))
	s.ledgerLen++
	return r
}

// closeLedger closes an entry's ledger, which must be settled, and removes the entry if it was evicted.
func (s *shard) closeLedger(i int32) {
	e := &s.entries[i]
	s.records[e.record].next = s.freedRec
	s.freedRec = e.record
	e.record = none
	s.ledgerLen--
	if e.flags&resident == 0 {
		s.remove(i)
	}
}

// queue appends a record to the send queue. It returns false if the record is already queued or in flight.
func (s *shard) queue(r int32) bool {
	rec := &s.records[r]
	if rec.queued || rec.inFlight {
		return false
	}
	rec.queued, rec.next = true, none
	if s.sendTail != none {
		s.records[s.sendTail].next = r
	} else {
		s.sendHead = r
	}
	s.sendTail = r
	return true
}

// unqueue removes the first record from the send queue, or returns none.
func (s *shard) unqueue() int32 {
	r := s.sendHead
	if r == none {
		return none
	}
	s.sendHead = s.records[r].next
	if s.sendHead == none {
		s.sendTail = none
	}
	s.records[r].queued, s.records[r].next = false, none
	return r
}

// delta returns zeroed scratch memory for a policy's delta, valid under the lock.
func (s *shard) delta() []float64 {
	if s.scratch == nil {
		s.scratch = make([]float64, s.layout.width())
	}
	clear(s.scratch)
	return s.scratch
}

// adoptAll takes over the contexts of a shard of another layout, in order of last use. This shard is empty: queries
// come here only after old has been marked as moved.
func (s *shard) adoptAll(old *shard, c *composer) {
	old.mu.Lock()
	defer old.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range old.entries {
		if old.entries[i].flags&(live|resident) == live {
			s.adopt(old, int32(i), c)
		}
	}
	for i := old.oldest; i != none; i = old.entries[i].newer {
		s.adopt(old, i, c)
	}
	old.moved = true
}

func (s *shard) adopt(old *shard, i int32, c *composer) {
	prev := &old.entries[i]
	at := s.insert(old.context(prev), prev.hash)
	e := &s.entries[at]
	e.flags |= prev.flags & followsGlobal
	if prev.flags&wanted != 0 {
		s.want(at)
	}
	c.compose(s.value(at), old.layout.state(old.value(i)))
	if prev.record != none {
		r := s.openLedger(at)
		s.ledger(r).adopt(c, s.value(at), old.layout, old.ledger(prev.record))
		s.records[r].inFlight = old.records[prev.record].inFlight
		if old.records[prev.record].queued {
			s.queue(r)
		}
	}
	if prev.flags&resident == 0 {
		s.unlink(at)
	}
}

// state returns an entry's state as policies see it.
func (s *shard) state(i int32) selection.State { return s.layout.state(s.value(i)) }
