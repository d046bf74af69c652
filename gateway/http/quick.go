package http

import (
	"context"
	"runtime/debug"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/http1"
	"github.com/xebec-serving/xebec/gateway/http/poll"
)

// This file has the quick way of a request and the ways out of it. A poller parses what has come, and reads a body of known length to
// its place. If the request is small, or its body is not very large and lies where its model reads it, and its route never blocks, its handler
// runs on the poller, and the connection then waits for its answer. Everything else is for a goroutine, which has the connection until the
// request is answered: large requests when they are complete; chunked bodies, Expect, codings, refusals, answers that Hertz writes, HTTP/2, all
// other routes, and all requests of a gateway that drains. The parser goes along, wherever it stands.

// stage is where a goroutine goes on with a connection.
type stage uint8

const (
	between  stage = iota // with the next request
	headed                // the head was parsed
	whole                 // the request is complete, its handler was not called
	answered              // the handler has left an answer to write
	refused               // the request is refused
)

// quickBytes bounds the body of a request that is handled on a poller. The dialects borrow no body as small as that.
// If it has come in one piece it takes no room of the budget of bodies: each connection has one such request in flight, and one atomic operation
// for each of these would be too many.
const quickBytes = poll.ReadBytes

// quickLaidBytes bounds a body that lies where its model reads it and whose handler runs on a poller. A cache's key is computed there, which reads
// all of the body.
const quickLaidBytes = 1 << 20

// placedBytes of a body are read at a time by a poller: other connections wait meanwhile.
const placedBytes = 128 << 10

// take makes a reader for a request of a connection whose first bytes are there.
func (l *loop) take(c *conn, now api.Nanos) *reader {
	r := l.readers.Get().(*reader)
	if r.rc == nil {
		r.rc = l.core.GetCtxPool().Get().(*app.RequestContext)
	}
	r.loop, r.conn, r.own, r.filled = l, c, c, false
	r.rc.SetConn(c)
	r.parser.Begin(&l.limits, now)
	return r
}

// free gives the reader back, and the body of its request.
func (r *reader) free() {
	r.dropBody()
	l := r.loop
	if r.room > 0 {
		l.Bodies.Return(r.room)
	}
	r.loop, r.conn, r.own, r.placed, r.room = nil, nil, nil, false, 0
	if r.rc.IsExiled() {
		r.rc = nil
	} else {
		r.rc.Reset()
	}
	l.readers.Put(r)
}

// Input parses what a poller has read.
func (c *conn) Input(in []byte, now api.Nanos) {
	l := c.server.edge.loop
	defer c.survive()
	r := c.reader
	if r == nil {
		r = l.take(c, now)
	}
	c.reader = nil
	placed := r.placed
	r.placed = false
	for {
		n, e := r.parser.Next(in, now)
		in = in[n:]
		switch e.Kind {
		case http1.More:
			c.awaitMore(r)
			return
		case http1.Headed:
			h := r.parser.Head()
			if h.Length < 0 || h.Continue {
				c.lend(r, in, headed, nil)
				return
			}
			if int(h.Length) > len(in) {
				c.begun.Store(true)
				switch c.takeBody(r, now) {
				case bodyHasNoRoom:
					c.awaitRoom(r, in, now)
					return
				case bodyWaits:
					c.Keep(in)
					return
				}
			}
			r.fill()
		case http1.Body:
			switch {
			case placed:
				r.body.bytes = r.body.bytes[:len(r.body.bytes)+n]
			case r.body != nil:
				r.body.bytes = append(r.body.bytes, e.Data...)
			default: // it is there as a whole
				r.rc.Request.SetBodyRaw(e.Data)
			}
		case http1.End:
			if r.body != nil {
				r.rc.Request.SetBodyRaw(r.body.bytes)
			}
			if c.mayBeQuick(r) {
				c.serveQuickly(r, in, now)
			} else {
				c.hand(r, in)
			}
			return
		case http1.Fail:
			c.lend(r, in, refused, e.Failure)
			return
		}
	}
}

// awaitMore leaves a request that has come in part with the poller. The rest of its body is read straight to its place.
func (c *conn) awaitMore(r *reader) {
	c.reader = r
	c.begun.Store(!r.parser.Waiting())
	if r.readsBody() && c.Len() == 0 { // what was kept comes first
		have, length := len(r.body.bytes), int(r.parser.Head().Length)
		c.Place(r.body.bytes[have:min(length, have+placedBytes)])
		r.placed = true
	}
	if d := r.parser.Deadline(); d > 0 {
		c.Alarm(d)
	}
}

// hand gives a request that is complete to a goroutine. A body that lies in the poller's memory is copied.
func (c *conn) hand(r *reader, rest []byte) {
	if body := r.rc.Request.Body(); r.body == nil && len(body) > 0 {
		if r.body = r.loop.Bodies.take(len(body)); r.body == nil {
			c.lend(r, nil, refused, noRoom)
			return
		}
		r.body.bytes = append(r.body.bytes, body...)
		r.rc.Request.SetBodyRaw(r.body.bytes)
	}
	c.lend(r, rest, whole, nil)
}

// mayBeQuick reports whether the request may be handled on the poller, if its route allows it.
func (c *conn) mayBeQuick(r *reader) bool {
	h, s := r.parser.Head(), c.server
	return h.Length > 0 && (h.Length <= quickBytes || r.laid() && h.Length <= quickLaidBytes) && h.Minor > 0 && !h.Close && string(h.Method()) == "POST" &&
		s.cfg.Reply == ReplyAsync && !s.draining.Load()
}

