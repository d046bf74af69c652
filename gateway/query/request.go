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

// Owner is what a Request is embedded in: the state that a dialect keeps for one request. Settled and Deliver run on the
// goroutine that ends the last query, often one that reads workers' rings, so they must not block.
type Owner interface {
	// Settled is called when every query has ended. The owner renders its answer from the request and returns the code
	// with which the request is counted.
	Settled() api.Code
	// Deliver is called after the request has been counted and logged. The owner sends its answer. If the answer is not
	// sent when Deliver returns, the owner must have called Retain, and calls Release when it is sent.
	Deliver()
	// Released is called when nothing uses the request any more and it is ready for the next Open. The owner resets its
	// own state. It may return itself to its pool, as its last step.
	Released()
}

// Request is one request to a function or a model, with one or several queries and their common answer. Its Owner embeds
// it by value and is pooled, so that a request allocates nothing.
//
// The caller calls Init once. For each request it calls Open, AskFunction or AskModel, Next for each query, and Submit or
// Drop. After Submit or Drop only the Owner's methods may touch the request. There are two exceptions: a caller that
// calls Retain before Submit keeps the request until Release, and some methods say that they may be called at any time.
type Request struct {
	path  *Path
	owner Owner

	// What the request asks. fn is nil if it addresses a model. model has the signature of the inputs and evaluates the
	// queries, through its sub-queue queue, unless the function's policy chooses for each query. candidate is the index
	// of the candidate that model belongs to.
	fn        *Function
	model     *Model
	queue     int32
	candidate int
	stats     *obs.Endpoint // nil: the gateway's own request, which is not counted
	arrived   api.Nanos
	slo       api.Nanos
	refused   bool                  // the plan has no room for the request
	learning  bool                  // its predictions are for feedback, not for a caller
	unlisted  bool                  // a request of Ask, which bypasses caches and shadows
	trial     bool                  // a request of WarmUp, whose times say nothing
	versioned bool                  // it names the version, or label, of the model that it addresses
	moved     atomic.Pointer[Model] // the version that its queries were handed over to

	// Limits on what the request's queries may ask.
	only          selection.Set // candidates that may be asked; 0: all
	forced        selection.Set // candidates whose version the request names
	forcedOther   selection.Set // those of forced for which it names the other version
	outside       selection.Set // those of forced for which it names a version that neither the function nor a rule has now
	versions      []outside     // these versions
	minConfidence float64
	ttl           api.Nanos // from arrival; 0: until the deadline
	until         api.Nanos // the deadline of the model that has called; 0: none
	// text holds the context, the parameters, the salt and the context's length, in this order. salt includes the parameters. context and salt are slices of it, and
	// contextSalt is all of it.
	context, salt, contextSalt []byte
	text                       []byte

	rules  rules // of the function's candidates
	direct []Tee // of a request that addresses a model
	arm    *Arm

	queries []*Query
	first   Query             // most requests have one query
	batch   []*scheduler.Item // members on their way to a lane

	pending   atomic.Int32 // queries that have not ended, and one while queries are being submitted
	refs      atomic.Int32 // unreleased members, one for the answer, one until Submit returns, and one for each Retain
	submitted atomic.Bool  // Cancel may read the members
	delivered atomic.Bool  // Drain does not wait for the request

	reading bool   // the request uses a table
	turn    uint32 // the turn of the path's readers in which it began to

	// A borrowed body is the input of the only query until the request is released. own keeps the input's buffer
	// meanwhile.
	borrowed bool
	own      []byte
	released Releaser

	parameters []byte        // a JSON object; empty: none
	call       *api.Identity // nil: unknown
	starting   starting
	stream     api.Stream      // takes the outputs of the only query after the first one; may be nil
	record     inferlog.Record // reused by later requests
	feedback   *joinedFeedback // for Feedback; reused by later requests
}

// MaxSLO bounds the latency objective of a request. Longer work is a job, not a query.
const MaxSLO = 10 * time.Minute //xebec:limit `Xebec-Slo-Ms`

