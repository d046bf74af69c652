package http

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/utils"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/consts"
	"github.com/cloudwego/hertz/pkg/protocol/http1/resp"
	"github.com/cloudwego/hertz/pkg/protocol/suite"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/h2"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// Edge reads a port's requests: it is Hertz's factory for HTTP/1.1 (Engine.AddProtocol). Framing, limits, deadlines and the memory
// of bodies are decided here, by package http1; routes and contexts are Hertz's. Both ports have one.
type Edge struct {
	// Limits bound each connection.
	Limits Limits
	// Bodies is the memory of bodies, shared by all ports.
	Bodies *Bodies
	// Refusals counts what did not reach a route.
	Refusals *Refusals
	// Refuse renders the refusal of a request. The request has what is known of its head, and an X-Request-Id.
	Refuse Refuse
	// Panicked is told of panics outside of handlers; may be nil.
	Panicked func(Panic)
	// TLS says that connections are encrypted.
	TLS bool
	// HTTP2 serves connections that begin with HTTP/2's preface; nil: they are refused.
	HTTP2 func(suite.Core) *h2.Server

	loop      *loop         // what New has made
	lingers   time.Duration // lingerTime, except in tests
	answering atomic.Int64  // requests whose handler has not returned, or whose answer Hertz still writes
}

// New implements suite.ServerFactory.
func (e *Edge) New(core suite.Core) (protocol.Server, error) {
	l := &loop{Edge: e, core: core, limits: e.Limits.parser(), began: time.Now()}
	if limit := e.Bodies.limit; limit > 0 { // what can never have room is too large
		l.limits.BodyBytes = min(l.limits.BodyBytes, limit)
	}
	l.readers.New = func() any { return new(reader) }
	if e.HTTP2 != nil {
		l.http2 = e.HTTP2(core)
	}
	e.loop = l
	return l, nil
}

// loop serves the connections of a port: each on a goroutine, or where a poller can read them (conn), only while it must.
type loop struct {
	*Edge
	core    suite.Core
	limits  http1.Limits
	began   time.Time
	readers sync.Pool // *reader
	http2   *h2.Server
}

func (l *loop) now() api.Nanos { return api.Nanos(time.Since(l.began)) }

// sensing is Hertz's standard connection where a handler's context ends when the client leaves.
type sensing interface {
	DetectConnectionClose()
	AbortBlockingRead()
}

// Serve serves a connection until it ends. Hertz closes it.
func (l *loop) Serve(ctx context.Context, c network.Conn) error {
	rc := l.core.GetCtxPool().Get().(*app.RequestContext)
	r := l.readers.Get().(*reader)
	c = &flushing{Conn: c, limits: &l.Limits}
	r.loop, r.conn, r.own, r.rc, r.filled = l, c, nil, rc, false
	r.parser.Begin(&l.limits, l.now())
	rc.SetConn(c)
	rc.Request.SetIsTLS(l.TLS)
	defer func() {
		r.dropBody()
		r.loop, r.conn, r.rc = nil, nil, nil
		l.readers.Put(r)
		if !rc.IsExiled() {
			rc.Reset()
			l.core.GetCtxPool().Put(rc)
		}
	}()
	for first := true; ; first = false {
		f := r.receive()
		if f != nil && f.Reason == http1.HTTP2 && first && l.http2 != nil && r.skipPreface() {
			return l.http2.ServeAfterPreface(ctx, c)
		}
		if f != nil {
			r.refuse(f)
			return nil
		}
		if !r.serveOne(ctx) {
			r.abandonBody()
			return nil
		}
		rc.ResetWithoutConn()
		r.filled = false
		r.dropBody()
		r.parser.Again(l.now())
	}
}

// skipPreface skips what follows the first line of HTTP/2's preface, and reports whether it is right.
func (r *reader) skipPreface() bool {
	const rest = "\r\nSM\r\n\r\n"
	b, err := r.conn.Peek(len(rest)) // within the time for a header that the last wait has set
	if err != nil || string(b) != rest {
		return false
	}
	return r.conn.Skip(len(rest)) == nil && r.conn.Release() == nil && r.conn.SetReadTimeout(0) == nil
}

// serveOne serves the request that was received, and reports whether the connection goes on.
func (r *reader) serveOne(ctx context.Context) bool {
	r.loop.answering.Add(1)
	defer r.loop.answering.Add(-1)
	if s, senses := r.senses(); senses {
		s.DetectConnectionClose()
		defer s.AbortBlockingRead()
	}
	if r.own != nil && !r.laid() {
		r.own.body = r.body
	}
	r.loop.core.ServeHTTP(ctx, r.rc)
	if r.own != nil {
		r.own.body = nil
	}
	return r.conclude()
}

