package grpc

import (
	"runtime"
	"sync"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// gather submits calls that come in the same turn together, so that they are evaluated together. The library starts a goroutine for each call; the first
// one that submits lets the others run before it works the lanes for all.
type gather struct {
	panicked func(method string, v any)

	mu      sync.Mutex
	pending []submission
	spare   []submission
	leading bool
}

type submission struct {
	call *dialect.Call
	to   submitter
}

// submitter is where the answer goes.
type submitter interface {
	dialect.Replier
	// broken says that submitting the call has panicked: it gets no answer and is not to be used again.
	broken()
}

// submit submits a call. It may return before the call is submitted.
func (g *gather) submit(c *dialect.Call, to submitter) {
	g.mu.Lock()
	g.pending = append(g.pending, submission{c, to})
	if g.leading {
		g.mu.Unlock()
		return
	}
	g.leading = true
	g.mu.Unlock()
	runtime.Gosched()
	g.mu.Lock()
	batch := g.pending
	g.pending, g.spare, g.leading = g.spare[:0], nil, false
	g.mu.Unlock()
	var cork query.Cork
	for i := range batch {
		g.one(&batch[i], &cork)
	}
	for !g.release(&cork) {
	}
	clear(batch)
	g.mu.Lock()
	if g.spare == nil && cap(batch) <= maxGathered {
		g.spare = batch[:0]
	}
	g.mu.Unlock()
}

// maxGathered is how much memory for calls is kept.
const maxGathered = 1024

func (g *gather) one(s *submission, cork *query.Cork) {
	defer func() {
		if v := recover(); v != nil {
			g.panicked("submit", v)
			s.to.broken()
		}
	}()
	s.call.Submit(s.to, cork)
}

// release works the lanes. A defect of one query's answer keeps no other from being worked.
func (g *gather) release(cork *query.Cork) (done bool) {
	defer func() {
		if v := recover(); v != nil {
			g.panicked("submit", v)
		}
	}()
	cork.Release()
	return true
}