// DirectDeadline is the deadline of a request that addresses a model and sets none: models have no latency objective.
const DirectDeadline = 30 * time.Second //xebec:limit deadline of a request that addresses a model (Open Inference Protocol)

// Init binds the request to its path and its owner. It is called once.
func (r *Request) Init(p *Path, owner Owner) {
	r.path, r.owner = p, owner
	r.first.first.init()
}

// Open begins a request. Until Submit or Drop the request uses the current table, and Quiesce waits for it. Drain waits
// until the request is answered.
func (r *Request) Open() {
	p := r.path
	p.open.Add(1)
	r.turn, r.reading = p.readers.enter(), true
	r.delivered.Store(false)
	r.refs.Store(2)
}

// AskFunction addresses a function. If its plan chooses for whole requests, AskFunction picks the candidate.
func (r *Request) AskFunction(name string) error {
	fn, err := r.path.FindFunction(name)
	if err != nil {
		return err
	}
	r.askFunction(fn)
	return nil
}

func (r *Request) askFunction(fn *Function) {
	r.arrived = r.path.cfg.Now()
	r.candidate, r.refused = fn.pick()
	r.fn, r.stats, r.slo, r.minConfidence = fn, fn.Stats, api.Nanos(fn.SLO), fn.MinConfidence
	r.model, r.queue = fn.Candidates[r.candidate].Model, fn.Candidates[r.candidate].Queue
}

// AskModel addresses the named version or label of a model. If version is empty the model's traffic rules choose the
// version.
func (r *Request) AskModel(name, version string) error {
	t := r.path.table.Load()
	m, err := r.path.model(t, name, version)
	if err != nil {
		return err
	}
	if version == "" {
		m = r.routeModel(t, m)
	}
	r.arrived = r.path.cfg.Now()
	r.model, r.queue, r.stats, r.slo = m, m.Direct, m.Stats, api.Nanos(DirectDeadline)
	r.versioned = version != ""
	return nil
}

// Within replaces the function's latency objective, or a model's DirectDeadline.
func (r *Request) Within(d time.Duration) { r.slo = api.Nanos(min(d, MaxSLO)) }

// Next begins the next query and returns its inputs, one for each in the signature. The caller overwrites their Data and
// Dims (it appends to [:0]), so that their memory is reused. An error means that the request has too many queries.
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

// Reserve returns memory for the only input of a query to a function, of n bytes, in which Borrow's body lies best: its model reads it
// there. It returns nil if the function's queries may go to several models, or if the model has no such memory now.
//
// If it reports waits, give is called once with such memory; see [worker.Reserver].
func (p *Path) Reserve(function []byte, n int, give func(api.Slot) bool) (_ api.Slot, waits bool) {
	fn := p.table.Load().Functions[string(function)]
	if fn == nil || !fn.borrows() || len(fn.Candidates) != 1 || fn.Candidates[0].Route != nil {
		return nil, false
	}
	if m := fn.Candidates[0].Model; m.Reserve != nil && !m.Streams {
		return m.Reserve(n, give)
	}
	return nil, false
}

// Borrow makes body the Data of the only query's first input without copying it, and reports whether it did. The body
// must not change until the request is released, which NotifyReleased reports. Borrow refuses if the query asks several
// models: the slowest of them would keep the body long after the answer.
func (r *Request) Borrow(body []byte) bool {
	if !r.borrows() {
		return false
	}
	v := &r.queries[0].Inputs[0]
	r.own, r.borrowed = v.Data[:0], true
	v.Data = body
	return true
}

// Reserve is [Path.Reserve] for a request that is addressed. It does not wait.
func (r *Request) Reserve(n int) api.Slot {
	if fn := r.fn; !r.borrows() || r.model.Reserve == nil || r.outside != 0 || fn != nil && fn.Candidates[r.candidate].Route != nil {
		return nil
	}
	s, _ := r.model.Reserve(n, nil)
	return s
}

