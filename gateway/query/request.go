package query

import (
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
)

// call is one request: one query or several to one function or one model, and their common answer.
type call struct {
	g  *Path
	fn *Function // nil when the request addresses a model
	// model, with its sub-queue queue, is whose signature the inputs have; and who is asked, where the function's policy does
	// not choose for each query.
	model   *Model
	queue   int32
	stats   *obs.Endpoint
	render  func(*call) // fills status, out and the headers; set by the dialect
	arrived api.Nanos
	slo     api.Nanos
	refused bool   // by the plan: nobody is asked
	turn    uint32 // of the gateway's grace, while looking
	looking bool
	// candidate is the one that model is, or is the other version of.
	candidate   int
	rules       rules
	forced      selection.Set // candidates whose version the request names; forcedOther: that is the other one
	forcedOther selection.Set
	direct      []Tee // of a request that addresses a model
	arm         *Arm
	unlisted    bool // the gateway's own: neither the cache nor shadows see it

	// What a request may say of its queries.
	only          selection.Set // candidates that may be asked; 0: all
	minConfidence float64
	ttl           api.Nanos // from arrival, 0: until the deadline
	// context and salt lie in text, one behind the other and with the context's length behind them: contextSalt is all of it.
	context, salt, contextSalt []byte

	solo    item // the first query: most requests have no other
	items   []*item
	batch   []*scheduler.Item // members on their way to a lane
	pending atomic.Int32      // queries that are not answered, and one while they are being submitted
	refs    atomic.Int32      // unreleased members, one for the answer, and one while queries are being submitted
	asked   atomic.Bool       // all have been submitted: cancel may look at them
	left    atomic.Bool       // whoever drains waits for it no more

	conn *conn         // writes the answer, or nil: then the handler waits for done
	done chan struct{} // capacity 1

	// A large raw body is borrowed from Hertz: the handler stays until the scheduler is done with it (free is told), and own
	// is the query's buffer meanwhile.
	borrowed bool
	lent     bool // it was borrowed, at any time
	own      []byte
	free     chan struct{} // capacity 1

	answer
	record   inferlog.Record // for the inference log; its memory is kept
	learning *learning       // the call is feedback: its predictions are not for a caller
	native   tensorjson.Request
	oip      oip.Request
	text     []byte // scratch of the dialects
}

// answer is what a dialect renders.
type answer struct {
	status     int
	out        []byte
	jsonLen    int // length of the JSON before binary tensors, 0: none (Inference-Header-Content-Length)
	retryAfter bool
	code       api.Code
	wire       []byte // head and body, when the completion side writes them
}

// newCall takes a call from the pool. It is the caller's until submit or drop.
func (g *Path) newCall() *call {
	g.open.Add(1)
	turn := g.calm.enter()
	c := g.calls.Get().(*call)
	c.turn, c.looking = turn, true
	c.left.Store(false)
	return c
}

// begin makes the call one of a function, to a candidate that the plan picks.
func (c *call) begin(fn *Function, slo api.Nanos) {
	c.arrived = c.g.cfg.Now()
	i, refused := fn.pick()
	c.candidate, c.refused = i, refused
	c.fn, c.stats, c.slo, c.render = fn, fn.Stats, slo, renderNative
	c.model, c.queue = fn.Candidates[i].Model, fn.Candidates[i].Queue
}

// Next gives the dialects' parsers storage for one more query's inputs.
func (c *call) Next() ([]api.Value, error) {
	if len(c.items) >= c.g.cfg.MaxBatch {
		return nil, api.Errorf(api.InvalidArgument, "more than %d inputs in one request: split it", c.g.cfg.MaxBatch)
	}
	it := &c.solo
	if len(c.items) > 0 {
		it = c.g.items.Get().(*item)
	}
	it.call = c
	c.items = append(c.items, it)
	n := len(c.model.Signature.Inputs)
	if cap(it.inputs) < n {
		grown := make([]api.Value, n)
		copy(grown, it.inputs[:cap(it.inputs)]) // keep the buffers
		it.inputs = grown
	}
	it.inputs = it.inputs[:n]
	return it.inputs, nil
}

// submit is the way of a request's queries: each chooses whom it asks, looks in their caches, and goes to their schedulers for
// the rest. What comes back settles it (query.go). The call is not the caller's any more, unless it holds a reference of its own.
func (c *call) submit(own int32) {
	g, n := c.g, len(c.items)
	c.pending.Store(int32(n) + 1)
	c.refs.Store(2 + own)
	seq := g.ids.take(n)
	if c.refused {
		c.fn.Choice.Refuse(n)
	}
	needed := 0
	for i, it := range c.items {
		it.begin(g.ids.id(seq + uint64(i)))
		it.choose()
		if it.needsLane() {
			needed++
		}
	}
	if fn := c.fn; needed > 0 && fn != nil && fn.Selects && fn.Choice != nil {
		c.tellPlan(needed)
	}
	c.dispatch()
	c.look()
	c.asked.Store(true)
	for _, it := range c.items {
		it.ended()
	}
	c.answered()
	c.unref()
}

