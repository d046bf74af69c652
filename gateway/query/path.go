package query

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/drift"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// Lane is where the queries of one model version go. SubmitAll never blocks and does not keep the slice beyond the hand-over; the
// owners of the items are told the rest.
type Lane interface {
	SubmitAll(items []*scheduler.Item)
	Cancel(it *scheduler.Item)
}

// Model is one model version that can be asked.
type Model struct {
	ID        api.ModelID
	Signature api.Signature
	Lane      Lane
	// Direct is the sub-queue of requests that address the model itself.
	Direct int32
	// Wake asks for a replica where there is none, for somebody wants an answer; nil: nobody can be asked. It is called for each such query
	// and must not block.
	Wake func()
	// Asleep: it has no replica because nobody asks it, and whoever does wakes it.
	Asleep atomic.Bool
	// Ready counts the connected replicas. With none, queries may wait ColdStart for the first one.
	Ready     atomic.Int32
	ColdStart time.Duration
	// Down says that no replica is ready and none is about to be.
	Down atomic.Bool
	// Closed versions answer nobody: they are not loaded, or have not shown yet that they may be asked.
	Closed atomic.Bool
	// Cache keeps its predictions, while CacheOn; nil: it has none.
	Cache   *cache.Model
	CacheOn atomic.Bool
	// Told: a worker has said what the model can do. Until then nothing is cached, for it may see contexts.
	Told atomic.Bool
	// Contextual models see their callers' contexts, which are then a part of what is looked up in the cache. Teachable ones learn
	// from labels, which Teach hands to every replica; what they predict changes, so it is not cached. Both follow from what their workers
	// say of themselves.
	Contextual, Teachable atomic.Bool
	Teach                 func(inputs []api.Value, context, label []byte)
	// Stats are the model's own requests (not those through functions).
	Stats *obs.Endpoint
	// Drift compares what is served with what was validated; nil: there is nothing to compare with.
	Drift atomic.Pointer[drift.Watch]

	label   []byte       // `"name@version"`, as answers name it
	drifted atomic.Int64 // when Drift was shown a query last
}

// NewModel makes a model; the caller may still set what is exported before it is published in a table.
func NewModel(id api.ModelID, sig api.Signature, lane Lane, direct int32, stats *obs.Endpoint) *Model {
	return &Model{ID: id, Signature: sig, Lane: lane, Direct: direct, Stats: stats, label: []byte(`"` + id.String() + `"`)}
}

// Function is one HTTP function as the query path sees it; immutable once published. What it counts and learns outlives it.
type Function struct {
	Name      string
	SLO       time.Duration
	ColdStart time.Duration
	// Default is the JSON of the default output; nil when the function has none.
	Default []byte
	// MinConfidence is what an answer needs for not being replaced by Default; 0: nothing.
	MinConfidence float64
	// Candidates are the models that may answer the function's queries; all of them have the same signature.
	Candidates []Candidate
	// Choice says what the plan has room for; nil: everything.
	Choice Choice
	// Selects: Selector chooses for each query whom to ask, one or, with Mode Several, any number. Otherwise Choice picks a
	// candidate for each request. Selector is told of feedback either way.
	Selects  bool
	Mode     selection.Mode
	Selector Selector
	// Loss is how far a numeric prediction is from a label.
	Loss selection.Loss
	// Averages are for functions whose numeric outputs are averaged; nil: outputs are labels.
	Averages *Averages
	// Shadows are asked too, for a part of the queries, and compared; and so are Tees, with the candidate that each belongs to.
	Shadows []Shadow
	Tees    []Tee
	// Log takes a sample of the queries; nil: none.
	Log   *inferlog.Stream
	Stats *obs.Endpoint
	// Learning counts feedback and who took part, Losses what feedback has said of each candidate.
	Learning *obs.Learning
	Losses   []obs.Loss

	ruled selection.Set // candidates with a Route
}

// Candidate is a model that may answer a function's queries, through sub-queue Queue of its lane.
type Candidate struct {
	Model *Model
	Queue int32
	// Route gives some of the candidate's queries to another version; nil: none.
	Route *Route
}

// Shadow is a model that sees a part of a function's queries and answers none.
type Shadow struct {
	Candidate
	Part float64 // of the queries, from 0 to 1
	// Choice has the model as its only member; nil: no limits.
	Choice Choice
}

// Selector is a policy with what it has learned: *learned.Function is one.
type Selector interface {
	Select(context []byte, q *selection.Query, out *selection.Selection)
	Combine(context []byte, c *selection.Combining)
	Observe(context []byte, f *selection.Feedback)
}

