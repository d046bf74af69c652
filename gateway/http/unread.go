package http

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cloudwego/hertz/pkg/network"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

const (
	// largeAnswer is the size from which an answer needs room before it is written. The socket mostly takes smaller ones at once; where it
	// does not, they need room from then on.
	largeAnswer = 64 << 10 //xebec:limit answers above this count against the memory for answers, which is half of `--body-memory`; smaller ones once their client does not take them
	// blockingAnswer is that size where a goroutine writes, and waits while the socket is full: with TLS, and on the admin port. In HTTP/2 it
	// is h2's own. Below it the goroutine itself takes more.
	blockingAnswer = 4 << 10 //xebec:limit the same, with TLS, in HTTP/2 and on the admin port
	// stalledAfter is how long a client may take nothing before its connection is cut for the sake of another answer.
	stalledAfter = 2 * time.Second //xebec:limit an unread answer that stalls this long is cut when others need its memory
)

// unread is the memory of large answers that clients have not taken yet, and its bound. It is not a part of the budget of bodies: a client
// that stalls its upload must not end the answers of others, nor one that reads nothing refuse their bodies.
type unread struct {
	limit int64 // 0: none
	mu    sync.Mutex
	used  int64 // without those that are cut: their memory is about to be free
	held  map[*heldAnswer]struct{}
}

// heldAnswer is one such answer. Its writer owns it until Release.
type heldAnswer struct {
	of    *unread
	bytes int64
	moved time.Time // when the client took a part
	end   func()    // cuts the connection; it must not block
	isCut bool
}

// take returns room for an answer of so many bytes, or nil without. Where that makes enough room it cuts the connections whose clients
// have taken nothing for a while. One answer always has room, however large: otherwise its model could never answer.
func (u *unread) take(bytes int64, now time.Time, end func()) *heldAnswer {
	h := &heldAnswer{of: u, bytes: bytes, moved: now, end: end}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limit > 0 && u.used > 0 && u.used+bytes > u.limit && !u.cutStalled(bytes, now) {
		return nil
	}
	if u.held == nil {
		u.held = map[*heldAnswer]struct{}{}
	}
	u.held[h] = struct{}{}
	u.used += bytes
	return h
}

// full reports whether take would return nil for an answer of so many bytes.
func (u *unread) full(bytes int64, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.limit <= 0 || u.used == 0 || u.used+bytes <= u.limit {
		return false
	}
	_, ok := u.stalled(bytes, now)
	return !ok
}

// stalled returns the answers whose clients have taken nothing for a while, and whether room for so many bytes can be made of them. Its
// caller holds the lock.
func (u *unread) stalled(bytes int64, now time.Time) (idle []*heldAnswer, ok bool) {
	left := u.used
	for h := range u.held {
		if !h.isCut && now.Sub(h.moved) >= stalledAfter {
			idle = append(idle, h)
			left -= h.bytes
		}
	}
	return idle, left <= 0 || left+bytes <= u.limit
}

// cutStalled makes room for so many bytes, and reports whether it could; otherwise it cuts none. Its caller holds the lock.
func (u *unread) cutStalled(bytes int64, now time.Time) bool {
	idle, ok := u.stalled(bytes, now)
	if !ok {
		return false
	}
	slices.SortFunc(idle, func(a, b *heldAnswer) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), a.moved.Compare(b.moved)) })
	for u.used > 0 && u.used+bytes > u.limit {
		most := idle[0]
		idle = idle[1:]
		most.isCut = true
		u.used -= most.bytes
		most.end()
	}
	return true
}

// Took says that the client has taken a part. h may be nil.
func (h *heldAnswer) Took(now time.Time) {
	if h != nil {
		h.of.mu.Lock()
		h.moved = now
		h.of.mu.Unlock()
	}
}

// Release gives the room back. end is not called after it. h may be nil.
func (h *heldAnswer) Release() {
	if h == nil {
		return
	}
	h.of.mu.Lock()
	delete(h.of.held, h)
	if !h.isCut {
		h.of.used -= h.bytes
	}
	h.of.mu.Unlock()
}

// hold returns room for an answer on a connection, or nil without.
func (e *Edge) hold(c network.Conn, bytes int64) *heldAnswer {
	end := func() { go c.Close() } // TLS may want to say goodbye first
	if own, ok := c.(*conn); ok {
		end = own.Cut // whoever writes the answer uses the socket until it has released the room
	}
	return e.Bodies.unread.take(bytes, time.Now(), func() {
		e.Refusals.count(http1.Unread)
		end()
	})
}

// holdAnswer returns room for the answer that Hertz will write, if it is large. Without room it replaces the answer by a refusal.
func (r *reader) holdAnswer() *heldAnswer {
	a, l := &r.rc.Response, r.loop
	if a.GetHijackWriter() != nil || a.IsBodyStream() || a.SkipBody || len(a.BodyBytes()) <= blockingAnswer {
		return nil
	}
	h := l.hold(r.conn, int64(cap(a.BodyBytes())))
	if h == nil {
		l.Refusals.count(http1.NoRoom)
		closing, id := a.ConnectionClose(), string(a.Header.Peek(headerRequestID))
		a.Reset()
		a.Header.Set(headerRequestID, id)
		e := *noAnswerRoom
		l.Refuse(r.rc, &e, e.Code.HTTPStatus())
		a.Header.Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		if closing {
			a.SetConnectionClose()
		}
	}
	return h
}

// answerBytes is the memory of a call's answer: the text, and the outputs of which it was made, which the call keeps.
func answerBytes(call *dialect.Call) int64 {
	return int64(cap(call.Answer.Body)+cap(call.Answer.Wire)) + outputBytes(call)
}

// outputBytes is the memory of the outputs alone, before they are rendered.
func outputBytes(call *dialect.Call) (n int64) {
	for i := range call.Len() {
		for _, v := range call.Query(i).Outputs {
			n += int64(len(v.Data))
		}
	}
	return n
}

// noRoomFor reports whether an answer with these outputs will be refused, which is then done and counted. It need not be rendered: the text,
// which needs room too, is as large as the outputs at least, and would be garbage at once.
func (s *Server) noRoomFor(call *dialect.Call, d dialect.Dialect) bool {
	if n := outputBytes(call); n <= largeAnswer || !s.edge.Bodies.unread.full(2*n, time.Now()) {
		return false
	}
	s.replaceAnswer(call, d)
	return true
}

// replaceAnswer makes the call's answer, of which nothing has been written, a refusal for want of room.
func (s *Server) replaceAnswer(call *dialect.Call, d dialect.Dialect) {
	s.cfg.Refusals.count(http1.NoRoom)
	a, e := &call.Answer, *noAnswerRoom
	e.RequestID = string(call.Identity.RequestID)
	a.Reset(e.Code.HTTPStatus())
	a.Body = d.AppendError(nil, &e) // a large one becomes garbage now, not when its pool is emptied
}

// noAnswerRoom is the refusal of a request whose answer has no room.
var noAnswerRoom = api.Errorf(api.Overloaded, "answers that other clients do not read take all of the memory for answers (half of --body-memory): send the request again later")