// tellPlan lets the next plan know what was wished for, as far as the caches had not got it.
func (c *call) tellPlan(needed int) {
	choice := c.fn.Choice
	if c.fn.Mode == selection.Several {
		choice.Arrived(needed)
		return
	}
	for _, it := range c.items {
		if len(it.members) > 0 && it.members[0].evaluated {
			choice.Wish(it.wish)
		}
	}
}

// dispatch hands the members that need it to their lanes, those of one lane together: they are likely to share a batch.
func (c *call) dispatch() {
	width := 1 + len(c.direct)
	if c.fn != nil {
		width = len(c.fn.Candidates) + len(c.fn.Shadows) + len(c.fn.Tees)
	}
	for candidate := range width {
		batch := c.batch[:0]
		var model *Model
		for _, it := range c.items {
			if it.next == len(it.members) || it.members[it.next].candidate != candidate {
				continue
			}
			if m := it.members[it.next]; m.evaluated {
				batch, model = append(batch, &m.Item), m.model
			}
			it.next++
		}
		c.batch = batch
		if len(batch) > 0 {
			c.refs.Add(int32(len(batch)))
			model.Lane.SubmitAll(batch)
			model.miss()
		}
	}
}

// answered counts one query as answered, and at last the submitting of all; the last one answers the call.
func (c *call) answered() {
	if c.pending.Add(-1) == 0 {
		c.finish()
	}
}

// finish renders the answer and sends it on its way. It runs wherever the last query was answered.
func (c *call) finish() {
	if c.learning != nil {
		c.learn()
		c.unref()
		return
	}
	c.render(c)
	took := c.g.cfg.Now() - c.arrived
	c.stats.Observe(c.code, len(c.items), took)
	if c.fn != nil && c.fn.Log != nil {
		c.log(took)
	}
	if c.conn != nil {
		c.conn.reply(c)
	} else {
		c.done <- struct{}{}
	}
	c.unref()
}

// worst is the call's code: that of its first query that did not end in OK.
func (c *call) worst() api.Code {
	for _, it := range c.items {
		if it.code != api.OK {
			return it.code
		}
	}
	return api.OK
}

// handlerRef is what a handler that waits adds to the references: far more than queries and the answer can, so that whoever lets
// go last before it knows that the handler is waiting.
const handlerRef = 1 << 20

// unref lets go of the call; the last one returns it and its items to their pools.
func (c *call) unref() {
	switch c.refs.Add(-1) {
	case handlerRef:
		select {
		case c.free <- struct{}{}:
		default:
		}
	case 0:
		c.drop()
	}
}

// unrefHandler lets go of the handler's reference.
func (c *call) unrefHandler() {
	c.leave()
	if c.refs.Add(-handlerRef) == 0 {
		c.drop()
	}
}

// giveBack waits until nobody but the handler uses the borrowed body.
func (c *call) giveBack() {
	for c.refs.Load() != handlerRef {
		<-c.free
	}
	c.items[0].inputs[0].Data = c.own
	c.own, c.borrowed = nil, false
}

// drop returns a call that was never submitted, or that nobody holds any more.
func (c *call) drop() {
	if c.borrowed { // never submitted
		c.items[0].inputs[0].Data = c.own
		c.own, c.borrowed = nil, false
	}
	c.look()
	c.leave()
	for i, it := range c.items {
		it.drop()
		c.items[i] = nil
		if i > 0 {
			c.g.items.Put(it)
		}
	}
	c.items = c.items[:0]
	c.fn, c.model, c.stats, c.render, c.conn = nil, nil, nil, nil, nil
	c.retryAfter, c.refused, c.jsonLen = false, false, 0
	c.only, c.minConfidence, c.ttl, c.context, c.salt, c.contextSalt, c.learning = 0, 0, 0, nil, nil, nil, nil
	c.rules.ruled, c.rules.other, c.forced, c.forcedOther, c.direct, c.arm, c.unlisted = 0, 0, 0, 0, nil, nil, false
	c.asked.Store(false)
	c.native.Batch, c.native.Context, c.native.Salt = false, nil, nil
	c.lent = false
	c.g.calls.Put(c)
}

// look ends the time in which the call acts on the table that it has seen.
func (c *call) look() {
	if c.looking {
		c.looking = false
		c.g.calm.leave(c.turn)
	}
}

// leave says that nothing is owed to the caller any more: stragglers, shadows and what goes on for the cache keep nobody from
// shutting down.
func (c *call) leave() {
	if c.left.Swap(true) {
		return
	}
	if g := c.g; g.open.Add(-1) == 0 {
		select {
		case g.empty <- struct{}{}:
		default:
		}
	}
}

// cancel is called when the client went away: what is still queued need not be evaluated. The caller holds a reference. Members
// that were asked later, and those that wait for somebody else's evaluation, end by themselves.
func (c *call) cancel() {
	if !c.asked.Load() {
		return
	}
	for _, it := range c.items {
		for _, m := range it.members {
			if m.evaluated {
				m.model.Lane.Cancel(&m.Item)
			}
		}
	}
}

// tryRef takes a reference to a call that may be ending; false when it has ended.
func (c *call) tryRef() bool {
	for {
		n := c.refs.Load()
		if n <= 0 {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}
