package http

import (
	"net"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/coding"
	"github.com/xebec-serving/xebec/gateway/http/http1"
	"github.com/xebec-serving/xebec/gateway/http/poll"
)

// conn is a client's connection in clear text. A poller reads it, or a goroutine for as long as something might block (quick.go).
// The goroutine that ends a query may write the answer to it.
//
// At most one answer is pending. Until it has been written the poller does not read on, and a goroutine that has the connection waits
// before it submits the next request. A pending answer is written by a non-blocking send. A goroutine writes what the socket does not
// accept at once, so a client that does not read never blocks a poller.
type conn struct {
	poll.Socket
	server   *Server
	state    atomic.Uint32
	wake     chan struct{} // capacity 1: the answer that a handler waits for has been written
	call     atomic.Pointer[dialect.Call]
	accept   coding.Coding   // of the pending answer
	dialect  dialect.Dialect // of the pending answer
	exchange exchange
	parts    atomic.Pointer[parts] // of the pending answer, if it comes in parts

	reader *reader      // of a request that has come in part, while no goroutine has the connection
	since  atomic.Int64 // when it began to wait for a request
	begun  atomic.Bool  // something of a request has come, and its handler was not called
	served bool         // it had a request
	waits  bool         // the handler of the pending answer waits for the release of the body that its request has borrowed
	quick  bool         // its handler runs on the poller: it must not block
	laid   *body        // of the request whose handler runs on the poller, until its query has borrowed it
	handed bool         // and was not called: the request is for a goroutine

	body    *body // of the request whose handler runs, in memory of its own; nil: none
	decoded int   // bytes of the budget of bodies that it has when it is decoded
	room    int   // bytes of that budget that the pending answer's call has

	caller dialect.Caller // the model that the connection belongs to; nil: it is a client's
	ended  func()         // called when it is closed; may be nil

	turn   turn      // of a body that waits for room
	wakes  func()    // Wake, once it was needed
	queued queued    // whether the body of the request in reader waits
	until  api.Nanos // and how long it waits for room

	asking asking // of a body that waits for a place
}

// queued is for what a body waits.
type queued uint8

const (
	queuedNot queued = iota
	queuedForRoom
	queuedForPlace
)

const (
	connIdle    uint32 = iota
	connPending        // an answer will be written,
	connAwaited        // and a handler waits for that
)

// expect announces an answer that Reply will write. What the call has copied of its request's body takes the body's room in the budget until
// then: otherwise each connection would have one request for which there is no bound of memory. Only the connection's handler calls it, after the previous answer has
// been written.
func (c *conn) expect(call *dialect.Call, accept coding.Coding, d dialect.Dialect) {
	c.Hold()
	c.accept, c.dialect = accept, d
	if b := c.body; b != nil && !call.Borrowed() {
		c.room, b.reserved = int(b.reserved)+c.decoded, 0
		c.decoded = 0
	}
	c.call.Store(call)
	c.state.Store(connPending)
}

// retract undoes expect after its handler has panicked, and reports whether the answer has not been written. Nothing writes it then: a request
// ends only after its handler has submitted all of it.
func (c *conn) retract() bool {
	if c.call.Swap(nil) == nil {
		return false
	}
	c.returnRoom()
	c.state.Store(connIdle)
	c.Free()
	return true
}

// returnRoom gives back the room of the call whose answer was pending.
func (c *conn) returnRoom() {
	if n := c.room; n > 0 {
		c.room = 0
		c.server.edge.Bodies.Return(n)
	}
}

// awaitWritten waits until no answer is pending. Only the connection's handler calls it.
func (c *conn) awaitWritten() {
	if c.state.Load() != connIdle && c.state.CompareAndSwap(connPending, connAwaited) {
		<-c.wake
	}
}

// Reply writes the call's answer. If the socket is full a goroutine writes the rest, and retains the call. A goroutine also
// compresses: the one that calls Reply has other queries to end. A large answer needs room first.
func (c *conn) Reply(call *dialect.Call) {
	if f := call.Flow(); f != nil {
		c.replyInParts(call, f)
		return
	}
	a := &call.Answer
	var held *heldAnswer
	if len(a.Body) > largeAnswer {
		if held = c.server.edge.hold(c, answerBytes(call)); held == nil {
			c.server.replaceAnswer(call, c.dialect)
		}
	}
	if c.accept != coding.Identity && len(a.Body) >= coding.CompressFrom && !encoded(a) {
		call.Retain()
		go c.finishCompressed(call, held)
		return
	}
	if held != nil {
		c.replyLarge(call, held)
		return
	}
	p := c.server.appendAnswer(a.Wire[:0], call)
	a.Wire = p
	n, gone := c.Send(p)
	if n == len(p) || gone {
		c.written(call) // or the client has left, which the poller notices by itself
		return
	}
	call.Retain()
	go c.finish(call, nil, p[n:], nil)
}

