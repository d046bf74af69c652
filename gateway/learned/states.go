package learned

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// lineage is a function under one policy, across changes of its candidates. Its keys in the store stay the same.
type lineage struct {
	function, policy string
	// now is the current states; nil if the function was deleted or has another policy. Guarded by Table.mu.
	now *states
	// marks are the notifications to the writer that it has not processed yet.
	marks atomic.Uint32

	loading bool         // queued for reading; owned by the writer
	pending atomic.Int64 // states with a ledger
}

// Marks of a lineage, which notify the writer.
const (
	toSend uint32 = 1 << iota // something was learned
	toLoad                    // a state must be read
	inUse                     // a query used a state
	toSave                    // a value is new or was changed
)

// states is what a function has learned, with one layout of candidates.
type states struct {
	table   *Table
	lineage *lineage
	layout  *layout
	global  global
	// value is what a policy has learned that is a Valuer; nil for the others.
	value *value

	// shards are made with the first context: most of ten thousand functions have none.
	shards atomic.Pointer[[]shard]
	makeMu sync.Mutex

	// next is the Function to continue with if a state has moved; nil if there is none.
	next atomic.Pointer[Function]
}

// global is a function's state over all contexts.
type global struct {
	mu      sync.RWMutex
	moved   bool
	version atomic.Uint32 // changes with the value; written under the lock
	value   []float64
	scratch []float64
	memory  []float64 // the ledger's vectors, allocated with the first delta
	open    bool      // there is a ledger
	record
	wanted, complete bool
}

func (g *global) ledger() ledger { return ledgerIn(g.memory) }

func newStates(t *Table, lin *lineage, l *layout) *states {
	st := &states{table: t, lineage: lin, layout: l}
	st.global.value = make([]float64, l.width())
	l.policy.Init(l.state(st.global.value))
	if v := selection.NewValue(l.policy, len(l.refs)); v != nil {
		st.value = newValue(t, l, v)
	}
	return st
}

// shardOf returns the shard of a hash and makes the shards if there are none yet.
func (st *states) shardOf(hash xxh3.Uint128) *shard {
	p := st.shards.Load()
	if p == nil {
		p = st.makeShards(false)
	}
	shards := *p
	return &shards[int(hash.Hi)&(len(shards)-1)]
}

func (st *states) makeShards(moved bool) *[]shard {
	st.makeMu.Lock()
	defer st.makeMu.Unlock()
	if p := st.shards.Load(); p != nil {
		return p
	}
	n := shardsFor(st.table.cfg.Contexts)
	if moved {
		n = 1 // a moved shard only redirects queries: one is enough
	}
	shards := make([]shard, n)
	for i := range shards {
		capacity := st.table.cfg.Contexts / n
		if i < st.table.cfg.Contexts%n {
			capacity++
		}
		shards[i].init(st.layout, capacity)
		shards[i].moved = moved
	}
	st.shards.Store(&shards)
	return &shards
}

// shardsFor returns the largest power of two that leaves each shard enough contexts.
func shardsFor(contexts int) int {
	n := min(max(contexts/minShardContexts, 1), maxShards)
	return 1 << (bits.Len(uint(n)) - 1)
}

// adopt takes over the states of the previous layout. Concurrent queries find each state either there, or moved to
// here. The caller holds Table.mu.
func (st *states) adopt(old *states) {
	c := st.layout.composer(old.layout.refs)
	if st.value != nil && old.value != nil {
		st.value.adopt(old.value)
	}
	st.global.adopt(&old.global, c, old.layout)
	from := *old.makeShards(true)
	if len(from) != shardsFor(st.table.cfg.Contexts) {
		return // the shards were made by the call above: there were no contexts
	}
	to := *st.makeShards(false)
	for i := range from {
		to[i].adoptAll(&from[i], c)
	}
}

func (g *global) adopt(old *global, c *composer, l *layout) {
	old.mu.Lock()
	defer old.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	c.compose(g.value, l.state(old.value))
	g.wanted = old.wanted
	g.version.Store(1) // contexts that follow the global state have version 0 and derive from it again
	if old.open {
		g.memory = make([]float64, ledgerVectors*len(g.value))
		g.open, g.record = true, old.record
		g.ledger().adopt(c, g.value, l, old.ledger())
	}
	old.moved = true
}

