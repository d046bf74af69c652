package http

import (
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

const (
	// windowBytes of what has been received are parsed at a time, so that a body that came in many parts is not put
	// together twice.
	windowBytes = 16 << 10
	// readBytes of a body are read at a time.
	readBytes = 64 << 10
	// firstChunkBytes is the first memory of a chunked body. It doubles as chunks come.
	firstChunkBytes = 4 << 10
)

// reader reads the requests of one connection.
type reader struct {
	loop    *loop
	conn    network.Conn
	own     *conn // nil with TLS and on the admin port
	rc      *app.RequestContext
	parser  http1.Parser
	body    *body // of the request, in Hertz's context too
	target  []byte
	filled  bool // Hertz's context has the head
	placed  bool // the poller reads the next part of the body to its place
	lingers bool // the last answer ends the connection, and the client may not have expected that
	parked  bool // the goroutine that has the connection returns it, because the body waits for room
	// laidUntil is how long the body may lie in a worker's memory before it is complete.
	laidUntil api.Nanos
	room      int // bytes of the budget of bodies that the request has while its body has no memory
}

// left is a client that has left: no answer can reach it.
var left = &http1.Failure{Reason: http1.Incomplete}

// receive reads a request into Hertz's context.
func (r *reader) receive() *http1.Failure {
	for {
		if r.conn.Len() == 0 {
			if f := r.wait(); f != nil {
				return f
			}
		}
		if r.readsBody() {
			if f := r.readBody(); f != nil {
				return f
			}
			if r.readsBody() {
				continue
			}
			if r.conn.Release() != nil {
				return left
			}
			_, _, f := r.parse(nil) // the end follows from the length
			return f
		}
		in, err := r.conn.Peek(min(r.conn.Len(), windowBytes))
		if err != nil {
			return left
		}
		n, done, f := r.parse(in)
		if r.conn.Skip(n) != nil || r.conn.Release() != nil {
			return left
		}
		if f != nil || done {
			return f
		}
	}
}

// readsBody reports whether the rest of a body of known length is to come, and nothing else before it.
func (r *reader) readsBody() bool {
	return r.body != nil && r.parser.Head().Length > 0 && len(r.body.bytes) < int(r.parser.Head().Length)
}

// readBody reads a part of the body straight to its place.
func (r *reader) readBody() *http1.Failure {
	have, length := len(r.body.bytes), int(r.parser.Head().Length)
	n, err := r.conn.Read(r.body.bytes[have:min(length, have+readBytes)])
	if err != nil {
		return left
	}
	part := r.body.bytes[have : have+n]
	if used, e := r.parser.Next(part, r.loop.now()); e.Kind != http1.Body || used != n {
		panic("http1: a body's bytes were not taken as such")
	}
	r.body.bytes = r.body.bytes[:have+n]
	return nil
}

// parse consumes n bytes and reports whether the request is complete.
func (r *reader) parse(in []byte) (n int, done bool, f *http1.Failure) {
	now := r.loop.now()
	for {
		took, e := r.parser.Next(in[n:], now)
		n += took
		switch e.Kind {
		case http1.More:
			return n, false, nil
		case http1.Headed:
			if f := r.open(n == r.conn.Len()); f != nil {
				return n, false, f
			}
			now = r.loop.now()
		case http1.Body:
			if f := r.keep(e.Data); f != nil {
				return n, false, f
			}
			if r.readsBody() && n == len(in) {
				return n, false, nil
			}
		case http1.End:
			if r.body != nil {
				r.rc.Request.SetBodyRaw(r.body.bytes)
			}
			return n, true, nil
		case http1.Fail:
			return n, false, e.Failure
		}
	}
}

// open begins a request whose head is complete. bare: nothing of the body has come yet.
func (r *reader) open(bare bool) *http1.Failure {
	if !r.filled { // before it waited for room
		r.fill()
	}
	h := r.parser.Head()
	if h.Length > 0 && r.body == nil {
		n, b := int(h.Length), r.loop.Bodies
		if r.own != nil && !b.reserveInTurn(n) {
			return awaitsRoom
		}
		if r.own == nil && !b.Reserve(n) {
			return noRoom
		}
		if r.body = b.memory(n); r.body == nil {
			return noRoom
		}
	}
	if h.Continue && bare {
		if _, err := r.conn.WriteBinary(goOn); err != nil {
			return left
		}
		if r.conn.Flush() != nil {
			return left
		}
	}
	return nil
}

var goOn = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// keep appends a part of the body. A chunked body takes memory as it comes. In clear text it does not outgrow a small one while bodies of known
// length wait for room: it would overtake them. One that has outgrown it goes on, since what it has taken would be in vain. Both end: it never waits, but
// has room or is refused; and as none joins those that go on, those that wait get the room that these leave.
func (r *reader) keep(part []byte) *http1.Failure {
	have := 0
	if r.body != nil {
		have = len(r.body.bytes)
	}
	need := have + len(part)
	if r.own != nil && have <= quickBytes && need > quickBytes && r.loop.Bodies.Waiting() > 0 && r.parser.Head().Length < 0 {
		return noRoom
	}
	if r.body == nil || need > cap(r.body.bytes) {
		larger := r.loop.Bodies.grow(r.body, min(max(need, 2*have, firstChunkBytes), r.loop.Limits.BodyBytes))
		if larger == nil {
			return noRoom
		}
		r.body = larger
	} else if int64(need) > r.body.reserved { // the memory is rounded up, the budget is not
		if !r.loop.Bodies.Reserve(need - int(r.body.reserved)) {
			return noRoom
		}
		r.body.reserved = int64(need)
	}
	r.body.bytes = append(r.body.bytes, part...)
	return nil
}

func (r *reader) dropBody() {
	if r.body != nil {
		r.loop.Bodies.put(r.body)
		r.body = nil
	}
}

// abandonBody gives up a body that a handler has passed on before it panicked.
func (r *reader) abandonBody() {
	if r.body != nil && panicked(r.rc) {
		r.loop.Bodies.abandon(r.body)
		r.body = nil
	}
}

// wait waits until something has come, or the deadline has passed.
func (r *reader) wait() *http1.Failure {
	for {
		now, timeout := r.loop.now(), time.Duration(0)
		if d := r.parser.Deadline(); d > 0 {
			if timeout = time.Duration(d - now); timeout <= 0 {
				timeout = 1
			}
		}
		if r.conn.SetReadTimeout(timeout) != nil {
			return left
		}
		_, err := r.conn.Peek(1)
		if err == nil {
			return nil
		}
		now = r.loop.now()
		if d := r.parser.Deadline(); d == 0 || now < d {
			if f := r.parser.Close(); f != nil {
				return f
			}
			return left
		}
		if r.own != nil && r.own.state.Load() != connIdle && r.parser.Waiting() {
			r.parser.Again(now) // it waits for our answer
			continue
		}
		return r.parser.Expire(now)
	}
}
