package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/suite"
	"golang.org/x/net/http2"
)

// Bounds of a connection.
const (
	// maxStreams bounds the requests of one connection that are served at a time.
	maxStreams = 250 //xebec:limit requests at a time on an HTTP/2 connection
	// windowBytes bounds what a client may send ahead of what has been read.
	windowBytes = 1 << 20 //xebec:limit unread bytes of a request's body on an HTTP/2 connection
	// connectionWindowBytes is the same for all streams of a connection together.
	connectionWindowBytes = 4 << 20 //xebec:limit unread bytes of all bodies on an HTTP/2 connection
	// frameBytes bounds a frame that a client sends, and one that it gets. A connection keeps a buffer for the largest of each as long as it is
	// open. No server may take less than this, and many clients send no larger ones.
	frameBytes = 16 << 10 //xebec:limit a frame of HTTP/2
	// pingAfter is how long a connection with open streams may be silent before it is pinged, and pingTimeout how long the
	// answer may take.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second //xebec:limit time for an HTTP/2 client to answer a ping
)

// Options are what HTTP/2 shares with HTTP/1.1.
type Options struct {
	BodyBytes    int           // larger bodies are refused with 413
	HeaderBytes  int           // all header fields of a request
	Requests     int           // at a time over all connections; more are refused with 503. 0: any number
	IdleTimeout  time.Duration // without a stream
	WriteTimeout time.Duration // in which the client must read something
	// BodyGrace is how long a body, and a client that takes its answer, may be silent. Beyond that MinRate bytes must flow each
	// second; 0: any rate. Unread counts answers that were not taken; may be nil.
	BodyGrace time.Duration
	MinRate   int
	Unread    func()
	// Refuse answers a request that did not reach Hertz's engine: its status and a message for the error document.
	Refuse func(c *app.RequestContext, status int, message string)
	// Draining reports whether answers should ask clients to leave. May be nil.
	Draining func() bool
	// Reserve takes room for n more bytes of a body, or reports that there is none; Return gives it back. Both nil: there
	// is always room.
	Reserve func(n int) bool
	Return  func(n int)
	// Hold takes room for a large answer, whose connection may be cut while it is held; nil: there is none. May be nil: there is always room.
	Hold func(conn network.Conn, bytes int) Held
	// GRPC says to clients of gRPC, which this is not, where it is served.
	GRPC string
	// CheckTarget refuses targets that two servers could read differently. May be nil.
	CheckTarget func(target []byte) error
}

// Held is room for an answer.
type Held interface {
	Took(now time.Time) // the client has taken a part
	Release()
}

// connKey is where a request's context has its connection.
type connKey struct{}

// Server serves connections.
type Server struct {
	core    suite.Core
	options Options
	http2   *http2.Server
	// base never listens: it tells http2 its limits, and its connections when to go away.
	base    *http.Server
	open    atomic.Int64 // connections
	serving atomic.Int64 // requests
	uploads sync.Pool    // *upload
}

// New makes a server for an engine.
func New(core suite.Core, o Options) *Server {
	s := &Server{core: core, options: o, base: &http.Server{MaxHeaderBytes: o.HeaderBytes, ErrorLog: log.New(io.Discard, "", 0)}} // clients must not fill a log
	s.http2 = &http2.Server{
		MaxConcurrentStreams: maxStreams, MaxReadFrameSize: frameBytes, MaxUploadBufferPerStream: windowBytes, MaxUploadBufferPerConnection: connectionWindowBytes,
		IdleTimeout: o.IdleTimeout, WriteByteTimeout: o.WriteTimeout, ReadIdleTimeout: pingAfter, PingTimeout: pingTimeout,
	}
	if err := http2.ConfigureServer(s.base, s.http2); err != nil {
		panic(err) // it fails only for TLS settings, and base has none
	}
	s.uploads.New = func() any { return new(upload) }
	return s
}

// Serve serves one connection until it ends. What conn has read ahead is served first.
func (s *Server) Serve(ctx context.Context, conn network.Conn) error {
	return s.serveConn(ctx, conn, false)
}

// ServeAfterPreface is Serve for a connection whose preface has been read.
func (s *Server) ServeAfterPreface(ctx context.Context, conn network.Conn) error {
	return s.serveConn(ctx, conn, true)
}

