package query

import (
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
)

// Owner is what a Request is embedded in: a dialect's state for one request. Settled and Deliver are called by the goroutine that ends
// the last query, often one that reads workers' rings, so they must not block.
type Owner interface {
	// Settled: every query has ended. The owner renders its answer from the request, and returns the code that the request is
	// counted with.
	Settled() api.Code
	// Deliver: the request has been counted and logged. The owner sends its answer. If it has not finished when Deliver returns, it
	// must have called Retain, and calls Release when it has.
	Deliver()
	// Released: nothing uses the request any more, and it is ready for the next Open. The owner resets its own state and may return
	// itself to its pool, as the last thing that it does.
	Released()
}

// Request is one request: one query or several to one function or one model, and their common answer. It is embedded by value in its
// Owner, which pools it, so that a request allocates nothing.
//
// Its caller calls Init once, and for each request Open, AskFunction or AskModel, Next for each query, and Submit or Drop. Nothing of it
// may be touched after Submit or Drop, but by the Owner's methods. The exceptions are Retain before Submit, which keeps the request until
// Release, and what is documented for any time.
type Request struct {
	path  *Path
	owner Owner

	// What is asked. fn is nil if the request addresses a model. model has the signature of the inputs, and is asked, through its
	// sub-queue queue, unless the function's policy chooses for each query; candidate is the one that it is a version of.
	fn        *Function
	model     *Model
	queue     int32
	candidate int
	stats     *obs.Endpoint // nil: the request is the gateway's own, and not counted
	arrived   api.Nanos
	slo       api.Nanos
	refused   bool // the plan has no room for it
	learning  bool // its predictions are for feedback, not for a caller
	unlisted  bool // a request of Ask: neither caches nor shadows see it

	// What the request demands of its queries.
	only          selection.Set // candidates that may be asked; 0: all
	forced        selection.Set // candidates whose version the request names,
	forcedOther   selection.Set // and those of them for which that is the other one
	minConfidence float64
	ttl           api.Nanos // from arrival; 0: until the deadline
	// context and salt lie in text one behind the other, followed by the context's length: contextSalt is all of it.
	context, salt, contextSalt []byte
	text                       []byte

	rules  rules // of the function's candidates
	direct []Tee // of a request that addresses a model
	arm    *Arm

	queries []*Query
	first   Query             // most requests have one query
	batch   []*scheduler.Item // members on their way to a lane

	pending   atomic.Int32 // queries that have not ended, and one while they are being submitted
	refs      atomic.Int32 // unreleased members, one for the answer, one until Submit returns, and those of Retain
	submitted atomic.Bool  // Cancel may look at the members
	delivered atomic.Bool  // Drain does not wait for it

	reading bool   // it acts on a table,
	turn    uint32 // since this turn of the path's readers

	// A borrowed body is the only query's input until the request is released; own is the input's buffer meanwhile.
	borrowed bool
	own      []byte
	released chan<- struct{}

	record   inferlog.Record // its memory is kept
	feedback *joinedFeedback // for Feedback; its memory is kept
}

// MaxSLO bounds the time that a request may give its queries. What takes longer is a job, not a query.
const MaxSLO = 10 * time.Minute //xebec:limit `Xebec-Slo-Ms`

// DirectDeadline is the deadline of a request that addresses a model and names none: models have no latency objective.
const DirectDeadline = 30 * time.Second //xebec:limit deadline of a request that addresses a model (Open Inference Protocol)

// Init binds the request to its path and to its owner, for good.
func (r *Request) Init(p *Path, owner Owner) {
	r.path, r.owner = p, owner
	r.first.first.init()
}

// Open begins a request. From here until Submit or Drop it acts on the table in force, and Quiesce waits for it; Drain waits until it is
// answered.
func (r *Request) Open() {
	p := r.path
	p.open.Add(1)
	r.turn, r.reading = p.readers.enter(), true
	r.delivered.Store(false)
	r.refs.Store(2)
}

// AskFunction addresses a function, and chooses a candidate if its plan chooses for whole requests.
func (r *Request) AskFunction(name string) error {
	fn, err := r.find(name)
	if err != nil {
		return err
	}
	r.askFunction(fn)
	return nil
}

