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
	// DefaultContexts is the number of contexts of a function in memory. With five candidates they take four megabytes.
	DefaultContexts = 16384 //xebec:limit contexts of a function in memory; `--contexts`
	// DefaultMaxPending is how many states may have deltas that the store has not confirmed. With five candidates they
	// take about 40 MB.
	DefaultMaxPending = 65536 //xebec:limit contexts whose changes wait for the store
	// DefaultSharedFlush limits the delay after which other gateways see what this one has learned. DefaultFileFlush is
	// longer: each flush synchronises the file, which wears the device, and no other gateway reads it.
	DefaultSharedFlush = 10 * time.Millisecond //xebec:limit interval between writes of what was learned to Redis
	DefaultFileFlush   = time.Second           //xebec:limit interval between writes of what was learned to a file
	// DefaultRefresh is the greatest age of what a gateway has read of other gateways' learning.
	DefaultRefresh = 250 * time.Millisecond //xebec:limit interval between reads of what other gateways have learned
)

// Config configures a table. The zero value keeps everything in memory.
type Config struct {
	// Store persists what was learned. The caller owns it and closes it after the table. nil means no store.
	Store state.Store
	// Contexts is the number of contexts of each function in memory; 0 means DefaultContexts.
	Contexts int
	// Flush is how often deltas are written; 0 means the default for the kind of store. Refresh is how often states in
	// use are reread from a store with other writers; 0 means DefaultRefresh, negative means never.
	Flush, Refresh time.Duration
	// MaxPending is how many contexts' states may have unwritten deltas; 0 means DefaultMaxPending.
	MaxPending int
	// Later: the store is not there yet, and is not called before Begin.
	Later bool
	// Log receives a message when the store goes down and comes back; nil means no logging.
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

// Table is what all functions have learned. It is safe for concurrent use.
type Table struct {
	cfg       Config
	store     state.Store
	values    state.Values // of the store; nil: it keeps none
	refreshes bool
	seed      uint64 // seeds the hash of contexts, so that clients cannot choose contexts that collide

	contexts, evicted, pending, lost atomic.Int64
	rejected, elsewhere              atomic.Int64

	// mu orders declarations and the writer's work between its calls to the store. Queries never take it.
	mu        sync.Mutex
	functions map[string]*Function
	forgets   []string // functions whose states must still be deleted from the store

	inbox struct {
		mu    sync.Mutex
		notes []note
	}
	writer writer
}

// note is a mark that was set on a lineage.
type note struct {
	lineage *lineage
	what    uint32
}

// New returns a table. With a store it starts a goroutine, which Close stops.
func New(cfg Config) *Table {
	t := newTable(cfg)
	if t.store != nil && !cfg.Later {
		go t.run()
	}
	return t
}

// Begin reads the states that are wanted and begins to write, in a table of Config.Later whose store is there now. When the error is
// not nil the rest is read later.
func (t *Table) Begin() error {
	if t.store == nil || !t.cfg.Later || t.writer.begun {
		return nil
	}
	t.writer.begun = true
	defer func() { go t.run() }()
	t.takeNotes()
	for len(t.writer.load) > 0 {
		if err := t.load(time.Now); err != nil {
			return err
		}
	}
	return t.syncAll(time.Now())
}

// Reread reads every state in memory again, because another writer has added to the store. It returns at once.
func (t *Table) Reread() {
	if t.store != nil {
		t.writer.reread.Store(true)
		t.kick()
	}
}

// newTable is New without the goroutine.
func newTable(cfg Config) *Table {
	t := &Table{cfg: cfg.withDefaults(), store: cfg.Store, seed: rand.Uint64(), functions: map[string]*Function{}}
	t.values, _ = cfg.Store.(state.Values)
	t.refreshes = t.store != nil && t.cfg.Refresh > 0
	t.writer.init()
	return t
}

func (t *Table) hash(context []byte) xxh3.Uint128 { return xxh3.Hash128Seed(context, t.seed) }

// Declare sets a function's policy and candidates: at most [selection.MaxCandidates] distinct refs, each "name" or
// "name@version". It may be called again at any time.
//
// While the policy keeps its name nothing is forgotten, even if its parameters change. A candidate that stays keeps its
// row, whatever its position. A new version inherits the row of another version of its model that was removed. Other
// new candidates join at the mean. Under another policy the function starts from nothing, or from where that policy
// stopped if the store still has its states. A Function that was returned before stays valid.
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
		if v := old.states.value; v != nil {
			v.convert(p, old.states.lineage)
		}
	default:
		st := newStates(t, old.states.lineage, l)
		f = t.newFunction(function, p, st)
		old.states.next.Store(f)
		st.adopt(old.states)
		st.lineage.now = st
		if st.value != nil {
			t.mark(st.lineage, toSave)
		}
	}
	t.functions[function] = f
	return f
}