func (r *Request) borrows() bool {
	return (r.fn == nil || r.fn.borrows()) && len(r.direct) == 0 && !r.model.Streams // a stream may take any time
}

// borrows reports whether a query of the function asks one model only.
func (fn *Function) borrows() bool { return !fn.Selects && len(fn.Shadows)+len(fn.Tees) == 0 }

// Borrowed reports whether the request has borrowed a body.
func (r *Request) Borrowed() bool { return r.borrowed }

// Releaser is told once that a request has been released: it owns what the request has borrowed again. It must not block.
type Releaser interface{ Released() }

// Signal is a Releaser for callers that wait: a channel with room for one value.
type Signal chan struct{}

// Released sends the value.
func (s Signal) Released() { s <- struct{}{} }

// NotifyReleased has to told when the request is released. Call it before Submit.
func (r *Request) NotifyReleased(to Releaser) { r.released = to }

// Submit sends the queries on their way: each chooses the models that it asks, looks in their caches, and goes to their
// lanes for the rest. The Owner is called back when they have ended, which may be before Submit returns.
func (r *Request) Submit() { r.SubmitCorked(nil) }

// SubmitCorked is Submit for a goroutine that has more requests to submit: lanes may begin when it releases the cork, which may be nil.
func (r *Request) SubmitCorked(cork *Cork) {
	r.begin()
	needLane := 0
	for _, q := range r.queries {
		q.choose()
		q.waiting.Store(q.waits)
		if q.lookUp() {
			needLane++
		}
	}
	r.tellPlan(needLane)
	r.dispatch(cork)
	r.leaveTable()
	r.submitted.Store(true)
	for _, q := range r.queries {
		q.memberEnded() // the one that q.begin has added
	}
	r.queryEnded()
	r.Release()
}

// begin numbers the queries and decides for all of them which candidates, and which of their versions, may be asked.
func (r *Request) begin() {
	p, n := r.path, len(r.queries)
	r.pending.Store(int32(n) + 1)
	seq := p.ids.take(n)
	for i, q := range r.queries {
		q.begin(p.ids.id(seq + uint64(i)))
		q.prefetch()
	}
	if r.fn != nil {
		r.pickAllowed()
		r.route()
	}
	if r.refused {
		r.fn.Choice.CountRefused(n)
	}
}

// Drop abandons a request that was not submitted.
func (r *Request) Drop() {
	if r.refs.Add(-2) == 0 {
		r.recycle()
	}
}

// Refuse is Drop, and counts the request as malformed.
func (r *Request) Refuse() {
	switch {
	case r.stats != nil:
		r.stats.CountMalformed(api.InvalidArgument)
	case r.fn != nil:
		r.fn.Learning.Refused.Add(1)
	}
	r.Drop()
}

// Abandon is deferred right after Open, by handlers of requests: if the handler panics, Abandon ends the request with [api.Internal], and the
// panic goes on. Otherwise it does nothing. An abandoned request is never used again, because queries of it may still be in lanes; it
// gets no answer, and neither Drain nor Quiesce waits for it.
func (r *Request) Abandon() {
	v := recover()
	if v == nil {
		return
	}
	if r.stats != nil {
		r.stats.CountMalformed(api.Internal)
	}
	r.leaveTable()
	r.Delivered()
	panic(v) // the stack is still there
}

// Function returns the addressed function, or nil if the request addresses a model.
func (r *Request) Function() *Function { return r.fn }

// Model returns the model whose signature the inputs and outputs have. It is the version that is asked, unless the
// function's policy chooses for each query.
func (r *Request) Model() *Model {
	if m := r.moved.Load(); m != nil {
		return m
	}
	return r.model
}

// Candidate returns the version that the request asks as candidate i.
func (r *Request) Candidate(i int) *Model {
	if r.fn == nil || !r.fn.Selects && i == r.candidate {
		return r.Model()
	}
	m, _ := r.target(i)
	return m
}

// MinConfidence is the confidence below which the function's default replaces the answer.
func (r *Request) MinConfidence() float64 { return r.minConfidence }