func (r *Request) find(function string) (*Function, error) {
	fn := r.path.table.Load().Functions[function]
	if fn == nil {
		return nil, api.Errorf(api.NotFound, "no function %q: `xebec get functions` lists those that exist", function)
	}
	return fn, nil
}

func (r *Request) askFunction(fn *Function) {
	r.arrived = r.path.cfg.Now()
	r.candidate, r.refused = fn.pick()
	r.fn, r.stats, r.slo, r.minConfidence = fn, fn.Stats, api.Nanos(fn.SLO), fn.MinConfidence
	r.model, r.queue = fn.Candidates[r.candidate].Model, fn.Candidates[r.candidate].Queue
}

// AskModel addresses a model: the version or label that is named, or what its traffic rules choose if version is empty.
func (r *Request) AskModel(name, version string) error {
	t := r.path.table.Load()
	m, err := t.model(name, version)
	if err != nil {
		return err
	}
	if version == "" {
		m = r.routeModel(t, m)
	}
	r.arrived = r.path.cfg.Now()
	r.model, r.queue, r.stats, r.slo = m, m.Direct, m.Stats, api.Nanos(DirectDeadline)
	return nil
}

// Within replaces the function's latency objective, or a model's DirectDeadline.
func (r *Request) Within(d time.Duration) { r.slo = api.Nanos(min(d, MaxSLO)) }

// Next begins the next query and returns its inputs, one for each that the signature declares. The caller writes their Data and Dims
// from the start (appends to [:0]), so that their memory is used again. An error means that the request has too many queries.
func (r *Request) Next() ([]api.Value, error) {
	if len(r.queries) >= r.path.cfg.MaxBatch {
		return nil, api.Errorf(api.InvalidArgument, "more than %d inputs in one request: split it", r.path.cfg.MaxBatch)
	}
	q := &r.first
	if len(r.queries) > 0 {
		q = r.path.queries.Get().(*Query)
	}
	q.request = r
	r.queries = append(r.queries, q)
	n := len(r.model.Signature.Inputs)
	if cap(q.Inputs) < n {
		grown := make([]api.Value, n)
		copy(grown, q.Inputs[:cap(q.Inputs)]) // keep the buffers
		q.Inputs = grown
	}
	q.Inputs = q.Inputs[:n]
	return q.Inputs, nil
}

// Borrow makes body the Data of the first input of the only query without copying it, if it can, and reports whether it did. The body's
// owner keeps it unchanged until the request is released, which NotifyReleased tells it. A query that asks several models cannot borrow:
// the slowest of them would keep the body long after the answer.
func (r *Request) Borrow(body []byte) bool {
	if fn := r.fn; fn != nil && (fn.Selects || len(fn.Shadows)+len(fn.Tees) > 0) || len(r.direct) > 0 {
		return false
	}
	v := &r.queries[0].Inputs[0]
	r.own, r.borrowed = v.Data[:0], true
	v.Data = body
	return true
}

// Borrowed reports whether the request has borrowed a body.
func (r *Request) Borrowed() bool { return r.borrowed }

// NotifyReleased sends one value to ch, which has room for it, after the request has been released. Call it before Submit.
func (r *Request) NotifyReleased(ch chan<- struct{}) { r.released = ch }

// Submit sends the request's queries on their way: each chooses the models that it asks, looks in their caches, and goes to their lanes for
// the rest. The Owner is told when they have ended, which may be before Submit returns.
func (r *Request) Submit() {
	r.begin()
	needLane := 0
	for _, q := range r.queries {
		q.choose()
		if q.lookUp() {
			needLane++
		}
	}
	r.tellPlan(needLane)
	r.dispatch()
	r.leaveTable()
	r.submitted.Store(true)
	for _, q := range r.queries {
		q.memberEnded() // the one that begin has counted
	}
	r.queryEnded()
	r.Release()
}

// begin numbers the queries, and decides what holds for all of them: which candidates and which of their versions may be asked.
func (r *Request) begin() {
	p, n := r.path, len(r.queries)
	r.pending.Store(int32(n) + 1)
	if r.fn != nil {
		r.pickAllowed()
		r.route()
	}
	if r.refused {
		r.fn.Choice.Refuse(n)
	}
	seq := p.ids.take(n)
	for i, q := range r.queries {
		q.begin(p.ids.id(seq + uint64(i)))
	}
}