// conclude writes what the handler has left to write, and reports whether the connection goes on.
func (r *reader) conclude() bool {
	rc, l, h := r.rc, r.loop, r.parser.Head()
	held := r.holdAnswer()
	defer held.Release()
	closing := h.Close || rc.Response.ConnectionClose() || !l.core.IsRunning()
	if closing {
		rc.Response.Header.SetCanonical(connection, closes)
	} else if h.Minor == 0 {
		rc.Response.Header.SetCanonical(connection, keepsAlive)
	}
	rc.Response.SkipBody = rc.Response.SkipBody || rc.Request.Header.IsHead()
	var ok bool
	if w := rc.Response.GetHijackWriter(); w != nil { // the handler has written the answer, or will
		ok = w.Finalize() == nil && r.conn.Flush() == nil
	} else {
		ok = r.write(held) == nil
	}
	r.lingers = ok && closing && !h.Close && r.own != nil
	return ok && !closing
}

// leave lets the client take an answer that ends the connection although the client has not asked for that: it may have sent more.
func (r *reader) leave() {
	if r.lingers {
		r.lingers = false
		r.dropBody()
		r.linger()
	}
}

var connection, closes, keepsAlive = []byte("Connection"), []byte("close"), []byte("keep-alive")

func (r *reader) senses() (sensing, bool) {
	if f, ok := r.conn.(*flushing); ok {
		s, ok := f.Conn.(sensing)
		return s, ok
	}
	return nil, false
}

// write writes Hertz's answer. The client must take it at the lowest rate.
func (r *reader) write(held *heldAnswer) error {
	a := &r.rc.Response
	a.Header.SetServerBytes(serverName)
	body := a.BodyBytes()
	if a.IsBodyStream() || a.SkipBody || len(body) <= pacedBytes {
		if err := resp.Write(a, r.conn); err != nil {
			return err
		}
		return r.conn.Flush()
	}
	a.Header.SetContentLength(len(body))
	if err := resp.WriteHeader(&a.Header, r.conn); err != nil {
		return err
	}
	return r.loop.writePaced(r.conn, held, nil, body)
}

var serverName = []byte("xebec")

// refuse answers a request that does not reach a route, in the shape of the dialect whose path it has. The connection ends.
func (r *reader) refuse(f *http1.Failure) {
	r.loop.Refusals.count(f.Reason)
	if f.Status == 0 {
		return
	}
	r.dropBody()
	rc := r.rc
	if len(r.parser.Head().Path()) > 0 && !r.filled {
		r.fill()
	}
	nameRefused(rc)
	r.loop.Refuse(rc, &api.Error{Code: codeOf(f.Status), Message: f.Text}, f.Status)
	rc.Response.SetConnectionClose()
	rc.Response.Header.SetCanonical(connection, closes)
	if f.Status == consts.StatusServiceUnavailable {
		rc.Response.Header.Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
	rc.Response.SkipBody = string(r.parser.Head().Method()) == "HEAD"
	if r.write(nil) == nil {
		r.linger()
	}
}

const (
	retryAfterSeconds = 1
	// lingerTime and lingerBytes bound how long a connection is read on after its last answer.
	lingerTime  = time.Second //xebec:limit how long what follows a refused request, or the last one of a connection, is read and dropped
	lingerBytes = 256 << 10   //xebec:limit how much of what follows a refused request, or the last one of a connection, is read and dropped
)

// linger drops what still comes: closing with unread bytes would reset the connection, and the client might never see the
// answer (RFC 9112, 9.6).
func (r *reader) linger() {
	if r.own != nil {
		r.own.EndWriting()
	}
	end := time.Now().Add(cmp.Or(r.loop.lingers, lingerTime))
	for dropped := 0; dropped < lingerBytes; {
		left := time.Until(end)
		if left <= 0 || r.conn.SetReadTimeout(left) != nil {
			return
		}
		if _, err := r.conn.Peek(1); err != nil {
			return
		}
		n := r.conn.Len()
		dropped += n
		if r.conn.Skip(n) != nil || r.conn.Release() != nil {
			return
		}
	}
}

// fill passes the head to Hertz. Names become canonical in place.
func (r *reader) fill() {
	h, to := r.parser.Head(), &r.rc.Request.Header
	r.filled = true
	to.SetMethodBytes(h.Method())
	r.target = append(r.target[:0], h.Path()...)
	if q := h.Query(); len(q) > 0 {
		r.target = append(append(r.target, '?'), q...)
	}
	to.SetRequestURIBytes(r.target)
	to.SetHostBytes(h.Host())
	to.SetConnectionClose(h.Close)
	if to.SetProtocol(consts.HTTP11); h.Minor == 0 {
		to.SetProtocol(consts.HTTP10)
	}
	for i := range h.Fields() {
		name, value := h.Field(i)
		utils.NormalizeHeaderKey(name, false)
		switch string(name) {
		case "Host", "Transfer-Encoding":
		case "Connection":
			if !h.Close {
				to.AddArgBytes(name, value, false)
			}
		case "Content-Type":
			to.SetContentTypeBytes(value)
		case "User-Agent":
			to.SetUserAgentBytes(value)
		case "Content-Length":
			to.InitContentLengthWithValue(int(h.Length))
			to.SetContentLengthBytes(value)
		default:
			to.AddArgBytes(name, value, false)
		}
	}
}