// Choice is what the scheduler's plan says of a function: *driver.Choice is one. Which methods are called follows from how the
// function's models are chosen.
type Choice interface {
	// Pick is the index of the candidate that the next request goes to; -1: it is to be refused. For functions that do not select.
	Pick() int
	// Refuse is told how many queries were.
	Refuse(queries int)
	// Members are the candidates that the next query may ask, for policies that ask several. Arrived is told how many queries have
	// come that need any.
	Members() uint64
	Arrived(queries int)
	// Limits writes to dst what part of the policy's wish for each candidate there is room for, and returns it; nil: all. Refusing says
	// that the next query is to be refused. Wish is told whom the policy would have asked. For policies that ask one.
	Limits(dst []float64) []float64
	Refusing() bool
	Wish(candidate int)
}

// pick chooses the candidate for a request of a function that does not select; refused: the plan has no place for it. A
// candidate without a replica is passed over for the first one that has any: the plan follows only some milliseconds later.
func (fn *Function) pick() (candidate int, refused bool) {
	if fn.Selects {
		return 0, false
	}
	i := 0
	if fn.Choice != nil {
		i = fn.Choice.Pick()
	}
	if i < 0 || i >= len(fn.Candidates) {
		return 0, true
	}
	if len(fn.Candidates) > 1 && !fn.Candidates[i].ready() {
		fn.Candidates[i].Model.wake() // for those who come later
		for other := range fn.Candidates {
			if fn.Candidates[other].ready() {
				return other, false
			}
		}
	}
	return i, false
}

// ready reports whether a version that the candidate stands for has a replica.
func (c *Candidate) ready() bool {
	return c.Model.serves() || c.Route != nil && c.Route.Model.serves()
}

// serves reports whether a query would be evaluated at once.
func (m *Model) serves() bool { return m.Ready.Load() > 0 && !m.Closed.Load() }

// allowed are the candidates that the call may ask and that have replicas; if none has (ready is false), those that may get one in time.
func (c *call) allowed() (allowed selection.Set, ready bool) {
	fn, only := c.fn, c.only
	if only == 0 {
		only = selection.All(len(fn.Candidates))
	}
	serving, coming, missed := selection.Set(0), selection.Set(0), selection.Set(0)
	for rest := only; rest != 0; rest &= rest - 1 {
		i := rest.First()
		m, _ := c.target(i)
		if m.Ready.Load() == 0 {
			missed = missed.With(i)
		}
		switch {
		case m.Closed.Load():
		case m.Ready.Load() > 0:
			serving = serving.With(i)
		case !m.Down.Load() || !fn.hurried():
			coming = coming.With(i)
		}
	}
	if serving == 0 {
		missed &^= coming // who of them is asked is woken then
	}
	for rest := missed; rest != 0; rest &= rest - 1 {
		m, _ := c.target(rest.First())
		m.wake() // whoever answers now
	}
	if serving == 0 {
		return coming, false
	}
	return serving, true
}

// hurried functions have an answer to give at once where there is nobody to ask, and nothing to wait for.
func (fn *Function) hurried() bool { return fn.Default != nil && fn.ColdStart == 0 }

// wake asks for a replica where there is none.
func (m *Model) wake() {
	if m.Wake != nil && !m.Closed.Load() {
		m.Wake()
	}
}

// miss asks for a replica where there is none. It is called when the query is in the lane: whoever takes the last replica away, or lets the
// model be woken, looks there afterwards, so that one of the two sees the other. What is in the cache needs none.
func (m *Model) miss() {
	if m.Ready.Load() == 0 {
		m.wake()
	}
}

// awake reports whether a query would be evaluated at once, and sees to it that later ones are.
func (m *Model) awake() bool {
	m.miss()
	return m.serves()
}

// DefaultColdStart is how long a query waits for a model that sleeps where its function says nothing, and has no default to answer with
// sooner: what an interpreter with large libraries takes to start.
const DefaultColdStart = 10 * time.Second

// coldStart is how long a query of the function may wait for the model's first replica.
func (fn *Function) coldStart(m *Model) time.Duration {
	if fn.ColdStart > 0 || fn.Default != nil || m.Down.Load() {
		return fn.ColdStart
	}
	return DefaultColdStart
}

// keepInputs reports whether a candidate learns from labels, and needs inputs for that.
func (fn *Function) keepInputs() bool {
	for i := range fn.Candidates {
		c := &fn.Candidates[i]
		if c.Model.Teachable.Load() || c.Route != nil && c.Route.Model.Teachable.Load() {
			return true
		}
	}
	return false
}

// down reports whether the model has no replica and is about to get none.
func (m *Model) down() bool { return m.Ready.Load() == 0 && m.Down.Load() }

// cached is the model's cache, nil where its predictions are not to be kept.
func (m *Model) cached() *cache.Model {
	if m.Cache == nil || !m.CacheOn.Load() || !m.Told.Load() || m.Teachable.Load() {
		return nil
	}
	return m.Cache
}

// Table is everything that can be asked for by name. A table is never changed: the composition publishes a new one.
type Table struct {
	Functions map[string]*Function
	// Models maps a name to its serving version, Versions every version by its id; labels are versions there too.
	Models   map[string]*Model
	Versions map[api.ModelID]*Model
	// Routes and Tees are the rules of models that are addressed by name, by that name.
	Routes map[string]*Route
	Tees   map[string][]Tee
}