// touch finds or inserts the context's entry in its shard, which the caller has locked, and makes it the most recently
// used one.
func (st *states) touch(s *shard, context []byte, hash xxh3.Uint128, p selection.Policy) int32 {
	t := st.table
	i := s.find(context, hash)
	if i == none || s.entries[i].flags&resident == 0 {
		if s.resident >= s.capacity {
			s.evict()
			t.evicted.Add(1)
		} else {
			t.contexts.Add(1)
		}
	}
	if i == none {
		i = s.insert(context, hash)
		s.entries[i].flags |= followsGlobal
		if t.store != nil {
			s.want(i)
			t.mark(st.lineage, toLoad)
		}
		st.descend(s, i, p)
	} else {
		s.use(i)
		if e := &s.entries[i]; e.flags&followsGlobal != 0 && e.version != st.global.version.Load() {
			st.descend(s, i, p)
		}
	}
	if t.refreshes {
		t.mark(st.lineage, inUse)
	}
	return i
}

// descend writes the initial state of a context.
func (st *states) descend(s *shard, i int32, p selection.Policy) {
	g := &st.global
	g.mu.RLock()
	p.InitContext(st.layout.state(g.value), s.state(i))
	s.entries[i].version = g.version.Load()
	g.mu.RUnlock()
}

// learn adds a policy's delta to an entry of a locked shard.
func (st *states) learn(s *shard, i int32, delta []float64) {
	value := s.value(i)
	if !st.table.addable(value, delta) {
		return
	}
	e := &s.entries[i]
	if st.table.store != nil && e.record == none {
		if st.table.admit() {
			s.openLedger(i)
			st.lineage.pending.Add(1)
		} else {
			st.table.lost.Add(1)
		}
	}
	e.flags &^= followsGlobal
	add(value, delta)
	if e.record == none {
		return
	}
	add(s.ledger(e.record).delta, delta)
	// The store's state must be read before anything is added to it: rows that it lacks are inherited from rows that it
	// has.
	if e.flags&wanted == 0 && s.queue(e.record) {
		st.table.mark(st.lineage, toSend)
	}
}

// learnGlobal is learn for the global state, which the caller has locked for writing.
func (st *states) learnGlobal(delta []float64) {
	g := &st.global
	if !st.table.addable(g.value, delta) {
		return
	}
	if st.table.store != nil && !g.open {
		if g.memory == nil {
			g.memory = make([]float64, ledgerVectors*len(g.value))
		}
		g.open = true
		g.ledger().open(g.value)
		st.table.pending.Add(1) // one for each function: not limited by MaxPending
		st.lineage.pending.Add(1)
	}
	add(g.value, delta)
	g.version.Add(1)
	if !g.open {
		return
	}
	add(g.ledger().delta, delta)
	if !g.wanted && !g.inFlight && !g.queued {
		g.queued = true
		st.table.mark(st.lineage, toSend)
	}
}

// applyReply applies the store's totals to a context's state or, if context is empty, to the global one. The caller
// holds Table.mu.
func (st *states) applyReply(context []byte, totals []state.Total, why replyKind) {
	if len(context) == 0 {
		st.applyGlobalReply(totals, why)
		return
	}
	if st.shards.Load() == nil {
		return
	}
	hash := st.table.hash(context)
	s := st.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(context, hash)
	if i == none {
		return // evicted meanwhile: it will be read again
	}
	e := &s.entries[i]
	h := replyTarget{value: s.value(i), wanted: e.flags&wanted != 0}
	if e.record != none {
		h.ledger, h.inFlight = s.ledger(e.record), &s.records[e.record].inFlight
	}
	applied, found, isComplete := st.layout.applyReply(h, totals, why)
	s.unwant(i)
	if !applied {
		return
	}
	e.flags &^= complete
	if isComplete {
		e.flags |= complete
	}
	if found {
		e.flags &^= followsGlobal
	}
	switch {
	case e.record == none:
	case h.ledger.settled() && !s.records[e.record].queued:
		st.countClosed()
		s.closeLedger(i)
	case s.queue(e.record):
		st.table.mark(st.lineage, toSend)
	}
}

func (st *states) applyGlobalReply(totals []state.Total, why replyKind) {
	g := &st.global
	g.mu.Lock()
	defer g.mu.Unlock()
	h := replyTarget{value: g.value, wanted: g.wanted}
	if g.open {
		h.ledger, h.inFlight = g.ledger(), &g.inFlight
	}
	applied, _, isComplete := st.layout.applyReply(h, totals, why)
	g.wanted = false
	if !applied {
		return
	}
	g.complete = isComplete
	g.version.Add(1)
	switch {
	case !g.open:
	case h.ledger.settled() && !g.queued:
		st.countClosed()
		g.open = false
	case !g.inFlight && !g.queued:
		g.queued = true
		st.table.mark(st.lineage, toSend)
	}
}

// countClosed counts a closed ledger.
func (st *states) countClosed() {
	st.table.pending.Add(-1)
	st.lineage.pending.Add(-1)
}