// Len returns the number of queries.
func (r *Request) Len() int { return len(r.queries) }

// Query returns query i. Its results are valid from Settled until the request is released.
func (r *Request) Query(i int) *Query { return r.queries[i] }

// Code returns the code of the first query that did not end in OK.
func (r *Request) Code() api.Code {
	for _, q := range r.queries {
		if q.Code != api.OK {
			return q.Code
		}
	}
	return api.OK
}

// Reason explains Code to the caller.
func (r *Request) Reason() string {
	for _, q := range r.queries {
		if q.Code != api.OK {
			return q.Reason()
		}
	}
	return ""
}

// RetryAfter is when the request may succeed if replicas were not there in time: as long as the slowest of their starts takes, 0 if
// that is unknown. Call it from Settled on.
func (r *Request) RetryAfter() time.Duration {
	var longest int64
	for _, q := range r.queries {
		if q.Code != api.NoReplica {
			continue
		}
		for _, m := range q.all() {
			switch {
			case m.code != api.NoReplica:
			case !m.cold: // a model that it calls starts
				longest = max(longest, r.starting.nanos.Load())
			default:
				longest = max(longest, m.model.StartNanos.Load())
			}
		}
	}
	return time.Duration(longest)
}

// Retain keeps the request from being released until a matching Release. The caller must already hold the request: it has
// not called Submit yet, or is inside one of the Owner's methods.
func (r *Request) Retain() { r.refs.Add(1) }

// TryRetain is Retain for a caller that does not hold the request. It may be called at any time and returns false if the
// request has been released. The caller must then check that it still is the request it meant, because a pooled request
// may have been reused.
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

// Release undoes one Retain. The last Release releases the request.
func (r *Request) Release() {
	if r.refs.Add(-1) == 0 {
		r.recycle()
	}
}

// Delivered says that the caller has its answer or has left. Drain then no longer waits for stragglers, shadows and
// caches of the request. A released request counts as delivered.
func (r *Request) Delivered() {
	if r.delivered.Load() || r.delivered.Swap(true) {
		return
	}
	if p := r.path; p.open.Add(-1) == 0 {
		select {
		case p.drained <- struct{}{}:
		default:
		}
	}
}

// Cancel says that the caller has left, so queued members need not be evaluated. The caller of Cancel must hold the
// request. Members of a second step, and those that wait for another query's evaluation, end without it, as do those
// that were handed over to another version.
func (r *Request) Cancel() {
	if !r.submitted.Load() {
		return
	}
	if r.stream != nil {
		r.stream.Cancelled()
	}
	for _, q := range r.queries {
		for _, m := range q.members {
			if m.evaluated && (m.course.Load() == courseCancelled || m.course.CompareAndSwap(courseOpen, courseCancelled)) {
				m.model.Lane.Cancel(&m.Item)
			}
		}
	}
}

// leaveTable ends the request's use of the table.
func (r *Request) leaveTable() {
	if r.reading {
		r.reading = false
		r.path.readers.leave(r.turn)
	}
}

// recycle makes a request that nothing uses ready for the next Open.
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
	r.refused, r.learning, r.unlisted, r.versioned, r.trial = false, false, false, false, false
	if r.moved.Load() != nil {
		r.moved.Store(nil)
	}
	r.only, r.forced, r.forcedOther, r.outside, r.minConfidence, r.ttl, r.until = 0, 0, 0, 0, 0, 0, 0
	if len(r.versions) > 0 {
		clear(r.versions)
		r.versions = r.versions[:0]
	}
	r.context, r.salt, r.contextSalt = nil, nil, nil
	r.rules.ruled, r.rules.other, r.direct, r.arm = 0, 0, nil, nil
	r.submitted.Store(false)
	if r.starting.nanos.Load() != 0 {
		r.starting.nanos.Store(0)
	}
	r.stream, r.parameters, r.call = nil, r.parameters[:0], nil
	released := r.released
	r.released = nil
	r.owner.Released()
	if released != nil {
		released.Released()
	}
}
