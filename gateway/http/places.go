package http

import (
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// This file has what happens to a large body whose model has memory for it, but not now: what others have sent lies there. Read to memory of
// its own it would only wait there, with as many others as there are clients, and be copied later. So it waits in the kernel, and its
// connection is not read. That takes a moment, for the model is about to free what it has evaluated; if it takes longer the body is read to
// memory of its own. It has its room in the budget of bodies all the while.

// placeWait is short beside what a client waits for a model that is that busy, and long beside a batch.
const placeWait = 250 * api.Nanos(time.Millisecond) //xebec:limit how long a large body waits unread for memory of its model's worker, before it gets memory of its own

// asking is what a connection knows of the place for which its body waits. Its zero value does not wait.
type asking struct {
	mu    sync.Mutex
	waits bool
	bytes int      // of the place
	given bool     // the answer is there,
	slot  api.Slot // this place or nil
	until api.Nanos
	give  func(api.Slot) bool // takes the answer and wakes the connection; made once
}

// end ends the waiting, and reports whether there was any. Its caller has the place that was given, and frees the connection.
func (a *asking) end() (s api.Slot, waited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, waited = a.slot, a.waits
	a.waits, a.given, a.slot = false, false, nil
	return s, waited
}

// stop is end for a connection that is closed.
func (a *asking) stop() (waited bool) {
	s, waited := a.end()
	if s != nil {
		s.Free()
	}
	return waited
}

// answered reports whether the waiting is over.
func (a *asking) answered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.given || !a.waits
}

// take keeps the answer, and reports whether the connection waits for it. The answer may be the one to an earlier body of the connection, which
// has waited in vain: a place of another size is not taken.
func (a *asking) take(s api.Slot) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.waits || a.given || s != nil && len(s.Bytes()) != a.bytes {
		return false
	}
	a.given, a.slot = true, s
	return true
}

// askPlace returns a place for the request's body, or nil. With waits the body waits, unread, and the connection is held until that ends.
func (c *conn) askPlace(r *reader, now api.Nanos) (_ api.Slot, waits bool) {
	a := &c.asking
	if a.give == nil {
		a.give = func(s api.Slot) bool {
			taken := a.take(s)
			if taken {
				c.Wake()
			}
			return taken
		}
	}
	c.Hold()
	c.reader, c.queued = r, queuedForPlace
	a.mu.Lock()
	a.waits, a.bytes, a.until = true, r.room, now+r.loop.Bodies.placeWait
	a.mu.Unlock()
	s, waits := c.server.reserve(r.parser.Head(), a.give)
	if waits && !c.Gone() { // Left is not called again for a client that is gone
		c.Alarm(a.until)
		return nil, true
	}
	c.reader, c.queued = nil, queuedNot
	given, waited := a.end()
	if waited {
		c.Free()
	}
	switch {
	case s == nil:
		s = given
	case given != nil:
		given.Free()
	}
	return s, false
}

// lookPlace goes on with a request whose body waits for a place: it has one, or there is none, or its time is over.
func (c *conn) lookPlace(r *reader, now api.Nanos) {
	a := &c.asking
	if now < a.until && !a.answered() {
		c.Alarm(a.until)
		return
	}
	s, waited := a.end()
	if !waited {
		return // it was closed
	}
	c.reader, c.queued = nil, queuedNot
	c.Free()
	c.goOn(r, c.place(r, s, now), now)
}