func (s *Server) serveConn(ctx context.Context, conn network.Conn, prefaced bool) error {
	if err := conn.SetDeadline(time.Time{}); err != nil { // that of the handshake: http2 has its own
		return err
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	s.http2.ServeConn(conn, &http2.ServeConnOpts{Context: context.WithValue(ctx, connKey{}, conn), BaseConfig: s.base, Handler: http.HandlerFunc(s.serve), SawClientPreface: prefaced})
	return nil
}

// Shutdown asks the clients of all connections to open no further streams.
func (s *Server) Shutdown(ctx context.Context) { _ = s.base.Shutdown(ctx) } // it has no listener that could fail

// Open counts the connections.
func (s *Server) Open() int { return int(s.open.Load()) }

// refusal is why a request does not reach the engine.
type refusal struct {
	status  int
	message string
}

// serve passes one request through Hertz's engine.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if isGRPC(r.Header.Get("Content-Type")) {
		s.options.refuseGRPC(w)
		return
	}
	c := s.core.GetCtxPool().Get().(*app.RequestContext)
	u := s.uploads.Get().(*upload)
	defer func() {
		c.Reset()
		s.core.GetCtxPool().Put(c)
		u.reset(&s.options)
		s.uploads.Put(u)
	}()
	defer s.serving.Add(-1)
	refused := s.check(r, int(s.serving.Add(1)))
	if refused == nil {
		refused = u.read(&s.options, w, r)
	}
	if r.Context().Err() != nil {
		return // the client has left: many streams may end at a time, and answers would take memory
	}
	fill(&c.Request, r, u.body)
	if refused == nil {
		s.core.ServeHTTP(r.Context(), c)
		if c.Response.StatusCode() == http.StatusInternalServerError { // its handler may have panicked and left queries that still read the body
			u.body = nil
		}
	} else {
		s.options.Refuse(c, refused.status, refused.message)
	}
	head := r.Method == http.MethodHead
	var held Held
	if !head && !c.Response.IsBodyStream() && s.options.Hold != nil && len(c.Response.Body()) > heldBytes {
		n := cap(c.Response.Body())
		conn, _ := r.Context().Value(connKey{}).(network.Conn)
		if held = s.options.Hold(conn, n); held == nil {
			c.Response.Reset()
			s.options.Refuse(c, http.StatusServiceUnavailable, "the gateway has no memory for another answer now: send the request again later")
		} else {
			defer held.Release()
		}
	}
	s.answer(w, c, head, held)
}

// check refuses what needs no body to be refused.
func (s *Server) check(r *http.Request, serving int) *refusal {
	if s.options.Requests > 0 && serving > s.options.Requests {
		return &refusal{http.StatusServiceUnavailable, fmt.Sprintf("the gateway serves %d requests of HTTP/2 already: send it again later", s.options.Requests)}
	}
	if s.options.CheckTarget != nil {
		if err := s.options.CheckTarget([]byte(r.URL.EscapedPath())); err != nil {
			return &refusal{http.StatusBadRequest, err.Error()}
		}
	}
	if r.ContentLength > int64(s.options.BodyBytes) {
		return s.options.tooLarge()
	}
	return nil
}

func (o *Options) tooLarge() *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes, which is what this gateway takes", o.BodyBytes)}
}

// upload is the body of a request.
type upload struct {
	body     []byte
	reserved int
	due      time.Time // when more bytes must have come
	deadline time.Time // what the connection knows of it
}

// keepBytes is the largest buffer that is kept for another request.
const keepBytes = 64 << 10

func (u *upload) reset(o *Options) {
	if u.reserved > 0 && o.Return != nil {
		o.Return(u.reserved)
	}
	if cap(u.body) > keepBytes {
		u.body = nil
	}
	*u = upload{body: u.body[:0]}
}

// read reads the body.
func (u *upload) read(o *Options, w http.ResponseWriter, r *http.Request) *refusal {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	control, came := http.NewResponseController(w), 0
	for {
		if refused := u.grow(o, r.ContentLength); refused != nil {
			return refused
		}
		if err := u.extend(o, control, came); err != nil {
			return &refusal{http.StatusInternalServerError, err.Error()}
		}
		n, err := r.Body.Read(u.body[len(u.body):cap(u.body)])
		u.body, came = u.body[:len(u.body)+n], n
		switch {
		case len(u.body) > o.BodyBytes:
			return o.tooLarge()
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &refusal{http.StatusRequestTimeout, fmt.Sprintf("the body came more slowly than %d bytes a second", o.MinRate)}
		case err != nil:
			return &refusal{http.StatusBadRequest, "the body ended early: " + err.Error()}
		}
	}
}

// grow makes room to read into. A body of known length gets its room step by step, too: its length is only a claim.
func (u *upload) grow(o *Options, length int64) *refusal {
	if len(u.body) < cap(u.body) {
		return nil
	}
	more := max(4<<10, len(u.body))
	if left := int(length) + 1 - len(u.body); length > 0 && left > 0 { // +1: the end is read without growing
		more = min(left, max(more, windowBytes))
	}
	if o.Reserve != nil && !o.Reserve(more) {
		return &refusal{http.StatusServiceUnavailable, "the gateway has no memory for another body now: send it again later"}
	}
	u.reserved += more
	u.body = append(make([]byte, 0, len(u.body)+more), u.body...)
	return nil
}