// seal computes what follows from the rest of a table.
func (t *Table) seal() {
	for _, fn := range t.Functions {
		fn.ruled = 0
		for i := range fn.Candidates {
			if fn.Candidates[i].Route != nil {
				fn.ruled = fn.ruled.With(i)
			}
		}
	}
}

// Config is what a gateway needs to know.
type Config struct {
	Version string
	Now     func() api.Nanos
	// MaxBatch bounds the queries of one request.
	MaxBatch int
	// Ready reports whether /readyz says 200, and if not why.
	Ready func() (bool, string)
	// Reply chooses who writes answers; the zero value is ReplyAsync.
	Reply ReplyMode
	// Cache is that of the models; a small one when nil.
	Cache *cache.Cache
	// Timers end what waits for another query's evaluation; needed where a model has a cache.
	Timers *driver.Timers
	// Joins is how many of the last queries feedback can be joined with: DefaultJoins when 0, none when negative.
	Joins int
}

// ReplyMode says who writes an answer to its connection.
type ReplyMode string

// ReplyAsync lets the side that completes a query write the answer; ReplyWait keeps a goroutine waiting for each request, which
// costs a wake-up more.
const (
	ReplyAsync ReplyMode = "async"
	ReplyWait  ReplyMode = "wait"
)

// Path holds the table and the ids of queries.
type Path struct {
	cfg     Config
	table   atomic.Pointer[Table]
	ids     queryIDs
	calls   sync.Pool
	items   sync.Pool
	members sync.Pool
	joins   *joins
	asking  atomic.Int32           // feedback that waits for predictions
	date    atomic.Pointer[[]byte] // the head of an answer up to its content type, with today's Date
	calm    grace                  // of those who look at the table
	open    atomic.Int64           // calls whose callers wait
	empty   chan struct{}          // told when open reaches 0 while draining
	stop    chan struct{}
	wall    wall // for the inference log
}

// New makes a gateway with an empty table.
func New(cfg Config) *Path {
	if cfg.MaxBatch == 0 {
		cfg.MaxBatch = 4096
	}
	if cfg.Reply == "" {
		cfg.Reply = ReplyAsync
	}
	g := &Path{cfg: cfg, empty: make(chan struct{}, 1), stop: make(chan struct{})}
	g.calm.init()
	g.calls.New = func() any {
		c := &call{g: g, done: make(chan struct{}, 1), free: make(chan struct{}, 1)}
		c.solo.solo.init()
		return c
	}
	g.items.New = func() any { it := &item{}; it.solo.init(); return it }
	g.members.New = func() any { m := &member{}; m.init(); return m }
	g.ids.init()
	if cfg.Cache == nil {
		g.cfg.Cache = cache.New(0)
	}
	if cfg.Joins == 0 {
		cfg.Joins = DefaultJoins
	}
	g.joins = newJoins(cfg.Joins, &g.ids)
	g.table.Store(&Table{})
	g.stampDate(time.Now())
	go g.keepDate()
	return g
}

// Publish replaces the table. Queries under way keep what they were given, until Quiesce says that they have ended.
func (g *Path) Publish(t *Table) {
	t.seal()
	g.table.Store(t)
	g.calm.next()
}

// Quiesce returns when the queries of every request that had begun before it was called are in their lanes, or ctx ends: those that come
// later see the table that is in force now, or a later one.
func (g *Path) Quiesce(ctx context.Context) error {
	g.calm.next()
	return g.calm.wait(ctx)
}

// Forget drops what is remembered of the queries of a function that is no more.
func (g *Path) Forget(function string) { g.joins.forget(function) }

// Open is the number of requests that are not answered.
func (g *Path) Open() int { return int(g.open.Load()) }

// Close ends the gateway's own goroutine. Calls must have ended before.
func (g *Path) Close() { close(g.stop) }

// queryIDs makes numbers that fit a JavaScript number: 10 bits that name the gateway, 43 that count. Both start at random, so
// that a gateway that restarts does not name new queries like old ones.
type queryIDs struct {
	gateway uint64
	next    atomic.Uint64
}

const sequenceBits = 43

func (q *queryIDs) init() {
	q.gateway = rand.Uint64N(1<<10) << sequenceBits
	q.next.Store(rand.Uint64N(1 << sequenceBits))
}

// take returns the first of n consecutive ids.
func (q *queryIDs) take(n int) uint64 { return q.next.Add(uint64(n)) - uint64(n) }

func (q *queryIDs) id(seq uint64) uint64 { return q.gateway | seq&(1<<sequenceBits-1) }

// The Date header is written once a second, not once an answer.
func (g *Path) keepDate() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			g.stampDate(now)
		case <-g.stop:
			return
		}
	}
}

func (g *Path) stampDate(now time.Time) {
	b := []byte("Server: xebec\r\nDate: " + now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\r\nContent-Type: ")
	g.date.Store(&b)
}