// serveQuickly calls the handler of a request that is complete. rest has come after it.
func (c *conn) serveQuickly(r *reader, rest []byte, now api.Nanos) {
	c.quick, c.handed = true, false
	laid := r.laid()
	if laid {
		c.laid = r.body
	} else {
		c.body = r.body
	}
	panicked := r.callQuickly()
	c.quick, c.body = false, nil
	if laid && c.laid == nil {
		r.body = nil // its query's, which may have released it already
	}
	c.laid = nil
	switch {
	case panicked:
		_ = c.Close()
		r.free()
		return
	case c.handed:
		r.rc.Response.Reset()
		r.rc.SetIndex(-1)
		c.hand(r, rest)
		return
	case r.rc.Response.GetHijackWriter() != hijacked{}:
		r.rc.Request.SetBodyRaw(nil)
		c.lend(r, rest, answered, nil)
		return
	}
	c.Keep(rest)
	c.rest(now)
	r.free()
}

// rest begins the time in which the next request must begin.
func (c *conn) rest(now api.Nanos) {
	c.served = true
	if c.begun.Load() {
		c.begun.Store(false)
	}
	c.since.Store(int64(now))
	if limit := c.server.edge.loop.limits.Idle; limit > 0 {
		c.Alarm(now + limit)
	}
}

func (r *reader) callQuickly() (panicked bool) {
	r.loop.answering.Add(1)
	defer func() {
		r.loop.answering.Add(-1)
		if e := recover(); e != nil {
			panicked = true
			r.loop.report(e)
		}
	}()
	r.loop.core.ServeHTTP(context.Background(), r.rc)
	return false
}

// report reports a panic outside of handlers (panic.go has those), which costs its connection.
func (l *loop) report(v any) {
	if l.Panicked != nil {
		stack := debug.Stack()
		l.Panicked(Panic{Value: v, Stack: stack[:min(len(stack), maxPanicStack)]})
	}
}

// survive is deferred where a poller runs: a defect costs this connection, and not the poller with all others.
func (c *conn) survive() {
	if e := recover(); e != nil {
		c.server.edge.loop.report(e)
		_ = c.Close()
	}
}

// Expired is called when a deadline may have passed, or when the connection was woken.
func (c *conn) Expired(now api.Nanos) {
	defer c.survive()
	if r := c.reader; r != nil {
		switch c.queued {
		case queuedForRoom:
			c.look(r, now)
			return
		case queuedForPlace:
			c.lookPlace(r, now)
			return
		}
		if f := r.parser.Expire(now); f != nil {
			c.reader = nil
			c.lend(r, nil, refused, f)
			return
		}
		c.unlay(r, now)
		c.awaitMore(r)
		return
	}
	limit := c.idleLimit()
	if limit <= 0 {
		return
	}
	if c.state.Load() != connIdle {
		c.Alarm(now + limit) // it waits for our answer
		return
	}
	if due := api.Nanos(c.since.Load()) + limit; now < due {
		c.Alarm(due)
		return
	}
	if !c.served {
		c.server.cfg.Refusals.count(http1.FirstByte)
	}
	_ = c.Close()
}

// lend gives the connection to a goroutine.
func (c *conn) lend(r *reader, rest []byte, at stage, f *http1.Failure) {
	r.placed = false
	c.Place(nil)
	c.Keep(rest)
	c.Take()
	c.begun.Store(at == between || at == headed)
	if at == whole || at == answered {
		r.loop.answering.Add(1) // until step has ended
	}
	go c.work(r, at, f)
}

// work goes on with a connection until it waits for a request and nothing of it is there.
func (c *conn) work(r *reader, at stage, f *http1.Failure) {
	defer func() {
		if e := recover(); e != nil {
			r.loop.report(e)
			_ = c.Close()
			r.free()
			c.Leave()
		}
	}()
	for r.step(at, f) {
		r.rc.ResetWithoutConn()
		r.filled = false
		r.dropBody()
		now := r.loop.now()
		c.rest(now)
		if c.Len() == 0 && c.Give() {
			r.free()
			return
		}
		r.parser.Again(now)
		c.begun.Store(true)
		at, f = between, nil
	}
	if r.parked {
		r.parked = false
		c.Yield()
		return
	}
	c.awaitWritten()
	r.abandonBody()
	r.leave()
	_ = c.Close()
	r.free() // with the body, before the connection is forgotten
	c.Leave()
}

// step serves a request from a stage on, and reports whether the connection goes on.
func (r *reader) step(at stage, f *http1.Failure) bool {
	ctx := context.Background()
	switch at {
	case headed:
		done := false
		if f = r.open(r.conn.Len() == 0); f == nil {
			_, done, f = r.parse(nil) // without a body it is complete
		}
		if f == nil && !done {
			f = r.receive()
		}
	case between:
		f = r.receive()
	case whole:
		defer r.loop.answering.Add(-1)
	case answered:
		defer r.loop.answering.Add(-1)
		return r.conclude()
	}
	if f == awaitsRoom {
		r.own.awaitWritten() // which holds the connection
		if r.parked = true; r.own.park(r, r.loop.now()) {
			return false
		}
		r.parked, f = false, noRoom
	}
	if f != nil && f.Reason == http1.HTTP2 && !r.own.served && r.loop.http2 != nil && r.skipPreface() {
		_ = r.loop.http2.ServeAfterPreface(ctx, r.conn) // always nil
		return false
	}
	if f != nil {
		r.refuse(f)
		return false
	}
	return r.serveOne(ctx)
}
