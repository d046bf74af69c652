package http

import (
	"bytes"
	"slices"
	"strings"
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

// functionRoute is the end of a path /{function}/END, or of /{function} itself.
type functionRoute struct {
	end     []byte
	literal bool // end is a whole path with no function
	reserve func(function, contentType []byte, n int, give func(api.Slot) bool) (_ api.Slot, waits bool)
}

// functionRoutes are those of the dialects.
type functionRoutes []functionRoute

// newFunctionRoutes puts longer ends before shorter ones, and paths that only look like /{function} before that.
func newFunctionRoutes(routes []dialect.Route) (list functionRoutes) {
	var literals, bare functionRoutes
	for _, r := range routes {
		end, ok := bytes.CutPrefix([]byte(r.Path), []byte("/{function}"))
		switch {
		case ok && len(end) > 0:
			list = append(list, functionRoute{end: end, reserve: r.Reserve})
		case ok:
			bare = append(bare, functionRoute{reserve: r.Reserve})
		case strings.Count(r.Path, "/") == 1:
			literals = append(literals, functionRoute{end: []byte(r.Path), literal: true})
		}
	}
	return slices.Concat(list, literals, bare)
}

// find returns the function that a path addresses, nil if none, and its route.
func (list functionRoutes) find(path []byte) (function []byte, route *functionRoute) {
	if len(path) == 0 {
		return nil, nil
	}
	for i := range list {
		if list[i].literal {
			if bytes.Equal(path, list[i].end) {
				return nil, nil
			}
			continue
		}
		if name, ok := bytes.CutSuffix(path[1:], list[i].end); ok && len(name) > 0 && bytes.IndexByte(name, '/') < 0 {
			return name, &list[i]
		}
	}
	return nil, nil
}

// bodyMemory says whether a body whose head has come has memory.
type bodyMemory uint8

const (
	bodyHasMemory bodyMemory = iota
	bodyHasNoRoom            // in the budget of bodies, or the system has none
	bodyWaits                // for a place: lookPlace goes on
)

// takeBody gets memory for the body whose head has come.
func (c *conn) takeBody(r *reader, now api.Nanos) bodyMemory {
	n := int(r.parser.Head().Length)
	if !r.loop.Bodies.reserveInTurn(n) {
		return bodyHasNoRoom
	}
	r.room = n
	return c.placeBody(r, now)
}

// placeBody gets memory for the body whose head has come, and for which the reader has room. A body that a goroutine will read has memory of
// its own: only pollers move it there when its client is slow.
func (c *conn) placeBody(r *reader, now api.Nanos) bodyMemory {
	var s api.Slot
	if r.room >= laidBytes && !r.parser.Head().Continue {
		var waits bool
		if s, waits = c.askPlace(r, now); waits {
			return bodyWaits
		}
	}
	return c.place(r, s, now)
}

// place gets memory for that body: a place, or without one other memory.
func (c *conn) place(r *reader, s api.Slot, now api.Nanos) bodyMemory {
	n, b := r.room, r.loop.Bodies
	r.room = 0
	if s != nil {
		r.body = b.lay(s, n)
		r.laidUntil = now + laidTime
		c.Alarm(r.laidUntil)
		return bodyHasMemory
	}
	if r.body = b.memory(n); r.body == nil {
		return bodyHasNoRoom
	}
	return bodyHasMemory
}

// laid reports whether the request's body lies in the memory of a worker.
func (r *reader) laid() bool { return r.body != nil && r.body.slot != nil }

// reserve asks the dialect for a place for a request's body, or for a call of give when there is one.
func (s *Server) reserve(h *http1.Head, give func(api.Slot) bool) (_ api.Slot, waits bool) {
	function, route := s.functions.find(h.Path())
	if route == nil || route.reserve == nil || string(h.Method()) != "POST" {
		return nil, false
	}
	var contentType []byte
	for i := range h.Fields() {
		switch name, value := h.Field(i); {
		case bytes.EqualFold(name, contentTypeName):
			contentType = value
		case bytes.EqualFold(name, contentEncodingName):
			return nil, false
		}
	}
	return route.reserve(function, contentType, int(h.Length), give)
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
