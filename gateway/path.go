package gateway

import (
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/internal/oip"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/scheduler"
)

// call is one request: one query or several to one model, and their common answer.
type call struct {
	g       *Gateway
	fn      *Function // nil when the request addresses a model
	model   *Model
	queue   int32
	stats   *obs.Endpoint
	render  func(*call) // fills status, out and the headers; set by the dialect
	arrived api.Nanos
	slo     api.Nanos
	refused bool // by the plan: nobody is asked

	solo    item // the first query: most requests have no other
	items   []*item
	batch   []*scheduler.Item // the same, as the scheduler takes them
	pending atomic.Int32      // queries that are not answered
	refs    atomic.Int32      // unreleased queries, and one for the answer

	conn *conn         // writes the answer, or nil: then the handler waits for done
	done chan struct{} // capacity 1

	// A large raw body is borrowed from Hertz: the handler stays until the scheduler is done with it (free is told), and own
	// is the query's buffer meanwhile.
	borrowed bool
	own      []byte
	free     chan struct{} // capacity 1

	answer
	native tensorjson.Request
	oip    oip.Request
	text   []byte // scratch of the dialects
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

// item is one query of a call.
type item struct {
	scheduler.Item
	call *call
	code api.Code
}

// newCall takes a call from the pool. It is the caller's until submit or drop.
func (g *Gateway) newCall() *call {
	g.open.Add(1)
	return g.calls.Get().(*call)
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
	if cap(it.Inputs) < n {
		grown := make([]api.Value, n)
		copy(grown, it.Inputs[:cap(it.Inputs)]) // keep the buffers
		it.Inputs = grown
	}
	it.Inputs = it.Inputs[:n]
	return it.Inputs, nil
}

// submit hands the queries to the scheduler: deadline, ids, and off they go, together. The call is not the caller's any more,
// unless it holds a reference of its own.
func (c *call) submit(own int32) {
	g, n := c.g, len(c.items)
	wait := c.slo
	if c.model.Ready.Load() == 0 {
		cold := c.model.ColdStart
		if c.fn != nil {
			cold = c.fn.ColdStart
		}
		wait = max(wait, api.Nanos(cold))
	}
	seq := g.ids.take(n)
	c.pending.Store(int32(n))
	c.refs.Store(int32(n) + 1 + own)
	c.batch = c.batch[:0]
	for i, it := range c.items {
		it.ID = g.ids.id(seq + uint64(i))
		it.Function = c.queue
		it.Arrived, it.Deadline = c.arrived, c.arrived+wait
		it.Expires = it.Deadline
		it.code = api.OK
		c.batch = append(c.batch, &it.Item)
	}
	if c.refused {
		c.fn.Choice.Refuse(n)
		refuse(c.batch)
		return
	}
	c.model.Lane.SubmitAll(c.batch)
}

// refuse ends queries for which the plan has no place as a scheduler would: each is answered, and released after that. With
// the last of them the call may be gone, and the list with it.
func refuse(items []*scheduler.Item) {
	for _, it := range items {
		it.Owner.Answered(it, api.Overloaded)
		it.Owner.Released(it, api.Overloaded)
	}
}

// Answered counts one query as answered; the last one answers the call.
func (it *item) Answered(_ *scheduler.Item, code api.Code) {
	it.code = code
	if it.call.pending.Add(-1) == 0 {
		it.call.finish()
	}
}

// Released counts one query as free of the scheduler.
func (it *item) Released(*scheduler.Item, api.Code) { it.call.unref() }

// finish renders the answer and sends it on its way. It runs wherever the last query was answered.
func (c *call) finish() {
	c.render(c)
	c.stats.Observe(c.code, len(c.items), c.g.cfg.Now()-c.arrived)
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
	if c.refs.Add(-handlerRef) == 0 {
		c.drop()
	}
}

// giveBack waits until nobody but the handler uses the borrowed body.
func (c *call) giveBack() {
	for c.refs.Load() != handlerRef {
		<-c.free
	}
	c.items[0].Inputs[0].Data = c.own
	c.own, c.borrowed = nil, false
}

// drop returns a call that was never submitted, or that nobody holds any more.
func (c *call) drop() {
	if c.borrowed { // never submitted
		c.items[0].Inputs[0].Data = c.own
		c.own, c.borrowed = nil, false
	}
	for i, it := range c.items {
		it.call, it.Context = nil, nil
		c.items[i] = nil
		if i > 0 {
			c.g.items.Put(it)
		}
	}
	c.items = c.items[:0]
	c.fn, c.model, c.stats, c.render, c.conn = nil, nil, nil, nil, nil
	c.retryAfter, c.refused, c.jsonLen = false, false, 0
	c.native.Batch, c.native.Context = false, nil
	g := c.g
	g.calls.Put(c)
	if g.open.Add(-1) == 0 {
		select {
		case g.empty <- struct{}{}:
		default:
		}
	}
}

// cancel is called when the client went away: what is still queued need not be evaluated. The caller holds a reference.
func (c *call) cancel() {
	lane := c.model.Lane
	for _, it := range c.items {
		lane.Cancel(&it.Item)
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