// extend moves the body's deadline on when n bytes have come, in steps, because setting it wakes the connection's goroutine.
func (u *upload) extend(o *Options, control *http.ResponseController, n int) error {
	if o.MinRate <= 0 {
		return nil
	}
	u.due = o.pace(u.due, n, time.Now())
	if u.due.Sub(u.deadline) < min(time.Second, o.BodyGrace/8) {
		return nil
	}
	u.deadline = u.due
	return control.SetReadDeadline(u.deadline)
}

// pace returns until when more bytes must flow after n have, as package http1 does: each byte buys its share of a second, and
// nothing is saved beyond the grace.
func (o *Options) pace(due time.Time, n int, now time.Time) time.Time {
	latest := now.Add(o.BodyGrace)
	if due.IsZero() {
		return latest
	}
	if due = due.Add(time.Duration(n) * time.Second / time.Duration(o.MinRate)); due.After(latest) {
		return latest
	}
	return due
}

// fill makes Hertz's request. http2 has checked names and values of the fields.
func fill(to *protocol.Request, r *http.Request, body []byte) {
	to.Header.SetProtocol("HTTP/2.0")
	to.Header.SetMethod(r.Method)
	uri := r.URL.RequestURI()
	if path, query, has := strings.Cut(uri, "?"); len(path) > 2 && strings.HasSuffix(path, "/") && !strings.HasSuffix(path, "//") { // as package http1 reads it
		if uri = strings.TrimSuffix(path, "/"); has {
			uri += "?" + query
		}
	}
	to.SetRequestURI(uri)
	to.SetHost(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			to.Header.Add(name, v)
		}
	}
	to.Header.SetContentLength(len(body))
	to.SetBodyRaw(body)
}

// answer writes what the engine answered.
func (s *Server) answer(w http.ResponseWriter, c *app.RequestContext, head bool, held Held) {
	header := w.Header()
	c.Response.Header.VisitAll(func(key, value []byte) {
		switch name := string(key); name {
		case "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length": // RFC 9113, section 8.2.2; http2 counts for itself
		default:
			header.Add(name, string(value))
		}
	})
	if c.Response.IsBodyStream() {
		s.stream(w, c)
		return
	}
	body := c.Response.Body()
	if length := c.Response.Header.ContentLength(); head && length > 0 {
		header.Set("Content-Length", strconv.Itoa(length))
	} else if !head {
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	if s.options.Draining != nil && s.options.Draining() {
		header.Set("Connection", "close") // http2 sends GOAWAY for it
	}
	w.WriteHeader(c.Response.StatusCode())
	if !head && len(body) > 0 {
		s.options.write(w, body, held)
	}
}

const (
	// heldBytes is the size from which an answer needs room while it is written: a client may open many streams and take nothing.
	heldBytes = 4 << 10
)

// stream writes an answer that comes in parts. The client must take each part at the lowest rate.
func (s *Server) stream(w http.ResponseWriter, c *app.RequestContext) {
	if s.options.Draining != nil && s.options.Draining() {
		w.Header().Set("Connection", "close") // http2 sends GOAWAY for it
	}
	w.WriteHeader(c.Response.StatusCode())
	defer func() { _ = c.Response.CloseBodyStream() }() // the answer has been sent or is broken off
	control, body := http.NewResponseController(w), c.Response.BodyStream()
	part := make([]byte, frameBytes)
	for {
		n, err := body.Read(part)
		if n > 0 {
			if o := &s.options; o.MinRate > 0 {
				_ = control.SetWriteDeadline(o.pace(time.Time{}, 0, time.Now()).Add(time.Duration(n) * time.Second / time.Duration(o.MinRate)))
			}
			if _, err := w.Write(part[:n]); err != nil {
				return
			}
			if control.Flush() != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the client sees that something is missing
		}
	}
}

// write writes an answer. The client must take it at the lowest rate: pings, which http2 sends by itself, do not show that.
func (o *Options) write(w http.ResponseWriter, body []byte, held Held) {
	control, due, n := http.NewResponseController(w), time.Time{}, 0
	for len(body) > 0 {
		if o.MinRate > 0 {
			due = o.pace(due, n, time.Now())
			if control.SetWriteDeadline(due) != nil {
				return
			}
		}
		n = min(len(body), frameBytes)               // more would be one frame, if the client takes larger ones
		if _, err := w.Write(body[:n]); err != nil { // or the client has left
			if o.Unread != nil && o.MinRate > 0 && !time.Now().Before(due) {
				o.Unread()
			}
			return
		}
		body = body[n:]
		if held != nil {
			held.Took(time.Now())
		}
	}
}
