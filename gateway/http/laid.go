package http

import (
	"bytes"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// A large body may be received where the worker of its model reads it, so that nothing copies it: the dialect finds the place when the
// head has come. What lies there pins memory that the worker has too, so a client that is slow to send is moved to memory of its own.

const (
	// laidBytes is the size from which bodies are received there.
	laidBytes = 64 << 10 //xebec:limit smallest body that is received in a worker's memory
	// laidTime is how long a client may take to send such a body.
	laidTime = 250 * api.Nanos(time.Millisecond) //xebec:limit time for a body to arrive in a worker's memory; a slower one is copied
)

// functionRoute is the end of a path /{function}/END.
type functionRoute struct {
	end     []byte
	reserve func(function, contentType []byte, n int) api.Slot
}

// functionRoutes are those of the dialects.
type functionRoutes []functionRoute

func newFunctionRoutes(routes []dialect.Route) (list functionRoutes) {
	for _, r := range routes {
		if end, ok := bytes.CutPrefix([]byte(r.Path), []byte("/{function}")); ok {
			list = append(list, functionRoute{end, r.Reserve})
		}
	}
	return list
}

// find returns the function that a path addresses, nil if none, and its route.
func (list functionRoutes) find(path []byte) (function []byte, route *functionRoute) {
	if len(path) == 0 {
		return nil, nil
	}
	for i := range list {
		if name, ok := bytes.CutSuffix(path[1:], list[i].end); ok && len(name) > 0 && bytes.IndexByte(name, '/') < 0 {
			return name, &list[i]
		}
	}
	return nil, nil
}

// takeBody returns memory for the body whose head has come, nil without room in the budget.
func (c *conn) takeBody(r *reader, now api.Nanos) *body {
	if !r.loop.Bodies.reserveInTurn(int(r.parser.Head().Length)) {
		return nil
	}
	return c.placeBody(r, now)
}

// placeBody returns memory for the body whose head has come, for which room is reserved. If the system has none, it returns nil and gives
// the room back. A body that a goroutine will read has memory of its own: only pollers move it there when its client is slow.
func (c *conn) placeBody(r *reader, now api.Nanos) *body {
	h, b := r.parser.Head(), r.loop.Bodies
	n := int(h.Length)
	if n >= laidBytes && !h.Continue {
		if s := c.server.reserve(h); s != nil {
			r.laidUntil = now + laidTime
			c.Alarm(r.laidUntil)
			return b.lay(s, n)
		}
	}
	return b.memory(n)
}

// laid reports whether the request's body lies in the memory of a worker.
func (r *reader) laid() bool { return r.body != nil && r.body.slot != nil }

// reserve asks the dialect for a place for a request's body.
func (s *Server) reserve(h *http1.Head) api.Slot {
	function, route := s.functions.find(h.Path())
	if route == nil || route.reserve == nil || string(h.Method()) != "POST" {
		return nil
	}
	var contentType []byte
	for i := range h.Fields() {
		switch name, value := h.Field(i); {
		case bytes.EqualFold(name, contentTypeName):
			contentType = value
		case bytes.EqualFold(name, contentEncodingName):
			return nil
		}
	}
	return route.reserve(function, contentType, int(h.Length))
}

var contentTypeName, contentEncodingName = []byte("Content-Type"), []byte("Content-Encoding")

// unlay moves what has come of a body to memory of its own, if its client is slow and there is room.
func (c *conn) unlay(r *reader, now api.Nanos) {
	if !r.laid() {
		return
	}
	if now >= r.laidUntil {
		if own := r.loop.Bodies.grow(r.body, int(r.parser.Head().Length)); own != nil {
			r.body = own
			return
		}
		r.laidUntil = now + laidTime
	}
	c.Alarm(r.laidUntil)
}

var laidBodies = sync.Pool{New: func() any { return new(body) }}

// lay is memory for a body with a place.
func (b *Bodies) lay(s api.Slot, n int) *body {
	m := laidBodies.Get().(*body)
	m.bytes, m.slot, m.reserved, m.owner = s.Bytes()[:0], s, int64(n), b
	return m
}

// Released gives back a body that a query has borrowed.
func (m *body) Released() { m.owner.put(m) }

func (m *body) freeSlot() {
	m.slot.Free()
	*m = body{}
	laidBodies.Put(m)
}
