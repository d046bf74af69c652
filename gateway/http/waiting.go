package http

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// This file has what happens to a body of known length that finds no room, on a connection in clear text. Its connection is not read: the
// kernel's buffer fills, and the client has to wait. It needs no goroutine. Bodies get room in the order in which they came, so large ones
// are not starved by small ones. All wait equally long, so a large one delays those behind it by no more than its own time.
//
// All others take what room is there, or are refused: chunked and decoded bodies, whose size is not known before they have come; small
// ones that have come as a whole; and those of connections that a goroutine reads all their life (TLS, HTTP/2, the admin port). A chunked body
// in clear text is refused, too, when it outgrows a small one while others wait.

const (
	// roomWait is as long as Retry-After asks a client to wait. Objectives of queries are rarely longer, and a body that waited would hold
	// its connection for nothing.
	roomWait = time.Second //xebec:limit how long a body waits unread for room in `--body-memory`, before it gets 503
	// roomTurns bounds the waiting: each holds the head of a request and up to 16 KiB that have come with it.
	roomTurns = 1024 //xebec:limit bodies that wait for room in `--body-memory` at a time; further ones get 503 at once
)

// turn is the place of one body among those that wait. Its zero value does not wait.
type turn struct {
	bytes int
	state turnState // under the lock of turns
	wake  func()    // called after room was reserved; it must not block
}

type turnState uint8

const (
	turnNone  turnState = iota
	turnQueue           // it waits
	turnRoom            // room is reserved: claim has it, or leave gives it back
)

// turns is the queue of bodies that wait for room. It has no clock: the connections leave it when their time is over.
type turns struct {
	wait    time.Duration // roomWait, except in tests
	mu      sync.Mutex
	queue   []*turn // in the order of arrival
	waiting atomic.Int32
}

// reserveInTurn is Reserve for a body that can wait: it does not overtake those that do.
func (b *Bodies) reserveInTurn(n int) bool { return b.turns.waiting.Load() == 0 && b.Reserve(n) }

// await puts a body of n bytes behind those that wait, or reports that it can not wait. It may be woken before await returns.
func (b *Bodies) await(t *turn, n int, wake func()) bool {
	q := &b.turns
	q.mu.Lock()
	if len(q.queue) == roomTurns {
		q.mu.Unlock()
		return false
	}
	t.bytes, t.wake, t.state = n, wake, turnQueue
	q.queue = append(q.queue, t)
	q.waiting.Store(int32(len(q.queue)))
	q.mu.Unlock()
	b.admit() // for room that was given back before the queue was seen
	return true
}

// admit gives the room that is left to the first that wait.
func (b *Bodies) admit() {
	q := &b.turns
	for q.waiting.Load() > 0 {
		q.mu.Lock()
		if len(q.queue) == 0 || !b.Reserve(q.queue[0].bytes) {
			q.mu.Unlock()
			return
		}
		t := q.queue[0]
		q.removeLocked(0)
		t.state = turnRoom
		wake := t.wake
		q.mu.Unlock()
		wake()
	}
}

func (q *turns) removeLocked(i int) {
	q.queue = slices.Delete(q.queue, i, i+1)
	q.waiting.Store(int32(len(q.queue)))
}

// claim reports whether room has been reserved, which is the caller's from then on.
func (b *Bodies) claim(t *turn) bool {
	b.turns.mu.Lock()
	defer b.turns.mu.Unlock()
	if t.state != turnRoom {
		return false
	}
	t.state = turnNone
	return true
}

// leave ends the waiting, and reports whether there was any: false after claim or another leave.
func (b *Bodies) leave(t *turn) bool {
	q := &b.turns
	q.mu.Lock()
	was, bytes := t.state, t.bytes
	if was == turnQueue {
		q.removeLocked(slices.Index(q.queue, t))
	}
	t.state = turnNone
	q.mu.Unlock()
	switch was {
	case turnRoom:
		b.Return(bytes)
	case turnQueue:
		b.admit() // the next may be smaller
	}
	return was != turnNone
}

// awaitRoom leaves a request whose body has no room with the poller, which does not read on. rest has come after the head. Without a turn
// a goroutine refuses the request.
func (c *conn) awaitRoom(r *reader, rest []byte, now api.Nanos) {
	c.Keep(rest)
	if !c.park(r, now) {
		c.lend(r, nil, refused, noRoom)
		return
	}
	c.Alarm(c.until)
}

// park puts the request's body among those that wait, and reports whether it does. Then the reader belongs to the poller, and a goroutine
// that has the connection calls Yield, and nothing else. The connection is held until the waiting ends; the call that ends it frees the connection.
func (c *conn) park(r *reader, now api.Nanos) bool {
	bodies := r.loop.Bodies
	if c.wakes == nil {
		c.wakes = c.Wake
	}
	c.reader, c.queued, c.until = r, queuedForRoom, now+api.Nanos(bodies.turns.wait)
	c.Hold()
	if bodies.await(&c.turn, int(r.parser.Head().Length), c.wakes) {
		if !c.Gone() || !bodies.leave(&c.turn) { // Left is not called again for a client that is gone
			return true
		}
	}
	c.reader, c.queued = nil, queuedNot
	c.Free()
	return false
}

// look goes on with a request whose body waits: it has room now, or its time is over.
func (c *conn) look(r *reader, now api.Nanos) {
	bodies := r.loop.Bodies
	switch {
	case bodies.claim(&c.turn):
		c.queued = queuedNot
		r.room = c.turn.bytes
		c.Free()
		c.reader = nil
		c.goOn(r, c.placeBody(r, now), now)
	case now < c.until:
		c.Alarm(c.until)
	case bodies.leave(&c.turn):
		c.reader, c.queued = nil, queuedNot
		c.Free()
		c.lend(r, nil, refused, noRoom)
	}
}

// goOn reads the body of a request that has waited, if it has memory.
func (c *conn) goOn(r *reader, has bodyMemory, now api.Nanos) {
	switch has {
	case bodyHasNoRoom:
		c.lend(r, nil, refused, noRoom)
		return
	case bodyWaits:
		return
	}
	r.parser.Resume(now)
	if r.parser.Head().Continue {
		c.lend(r, nil, headed, nil) // writing may block
		return
	}
	if !r.filled {
		r.fill()
	}
	c.reader = r
	if c.Len() == 0 { // otherwise Input comes with what was kept
		c.awaitMore(r)
	}
}

// stopWaiting ends the waiting of a body, and reports whether there was any. Its caller frees the connection.
func (c *conn) stopWaiting() bool { return c.server.edge.Bodies.leave(&c.turn) || c.asking.stop() }

// Close closes the connection. Its body waits no longer. Any goroutine may call it.
func (c *conn) Close() error {
	waited := c.stopWaiting()
	err := c.Socket.Close()
	if waited {
		c.Free()
	}
	return err
}

// awaitsRoom is why a goroutine does not go on with a request: its body may wait.
var awaitsRoom = &http1.Failure{Reason: http1.NoRoom}
