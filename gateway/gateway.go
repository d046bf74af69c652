package gateway

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler"
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
	// Ready counts the connected replicas. With none, queries may wait ColdStart for the first one.
	Ready     atomic.Int32
	ColdStart time.Duration
	// Stats are the model's own requests (not those through functions).
	Stats *obs.Endpoint

	label []byte // `"name@version"`, as answers name it
}

// NewModel makes a model; the caller may still set what is exported before it is published in a table.
func NewModel(id api.ModelID, sig api.Signature, lane Lane, direct int32, stats *obs.Endpoint) *Model {
	return &Model{ID: id, Signature: sig, Lane: lane, Direct: direct, Stats: stats, label: []byte(`"` + id.String() + `"`)}
}

// Function is one HTTP function as the query path sees it; immutable once published.
type Function struct {
	Name      string
	SLO       time.Duration
	ColdStart time.Duration
	// Default is the JSON of the default output; nil when the function has none.
	Default []byte
	// Candidates are the models that may answer the function's queries; all of them take the same inputs.
	Candidates []Candidate
	// Choice says which candidate the next query goes to; nil: to the first.
	Choice Choice
	Stats  *obs.Endpoint
}

// Candidate is a model that may answer a function's queries, through sub-queue Queue of its lane.
type Candidate struct {
	Model *Model
	Queue int32
}

// Choice is what the scheduler's plan says of a function.
type Choice interface {
	// Pick is the index of the candidate that the next request goes to; -1: it is to be refused.
	Pick() int
	// Refuse is told how many queries were.
	Refuse(queries int)
}

// pick chooses the candidate for a request; refused: the plan has no place for it. A candidate without a replica is passed
// over for the first one that has any: the plan follows only some milliseconds later.
func (f *Function) pick() (c Candidate, refused bool) {
	i := 0
	if f.Choice != nil {
		i = f.Choice.Pick()
	}
	if i < 0 || i >= len(f.Candidates) {
		return f.Candidates[0], true
	}
	if len(f.Candidates) > 1 && f.Candidates[i].Model.Ready.Load() == 0 {
		for _, other := range f.Candidates {
			if other.Model.Ready.Load() > 0 {
				return other, false
			}
		}
	}
	return f.Candidates[i], false
}

// Table is everything that can be asked for by name. A table is never changed: the composition publishes a new one.
type Table struct {
	Functions map[string]*Function
	// Models maps a name to its serving version, Versions every version by its id.
	Models   map[string]*Model
	Versions map[api.ModelID]*Model
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
}

// ReplyMode says who writes an answer to its connection.
type ReplyMode string

// ReplyAsync lets the side that completes a query write the answer; ReplyWait keeps a goroutine waiting for each request, which
// costs a wake-up more.
const (
	ReplyAsync ReplyMode = "async"
	ReplyWait  ReplyMode = "wait"
)

// Gateway holds the table and the ids of queries.
type Gateway struct {
	cfg   Config
	table atomic.Pointer[Table]
	ids   queryIDs
	calls sync.Pool
	items sync.Pool
	date  atomic.Pointer[[]byte] // the head of an answer up to its content type, with today's Date
	open  atomic.Int64           // calls that are not finished
	empty chan struct{}          // told when open reaches 0 while draining
	stop  chan struct{}
}

// New makes a gateway with an empty table.
func New(cfg Config) *Gateway {
	if cfg.MaxBatch == 0 {
		cfg.MaxBatch = 4096
	}
	if cfg.Reply == "" {
		cfg.Reply = ReplyAsync
	}
	g := &Gateway{cfg: cfg, empty: make(chan struct{}, 1), stop: make(chan struct{})}
	g.calls.New = func() any {
		c := &call{g: g, done: make(chan struct{}, 1), free: make(chan struct{}, 1)}
		c.solo.Owner = &c.solo
		return c
	}
	g.items.New = func() any { it := &item{}; it.Owner = it; return it }
	g.ids.init()
	g.table.Store(&Table{})
	g.stampDate(time.Now())
	go g.keepDate()
	return g
}

// Publish replaces the table. Queries under way keep what they were given.
func (g *Gateway) Publish(t *Table) { g.table.Store(t) }

// Open is the number of requests that are not answered.
func (g *Gateway) Open() int { return int(g.open.Load()) }

// Close ends the gateway's own goroutine. Calls must have ended before.
func (g *Gateway) Close() { close(g.stop) }

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
func (g *Gateway) keepDate() {
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

func (g *Gateway) stampDate(now time.Time) {
	b := []byte("Server: xebec\r\nDate: " + now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\r\nContent-Type: ")
	g.date.Store(&b)
}