// replyLarge writes head and body without a copy that has both: it would lie there for as long as the client does not read.
func (c *conn) replyLarge(call *dialect.Call, held *heldAnswer) {
	a := &call.Answer
	a.Wire = c.server.appendHead(a.Wire[:0], call, coding.Identity, nil)
	head, body := a.Wire, a.Body
	n, gone := c.SendBoth(head, body)
	if n == len(head)+len(body) || gone {
		held.Release()
		c.written(call)
		return
	}
	call.Retain()
	go c.finish(call, held, head[min(n, len(head)):], body[max(n-len(head), 0):])
}

// Refuses implements [dialect.Refuser].
func (c *conn) Refuses(call *dialect.Call) bool { return c.server.noRoomFor(call, c.dialect) }

// finishCompressed compresses and writes an answer on a goroutine of its own, and releases the call.
func (c *conn) finishCompressed(call *dialect.Call, held *heldAnswer) {
	a := &call.Answer
	small, body := coding.Compress(c.accept, a.Body), a.Body
	a.Wire = c.server.appendHead(a.Wire[:0], call, c.accept, small)
	if small != nil {
		body = small.Bytes
	}
	if len(body) <= largeAnswer {
		a.Wire = append(a.Wire, body...)
		body = nil
		if small != nil {
			small.Free()
		}
	}
	if small != nil && held != nil {
		a.Body = nil // it need not wait with what is written
	}
	c.finish(call, held, a.Wire, body)
}

// finish writes the rest of an answer on a goroutine of its own, and releases the call, in which the memory of a large answer does not stay.
// A small one needs room from here on if the socket does not take it: its client has not read what came before. Without room it is cut off.
func (c *conn) finish(call *dialect.Call, held *heldAnswer, head, body []byte) {
	room := true
	if held == nil {
		n, gone := c.Send(head)
		if head = head[n:]; len(head) > 0 && !gone {
			held = c.server.edge.hold(c, answerBytes(call))
			room = held != nil
		}
	}
	if !room {
		c.server.cfg.Refusals.count(http1.NoRoom)
		_ = c.Close()
	} else if err := c.server.edge.writePaced(&c.Socket, held, head, body); err != nil {
		_ = c.Close()
	}
	if held != nil || !room {
		call.Answer.Wire, call.Answer.Body = nil, nil
	}
	held.Release()
	c.written(call)
	call.Release()
}

func (c *conn) written(call *dialect.Call) {
	if !c.waits { // otherwise its handler still runs
		call.Delivered()
	}
	c.call.Store(nil)
	c.returnRoom()
	c.since.Store(int64(c.server.edge.loop.now()))
	if c.state.Swap(connIdle) == connAwaited {
		c.wake <- struct{}{}
	}
	c.Free()
}

// Left is called when the client has disconnected: a query in flight need not be evaluated, and a body that waits gives up its turn.
func (c *conn) Left() {
	if c.stopWaiting() {
		_ = c.Socket.Close()
		c.Free()
		return
	}
	if call := c.call.Load(); call != nil && call.TryRetain() {
		if c.call.Load() == call { // it still belongs to this connection and was not recycled meanwhile
			call.Cancel()
		}
		call.Release()
	}
	if p := c.parts.Load(); p != nil {
		p.flow.Left()
	}
}

// Ended is called when the client sends no more. What it has sent of a request is dropped.
func (c *conn) Ended() { _ = c.Close() }

// Closed is called when nothing uses the connection any more.
func (c *conn) Closed() {
	if c.reader != nil {
		c.reader.free()
		c.reader = nil
	}
	c.server.untrack(c)
	if c.ended != nil {
		c.ended()
	}
}

// Malloc, WriteBinary and Flush are Hertz's interface for writing. They keep the order of answers.

func (c *conn) Malloc(n int) ([]byte, error) {
	c.awaitWritten()
	return c.Socket.Malloc(n)
}

func (c *conn) WriteBinary(b []byte) (int, error) {
	c.awaitWritten()
	return c.Socket.WriteBinary(b)
}

func (c *conn) Flush() error {
	if c.state.Load() != connIdle {
		return nil // Hertz flushes after every handler, but the pending answer is not its own
	}
	_ = c.SetWriteTimeout(c.server.cfg.Limits.writeTimeout()) // always nil
	return c.Socket.Flush()
}

// adopt takes a new connection, which has a descriptor.
func (s *Server) adopt(nc net.Conn) {
	c := s.newConn()
	if !s.track(c) {
		_ = nc.Close()
		return
	}
	s.begin(c, nc, 0)
}

// idleLimit is how long the connection may wait for a request; 0: for ever.
func (c *conn) idleLimit() api.Nanos {
	if c.served {
		return c.server.edge.loop.limits.Idle
	}
	return c.server.edge.loop.limits.FirstByte
}
