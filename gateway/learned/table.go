package learned

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Defaults and limits.
const (
	// MaxContextBytes is the longest context that has a state of its own.
	MaxContextBytes = 256
	// DefaultContexts is how many contexts of a function are in memory: with five candidates, four megabytes.
	DefaultContexts = 16384
	// DefaultMaxPending is how many states may have deltas that the store has not got. With five candidates they take some 40 MB.
	DefaultMaxPending = 65536
	// DefaultSharedFlush keeps what a gateway has learned from the others for no longer than they would notice; a file is
	// synchronised with each flush, which wears it, and nobody else reads it.
	DefaultSharedFlush = 10 * time.Millisecond
	DefaultFileFlush   = time.Second
	// DefaultRefresh is how old what a gateway has read of the others' learning may be.
	DefaultRefresh = 250 * time.Millisecond
)

// Config is what a table needs. The zero value keeps everything in memory.
type Config struct {
	// Store is where what was learned outlives the process. It stays the caller's, who closes it after the table. nil: nowhere.
	Store state.Store
	// Contexts is how many contexts of each function are in memory; 0: DefaultContexts.
	Contexts int
	// Flush is how often what was learned is written, 0: as suits the store. Refresh is how often states in use are read again
	// from a store that others write to; 0: DefaultRefresh, negative: never.
	Flush, Refresh time.Duration
	// MaxPending is how many contexts' states may have deltas that are not written; 0: DefaultMaxPending.
	MaxPending int
	// Log is told when the store goes away and comes back; nil: nobody is.
	Log *zap.Logger
}