// Drop gives up a request that was not submitted.
func (r *Request) Drop() {
	if r.refs.Add(-2) == 0 {
		r.recycle()
	}
}

// Refuse is Drop, and counts the request as one that its dialect could not read.
func (r *Request) Refuse() {
	switch {
	case r.stats != nil:
		r.stats.Refuse(api.InvalidArgument)
	case r.fn != nil:
		r.fn.Learning.Refused.Add(1)
	}
	r.Drop()
}

// Function is what the request addresses; nil if that is a model.
func (r *Request) Function() *Function { return r.fn }

// Model has the signature of the request's inputs and outputs. It is the version that is asked, unless the function's policy chooses for
// each query.
func (r *Request) Model() *Model { return r.model }

// Candidate is the version that the request asks as the function's candidate.
func (r *Request) Candidate(i int) *Model {
	if r.fn == nil {
		return r.model
	}
	m, _ := r.target(i)
	return m
}

// MinConfidence is the confidence below which an answer is replaced by the function's default.
func (r *Request) MinConfidence() float64 { return r.minConfidence }

// Len is how many queries the request has.
func (r *Request) Len() int { return len(r.queries) }

// Query is query i. Its results may be read from Settled on, until the request is released.
func (r *Request) Query(i int) *Query { return r.queries[i] }

// Code is that of the first query that did not end in OK.
func (r *Request) Code() api.Code {
	for _, q := range r.queries {
		if q.Code != api.OK {
			return q.Code
		}
	}
	return api.OK
}

// Retain keeps the request from being released until Release is called as often. The caller holds the request already: it has not called
// Submit yet, or is inside one of the Owner's methods.
func (r *Request) Retain() { r.refs.Add(1) }

// TryRetain is Retain for a caller that does not hold the request, at any time; false: it has been released. If the caller's pointer may be
// out of date, the request may be another one by now, and must be looked at again.
func (r *Request) TryRetain() bool {
	for {
		n := r.refs.Load()
		if n <= 0 {
			return false
		}
		if r.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release lets go of the request. The last one to do so releases it.
func (r *Request) Release() {
	if r.refs.Add(-1) == 0 {
		r.recycle()
	}
}

// Delivered says that the caller has its answer, or is gone: Drain does not wait for what the request still does, for stragglers, shadows
// and caches. A request that is released is delivered.
func (r *Request) Delivered() {
	if r.delivered.Swap(true) {
		return
	}
	if p := r.path; p.open.Add(-1) == 0 {
		select {
		case p.drained <- struct{}{}:
		default:
		}
	}
}

// Cancel says that the caller went away: what is still queued need not be evaluated. The caller of Cancel has retained the request.
// Members that were asked in a second step, and those that wait for another query's evaluation, end by themselves.
func (r *Request) Cancel() {
	if !r.submitted.Load() {
		return
	}
	for _, q := range r.queries {
		for _, m := range q.members {
			if m.evaluated {
				m.model.Lane.Cancel(&m.Item)
			}
		}
	}
}

// leaveTable ends the time in which the request acts on the table that it has seen.
func (r *Request) leaveTable() {
	if r.reading {
		r.reading = false
		r.path.readers.leave(r.turn)
	}
}

// recycle makes a request that nothing uses ready for the next one.
func (r *Request) recycle() {
	if r.borrowed {
		r.queries[0].Inputs[0].Data = r.own
		r.own, r.borrowed = nil, false
	}
	r.leaveTable()
	r.Delivered()
	for i, q := range r.queries {
		q.drop()
		r.queries[i] = nil
		if i > 0 {
			r.path.queries.Put(q)
		}
	}
	r.queries = r.queries[:0]
	r.fn, r.model, r.stats = nil, nil, nil
	r.refused, r.learning, r.unlisted = false, false, false
	r.only, r.forced, r.forcedOther, r.minConfidence, r.ttl = 0, 0, 0, 0, 0
	r.context, r.salt, r.contextSalt = nil, nil, nil
	r.rules.ruled, r.rules.other, r.direct, r.arm = 0, 0, nil, nil
	r.submitted.Store(false)
	released := r.released
	r.released = nil
	r.owner.Released()
	if released != nil {
		released <- struct{}{}
	}
}
