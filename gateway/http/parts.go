package http

import (
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/coding"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// parts is an answer in parts on a connection that pollers read. Nothing waits for the client: what the socket does not take at once a goroutine
// writes, and the dialect hears of room when that is done.
type parts struct {
	c    *conn
	call *dialect.Call // retained until the end
	flow dialect.Flow

	mu      sync.Mutex
	rest    []byte // framed, and not taken by the socket yet; while writing, what has come since
	writing bool   // a goroutine writes
	wanted  bool   // the dialect waits for room
	last    bool   // everything has come
	broken  bool   // and something is missing
	gone    bool   // the client has left, or was cut off
}

// replyInParts sends the head and the first part.
func (c *conn) replyInParts(call *dialect.Call, f dialect.Flow) {
	p := &parts{c: c, call: call, flow: f, wanted: true}
	call.Retain()
	call.SetSink(p)
	c.parts.Store(p)
	a := &call.Answer
	a.Wire = c.server.appendHead(a.Wire[:0], call, coding.Identity, nil)
	p.mu.Lock()
	p.rest = appendChunk(append(p.rest, a.Wire...), a.Body)
	freeFirst(a)
	room := p.pushLocked()
	gone := p.gone
	if room {
		p.wanted = false
	}
	p.mu.Unlock()
	switch {
	case gone:
		f.Left()
	case room:
		f.Room()
	}
}

// freeFirst gives up the first part of an answer, after it was copied, if it is large: the call holds its answer until the end of the stream.
func freeFirst(a *dialect.Answer) {
	if cap(a.Body) > maxHeldPart {
		a.Body = nil
	}
}

// maxHeldPart is how much memory for a part stays with an answer in parts after it was sent.
const maxHeldPart = 16 << 10

// appendChunk appends a chunk (RFC 9112, section 7.1). An empty one would be the last.
func appendChunk(dst, p []byte) []byte {
	if len(p) == 0 {
		return dst
	}
	dst = append(strconv.AppendUint(dst, uint64(len(p)), 16), "\r\n"...)
	return append(append(dst, p...), "\r\n"...)
}

// pushLocked passes what is there to the socket, and reports whether it has taken all of it.
func (p *parts) pushLocked() bool {
	if p.writing || p.gone {
		return false
	}
	n, gone := p.c.Send(p.rest)
	if gone {
		p.gone, p.rest = true, nil
		return false
	}
	if n == len(p.rest) {
		if p.rest = p.rest[:0]; cap(p.rest) > maxHeldPart {
			p.rest = nil
		}
		return true
	}
	p.rest = p.rest[:copy(p.rest, p.rest[n:])]
	p.writing = true
	go p.drain()
	return false
}

// Part implements [dialect.Sink].
func (p *parts) Part(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	p.rest = appendChunk(p.rest, b)
	room := p.pushLocked()
	p.wanted = !room
	return room
}

// Last implements [dialect.Sink].
func (p *parts) Last(b []byte, broken bool) {
	p.mu.Lock()
	p.last, p.broken, p.wanted = true, broken, false
	if !p.gone {
		p.rest = appendChunk(p.rest, b)
		if !broken {
			p.rest = append(p.rest, "0\r\n\r\n"...)
		}
		p.pushLocked()
	}
	writing := p.writing
	p.mu.Unlock()
	if !writing {
		p.finish()
	}
}

// drain writes what the socket did not take, until nothing is left.
func (p *parts) drain() {
	c := p.c
	var out []byte
	for {
		p.mu.Lock()
		out, p.rest = p.rest, out[:0]
		if len(out) == 0 || p.gone {
			p.writing = false
			room, last := p.wanted && !p.gone, p.last
			p.wanted = false
			if cap(p.rest) > largeAnswer {
				p.rest = nil
			}
			p.mu.Unlock()
			if room {
				p.flow.Room()
			}
			if last {
				p.finish()
			}
			return
		}
		p.mu.Unlock()
		var err error
		if held := c.server.edge.hold(c, int64(cap(out))); held == nil {
			c.server.cfg.Refusals.count(http1.NoRoom)
			err = errNoAnswerRoom
		} else {
			err = c.server.edge.writePaced(&c.Socket, held, nil, out)
			held.Release()
		}
		if err != nil {
			p.mu.Lock()
			p.gone = true
			p.mu.Unlock()
			c.Cut()
			p.flow.Left()
		}
	}
}

var errNoAnswerRoom = errors.New("no room for unread answers")

// finish gives the connection back for its next request.
func (p *parts) finish() {
	c, call := p.c, p.call
	c.parts.Store(nil)
	if p.broken || p.gone {
		_ = c.Close()
	}
	c.written(call)
	call.Release()
}

// pipe is an answer in parts that a handler writes: with TLS, in HTTP/2, while draining. The handler waits for parts, and the dialect for room.
type pipe struct {
	flow dialect.Flow
	come chan struct{} // capacity 1: something has changed

	mu     sync.Mutex
	rest   []byte
	wanted bool // the dialect waits for room
	last   bool
	broken bool
	gone   bool
	end    chan struct{} // closed after the last part has come
	out    []byte        // what the reader has taken of rest and not passed on
}

func newPipe(f dialect.Flow, first []byte) *pipe {
	return &pipe{flow: f, come: make(chan struct{}, 1), rest: append([]byte(nil), first...), wanted: true, end: make(chan struct{})}
}

func (p *pipe) wake() {
	select {
	case p.come <- struct{}{}:
	default:
	}
}

// Part implements [dialect.Sink].
func (p *pipe) Part(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	p.rest = append(p.rest, b...)
	p.wanted = true
	p.wake()
	return false
}

// Last implements [dialect.Sink].
func (p *pipe) Last(b []byte, broken bool) {
	p.mu.Lock()
	p.rest = append(p.rest, b...)
	p.last, p.broken, p.wanted = true, broken, false
	p.wake()
	p.mu.Unlock()
	close(p.end)
}

var errBroken = errors.New("the stream has broken off")

// next returns what has come, waiting for it until done. The dialect may send more at once. The error is io.EOF after the last part.
func (p *pipe) next(done <-chan struct{}) ([]byte, error) {
	for {
		p.mu.Lock()
		if len(p.rest) > 0 {
			p.out, p.rest = p.rest, p.out[:0]
			room := p.wanted
			p.wanted = false
			p.mu.Unlock()
			if room {
				p.flow.Room()
			}
			return p.out, nil
		}
		last, broken := p.last, p.broken
		p.mu.Unlock()
		switch {
		case last && broken:
			return nil, errBroken
		case last:
			return nil, io.EOF
		}
		select {
		case <-p.come:
		case <-done:
			return nil, errLeft
		}
	}
}

var errLeft = errors.New("the client has left")

// leave says that the client has left, and waits until the dialect has ended the answer.
func (p *pipe) leave() {
	p.mu.Lock()
	p.gone, p.rest = true, nil
	p.mu.Unlock()
	p.flow.Left()
	<-p.end
}

// pipeBody is a pipe as the body of an answer in HTTP/2, which is written after the handler has returned.
type pipeBody struct {
	p    *pipe
	call *dialect.Call // retained
	done <-chan struct{}
	part []byte
	over bool
}

func (b *pipeBody) Read(dst []byte) (int, error) {
	if len(b.part) == 0 {
		var err error
		if b.part, err = b.p.next(b.done); err != nil {
			b.over = !errors.Is(err, errLeft)
			return 0, err
		}
	}
	n := copy(dst, b.part)
	b.part = b.part[n:]
	return n, nil
}

// Close is called when the answer is written, or cannot be.
func (b *pipeBody) Close() error {
	if b.call == nil {
		return nil
	}
	if !b.over {
		b.p.leave()
	}
	b.call.Delivered()
	b.call.Release()
	b.call = nil
	return nil
}

// answerInParts writes an answer in parts. In HTTP/2 what calls the handler does that.
func (x *exchange) answerInParts(call *dialect.Call) {
	p := x.pipe
	x.pipe = nil
	c := x.c
	if c.GetConn() == nil {
		x.answerHead(&call.Answer)
		c.Response.SetBodyStream(&pipeBody{p: p, call: call, done: x.ctx.Done()}, -1)
		return
	}
	x.answerHead(&call.Answer)
	nameAnswer(c, &x.about.Identity) // the middleware would be too late
	c.Response.Header.SetServerBytes(serverName)
	err := writeParts(c, p, x.ctx.Done())
	if err != nil {
		if !errors.Is(err, errBroken) {
			p.leave()
		}
		c.SetConnectionClose()
		_ = c.GetConn().Close()
	}
	if x.conn != nil {
		x.conn.call.Store(nil)
	}
	call.Delivered()
	call.Release()
}

// writeParts writes parts as chunks until the last one.
func writeParts(c *app.RequestContext, p *pipe, done <-chan struct{}) error {
	w := resp.NewChunkedBodyWriter(&c.Response, c.GetWriter())
	c.Response.HijackWriter(w)
	for {
		part, err := p.next(done)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// answerHead is Answer without the body.
func (x *exchange) answerHead(a *dialect.Answer) {
	body := a.Body
	a.Body = nil
	x.Answer(a)
	a.Body = body
}