func (c Config) withDefaults() Config {
	shared := c.Store != nil && c.Store.Shared()
	if c.Contexts <= 0 {
		c.Contexts = DefaultContexts
	}
	if c.MaxPending <= 0 {
		c.MaxPending = DefaultMaxPending
	}
	if c.Flush <= 0 {
		c.Flush = DefaultFileFlush
		if shared {
			c.Flush = DefaultSharedFlush
		}
	}
	if c.Refresh == 0 {
		c.Refresh = DefaultRefresh
	}
	if !shared {
		c.Refresh = -1
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// Table is what all functions have learned. Any number of goroutines may use it.
type Table struct {
	cfg       Config
	store     state.Store
	refreshes bool
	seed      uint64 // of the hash of contexts: nobody can choose contexts that collide

	contexts, evicted, pending, lost atomic.Int64
	rejected                         atomic.Int64

	// mu orders declarations and what the writer does between its calls of the store. No query takes it.
	mu        sync.Mutex
	functions map[string]*Function
	forgets   []string // functions whose states the store is still to drop

	inbox struct {
		mu    sync.Mutex
		notes []note
	}
	writer writer
}

// note is a mark that was made on a lineage.
type note struct {
	lineage *lineage
	what    uint32
}

// New makes a table. With a store it starts a goroutine, which Close ends.
func New(cfg Config) *Table {
	t := newTable(cfg)
	if t.store != nil {
		go t.run()
	}
	return t
}

// newTable is New without the goroutine.
func newTable(cfg Config) *Table {
	t := &Table{cfg: cfg.withDefaults(), store: cfg.Store, seed: rand.Uint64(), functions: map[string]*Function{}}
	t.refreshes = t.store != nil && t.cfg.Refresh > 0
	t.writer.init()
	return t
}

func (t *Table) hash(context []byte) xxh3.Uint128 { return xxh3.Hash128Seed(context, t.seed) }

// Declare says which policy a function has and which candidates, at most [selection.MaxCandidates] different refs: "name" or
// "name@version". It may be called again at any time.
//
// Under the same policy (by its name; parameters may differ) nothing is forgotten: a candidate that stays keeps its row,
// whatever its place. A version whose model had another version among the candidates, which is gone, inherits that one's row.
// Others join at the mean. Under another policy the function starts anew, or where it stopped when it had that policy, if
// the store knows. A Function that was handed out before stays valid.
func (t *Table) Declare(function string, p selection.Policy, candidates []string) *Function {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.functions[function]
	l := newLayout(p, candidates)
	var f *Function
	switch {
	case old == nil || old.policy.Name() != p.Name():
		if old != nil {
			t.retire(old)
		}
		lin := &lineage{function: function, policy: p.Name()}
		lin.now = newStates(t, lin, l)
		f = t.newFunction(function, p, lin.now)
		t.wantGlobal(f)
	case old.states.layout.same(l):
		if reflect.DeepEqual(old.policy, p) {
			return old
		}
		f = t.newFunction(function, p, old.states)
	default:
		st := newStates(t, old.states.lineage, l)
		f = t.newFunction(function, p, st)
		old.states.next.Store(f)
		st.adopt(old.states)
		st.lineage.now = st
	}
	t.functions[function] = f
	return f
}

// wantGlobal has a new function's global state read.
func (t *Table) wantGlobal(f *Function) {
	if t.store == nil || !f.learns {
		return
	}
	f.states.global.wanted = true
	t.mark(f.states.lineage, toLoad)
}

// Forget drops all that a function that was deleted has learned, here and in the store. While the store is away that waits.
func (t *Table) Forget(function string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.functions[function]; f != nil {
		t.retire(f)
		delete(t.functions, function)
	}
	if t.store != nil {
		t.forgets = append(t.forgets, function)
		t.kick()
	}
}

// end freezes what a function under one policy has learned. Its memory goes when the last query that uses it has ended.
func (t *Table) retire(f *Function) {
	st := f.states
	st.lineage.now = nil
	g := &st.global
	g.mu.Lock()
	g.moved = true
	g.mu.Unlock()
	shards := *st.makeShards(true)
	for i := range shards {
		s := &shards[i]
		s.mu.Lock()
		if !s.moved {
			s.moved = true
			t.contexts.Add(-int64(s.resident))
		}
		s.mu.Unlock()
	}
	t.pending.Add(-st.lineage.pending.Swap(0))
}

// admit takes one of the places for states with a ledger, or reports that there is none.
func (t *Table) admit() bool {
	if t.pending.Add(1) > int64(t.cfg.MaxPending) {
		t.pending.Add(-1)
		return false
	}
	return true
}

// addable reports whether a delta says anything, and nothing that could not be added: a number that is not finite would stay in
// a sum for ever, here and in the store.
func (t *Table) addable(value, delta []float64) bool {
	changes := false
	for i, d := range delta {
		if !isFinite(value[i] + d) {
			t.rejected.Add(1)
			return false
		}
		changes = changes || d != 0
	}
	return changes
}

// mark tells the writer of a lineage, once until the writer has looked.
func (t *Table) mark(l *lineage, what uint32) {
	if l.marks.Load()&what != 0 || l.marks.Or(what)&what != 0 {
		return
	}
	t.inbox.mu.Lock()
	t.inbox.notes = append(t.inbox.notes, note{l, what})
	t.inbox.mu.Unlock()
	t.kick()
}

func (t *Table) kick() {
	select {
	case t.writer.kick <- struct{}{}:
	default:
	}
}

// Stats are numbers of the whole table, for metrics.
type Stats struct {
	// Contexts are in memory; Evicted counts those that had to leave.
	Contexts, Evicted int64
	// Pending is how many states have deltas that the store has not confirmed. Lost counts deltas that will not be written:
	// because MaxPending states waited already, or because the store refused them. Rejected counts those that were not
	// finite, and were not even learned.
	Pending, Lost, Rejected int64
	// Loads counts states that were read because a query wanted them, Refreshes those that were read again. Flushes counts
	// successful merges, of any number of states, Errors calls of the store that failed, and Refused states that the store did
	// not take or show because of what lies there.
	Loads, Refreshes, Flushes, Errors, Refused int64
	// LastError says what was wrong last with a call, or a state in one; empty: nothing ever was. LastSuccess is when a call last succeeded, zero:
	// never. Away: the last call failed.
	LastError   string
	LastErrorAt time.Time
	LastSuccess time.Time
	Away        bool
}

// Stats returns the numbers of this moment.
func (t *Table) Stats() Stats {
	w := &t.writer
	w.mu.Lock()
	s := w.stats
	w.mu.Unlock()
	s.Contexts, s.Evicted = t.contexts.Load(), t.evicted.Load()
	s.Pending, s.Lost, s.Rejected = t.pending.Load(), t.lost.Load(), t.rejected.Load()
	return s
}
