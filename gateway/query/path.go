package query

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// Config configures a path.
type Config struct {
	Now func() api.Nanos
	// MaxBatch bounds the queries of one request; DefaultMaxBatch when 0.
	MaxBatch int
	// Cache is the models' cache; a small one if nil.
	Cache *cache.Cache
	// Timers end members that wait for another query's evaluation at their deadline. They are needed if any model has a
	// cache.
	Timers *driver.Timers
	// FeedbackWindow is the number of recent queries that feedback can be joined with: DefaultFeedbackWindow if 0, none if negative.
	FeedbackWindow int
	// FeedbackBytes bounds the inputs and predictions that are kept until feedback comes: DefaultFeedbackBytes if 0, none if negative.
	FeedbackBytes int64
	// Unread says why names may be missing that are declared: the declarations have not been read. Empty: they have been. It is
	// asked for each unknown name; nil: they always have been.
	Unread func() string
}

// DefaultMaxBatch bounds the queries of one request.
const DefaultMaxBatch = 4096 //xebec:limit queries in one request

// Path holds the table, the ids of queries, and the recent queries for feedback. It starts no goroutine and need not be
// closed.
type Path struct {
	cfg       Config
	table     atomic.Pointer[Table]
	readers   grace // requests that use a table
	ids       queryIDs
	joins     *joins
	inherited inherited
	asking    atomic.Int32 // feedback that waits for predictions
	wall      wall         // for the inference log

	open    atomic.Int64  // requests that are not delivered
	drained chan struct{} // capacity 1: signalled when open reaches 0

	queries   sync.Pool // of requests with several queries
	members   sync.Pool // of queries with several members
	waits     sync.Pool // requests of Do and Ask
	learnings sync.Pool
}

// New makes a path with an empty table.
func New(cfg Config) *Path {
	if cfg.MaxBatch == 0 {
		cfg.MaxBatch = DefaultMaxBatch
	}
	if cfg.Cache == nil {
		cfg.Cache = cache.New(0)
	}
	if cfg.FeedbackWindow == 0 {
		cfg.FeedbackWindow = DefaultFeedbackWindow
	}
	if cfg.FeedbackBytes == 0 {
		cfg.FeedbackBytes = DefaultFeedbackBytes
	}
	p := &Path{cfg: cfg, drained: make(chan struct{}, 1)}
	p.readers.init()
	p.queries.New = func() any { q := &Query{}; q.first.init(); return q }
	p.members.New = func() any { m := &member{}; m.init(); return m }
	p.waits.New = func() any { return newWait(p) }
	p.learnings.New = func() any { return newLearning(p) }
	p.ids.init()
	p.joins = newJoins(cfg.FeedbackWindow, cfg.FeedbackBytes, &p.ids)
	p.table.Store(&Table{})
	return p
}

// Publish replaces the table. Requests in flight keep what they have looked up until Quiesce says that they have ended.
func (p *Path) Publish(t *Table) {
	t.seal()
	p.table.Store(t)
	p.readers.next()
}

// Quiesce waits until the queries of every request opened before the call are in their lanes, or ctx ends. Later requests
// see the current table or a newer one.
func (p *Path) Quiesce(ctx context.Context) error {
	p.readers.next()
	return p.readers.wait(ctx)
}

// Function returns a function, or nil if there is none.
func (p *Path) Function(name string) *Function { return p.table.Load().Functions[name] }

// FindFunction returns a function, or an error that says that there is none, or that it is not known yet.
func (p *Path) FindFunction(name string) (*Function, error) {
	fn := p.Function(name)
	if fn == nil {
		if u := p.table.Load().Unlinked[name]; u != nil {
			return nil, api.Errorf(api.NoReplica, "%w", &UnlinkedError{u})
		}
		return nil, p.unknown("function", name, ": `xebec get functions` lists those that exist")
	}
	return fn, nil
}

// Functions returns the names of all functions in alphabetical order.
func (p *Path) Functions() []string { return slices.Sorted(maps.Keys(p.table.Load().Functions)) }

// Model returns a model's serving version, or the named version or label.
func (p *Path) Model(name, version string) (*Model, error) {
	return p.model(p.table.Load(), name, version)
}

// Versions returns the versions of a model in order, without labels.
func (p *Path) Versions(name string) []string { return p.table.Load().versions(name) }

// Endpoints calls yield with the counters of each function ("function NAME"), and of each version for the requests that address it
// ("model NAME@VERSION").
func (p *Path) Endpoints(yield func(name string, e *obs.Endpoint)) {
	t := p.table.Load()
	for name, fn := range t.Functions {
		yield("function "+name, fn.Stats)
	}
	for id, m := range t.Versions {
		if id == m.ID { // otherwise a label
			yield("model "+id.String(), m.Stats)
		}
	}
}

// MaxBatch bounds the queries of one request.
func (p *Path) MaxBatch() int { return p.cfg.MaxBatch }

// Forget drops the remembered queries of a deleted function.
func (p *Path) Forget(function string) {
	p.joins.forget(function)
	p.inherited.forget(function)
}

// Open is the number of requests that are not answered.
func (p *Path) Open() int { return int(p.open.Load()) }

// Drain waits until every open request is answered, or ctx ends. The caller must have stopped new requests.
func (p *Path) Drain(ctx context.Context) error {
	for p.open.Load() > 0 {
		select {
		case <-p.drained:
		case <-ctx.Done():
			return fmt.Errorf("%d requests were not answered within the drain timeout", p.Open())
		}
	}
	return nil
}

// queryIDs makes ids that fit the integers of a JavaScript number: 10 bits for the gateway and 43 for a sequence number.
// Both start at random, so that a restarted gateway does not reuse the ids of earlier queries.
type queryIDs struct {
	gateway uint64
	next    atomic.Uint64
}

const sequenceBits = 43

func (q *queryIDs) init() {
	q.gateway = rand.Uint64N(1<<10) << sequenceBits
	q.next.Store(rand.Uint64N(1 << sequenceBits))
}

// take returns the first of n consecutive sequence numbers, whose ids are consecutive too.
func (q *queryIDs) take(n int) uint64 {
	for {
		end := q.next.Add(uint64(n))
		if first := end - uint64(n); first>>sequenceBits == (end-1)>>sequenceBits {
			return first
		}
	}
}

func (q *queryIDs) id(seq uint64) uint64 { return q.gateway | seq&(1<<sequenceBits-1) }