// wantGlobal marks a new function's global state for reading.
func (t *Table) wantGlobal(f *Function) {
	if t.store == nil || !f.learns {
		return
	}
	f.states.global.wanted = true
	t.mark(f.states.lineage, toLoad)
	if f.states.value != nil {
		t.mark(f.states.lineage, toSave)
	}
}

// Forget deletes everything that a deleted function has learned, here and in the store. While the store is down the
// deletion is queued.
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

// retire freezes what a function has learned under one policy. Its memory is freed when the last query that uses it has
// ended.
func (t *Table) retire(f *Function) {
	st := f.states
	st.lineage.now = nil
	g := &st.global
	g.mu.Lock()
	g.moved = true
	g.mu.Unlock()
	if st.value != nil {
		st.value.retire()
	}
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

// admit reserves a place for a state with a ledger, or returns false if there is none.
func (t *Table) admit() bool {
	if t.pending.Add(1) > int64(t.cfg.MaxPending) {
		t.pending.Add(-1)
		return false
	}
	return true
}

// addable reports whether a delta changes anything and leaves the value finite. A number that is not finite would stay
// in the sum for ever, here and in the store.
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

// mark notifies the writer about a lineage, once until the writer has processed the mark.
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

// Stats are metrics of the whole table.
type Stats struct {
	// Contexts is the number in memory. Evicted counts evictions.
	Contexts, Evicted int64
	// Pending is how many states have deltas that the store has not confirmed. Lost counts deltas that will not be
	// written, because MaxPending states were waiting or because the store refused them. Rejected counts deltas that
	// were not finite, which were not applied at all. Elsewhere counts feedback of which only the losses were learned
	// here, because another gateway has the lease on the policy's value.
	Pending, Lost, Rejected, Elsewhere int64
	// Loads counts states that were read because a query needed them, Refreshes states that were reread. Flushes counts
	// successful merges, of any number of states. Errors counts failed calls to the store. Refused counts states that
	// the store refused to read or write because of what is stored under their name.
	Loads, Refreshes, Flushes, Errors, Refused int64
	// LastError describes the last failed call or refused state; empty if there was none. LastSuccess is the time of
	// the last successful call; zero if there was none. Away means that the last call failed.
	LastError   string
	LastErrorAt time.Time
	LastSuccess time.Time
	Unavailable bool
}

// Stats returns the current metrics.
func (t *Table) Stats() Stats {
	w := &t.writer
	w.mu.Lock()
	s := w.stats
	w.mu.Unlock()
	s.Contexts, s.Evicted = t.contexts.Load(), t.evicted.Load()
	s.Pending, s.Lost, s.Rejected = t.pending.Load(), t.lost.Load(), t.rejected.Load()
	s.Elsewhere = t.elsewhere.Load()
	return s
}

// Learning returns a declared function if its policy learns, otherwise nil.
func (t *Table) Learning(function string) *Function {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.functions[function]; f != nil && f.learns {
		return f
	}
	return nil
}

// LearningFunctions returns the names of the functions whose policies learn, in no order.
func (t *Table) LearningFunctions() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for name, f := range t.functions {
		if f.learns {
			names = append(names, name)
		}
	}
	return names
}
