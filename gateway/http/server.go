package http

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol/consts"
	"github.com/cloudwego/hertz/pkg/protocol/suite"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/h2"
	"github.com/xebec-serving/xebec/gateway/http/poll"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Config configures a server.
type Config struct {
	// Path takes the requests.
	Path *query.Path
	// Listener is nil for a server of lines: it has the connections that AddLine takes, and no health routes.
	Listener net.Listener
	Limits   Limits
	// Dialects are served side by side. The first one renders errors for paths that resemble no dialect's routes.
	Dialects []dialect.Dialect
	// AllowedHosts are hosts that pages may name beside loopback ones.
	AllowedHosts browser.Hosts
	// TLS makes the port speak TLS, with HTTP/2 for clients that offer it. Listener must then accept, not poll. nil: clear
	// text, with HTTP/2 for clients with prior knowledge.
	TLS *tls.Config
	// Ready reports whether /readyz answers 200, and if not why.
	Ready func() (bool, string)
	// Problems are what /readyz?verbose lists beside; may be nil.
	Problems func() []api.ReadinessProblem
	// Upgrade is the upgrade under way that /readyz?verbose shows beside, nil if there is none; may be nil.
	Upgrade func() *api.UpgradeStatus
	// Bodies is the memory of requests' bodies, shared with other ports; one without a limit when nil.
	Bodies *Bodies
	// Refusals counts what reaches no route; nil: not counted.
	Refusals *Refusals
	// Panicked is told of requests whose handler has panicked; may be nil. It is called on the handler's goroutine.
	Panicked func(Panic)
	// BusyPoll is how long the pollers of connections in clear text may spin before they sleep, while they expect a request; 0: they do not.
	BusyPoll time.Duration
	// GRPC says to clients of gRPC, which this port does not speak, where it is served.
	GRPC string
	// Reply chooses which goroutine writes answers; the zero value is ReplyAsync.
	Reply ReplyMode
}

// ReplyMode says which goroutine writes an answer to its connection.
type ReplyMode string

// ReplyAsync lets the goroutine that ends the last query write the answer. ReplyWait keeps a goroutine waiting for each
// request, which costs an additional wake-up.
const (
	ReplyAsync ReplyMode = "async"
	ReplyWait  ReplyMode = "wait"
)

// Server serves the function port.
type Server struct {
	cfg       Config
	hertz     *server.Hertz
	transport network.Transporter // Hertz's transport, which it makes in hertz.New
	port      port
	served    chan struct{}
	polling   chan struct{} // closed when there are pollers
	draining  atomic.Bool
	date      atomic.Pointer[[]byte] // the head of an answer up to its content type, with the current Date
	literals  []literal
	loopback  bool           // the listener is on loopback
	functions functionRoutes // that pages may ask for
	edge      *Edge
	pollers   atomic.Pointer[poll.Group] // of connections in clear text, from Serve on
	// lastWord and lastAnswers are the constants, except in tests.
	lastWord, lastAnswers time.Duration
	// nonBlocking are the paths, in Hertz's syntax, whose POST never blocks.
	nonBlocking map[string]bool

	mu        sync.Mutex
	conns     map[*conn]struct{}
	encrypted map[*trackedConn]struct{}
	http2     *h2.Server // made when the server begins to serve
	handovers map[io.Closer]struct{}
	ended     bool // no handover may begin, and no line
}

// literal is the beginning that the paths of a route share.
type literal struct {
	text    string
	dialect dialect.Dialect
}

// SilenceHertz turns off Hertz's own log for the whole process: answers and metrics have what matters, and clients must
// not be able to fill a log. A program calls it once; a library does not.
func SilenceHertz() { hlog.SetLevel(hlog.LevelFatal) }

// New makes a server with its own listener. It fails if two dialects claim the same route. Serve starts the server.
func New(cfg Config) (*Server, error) {
	if len(cfg.Dialects) == 0 {
		return nil, fmt.Errorf("no dialect: expected one or more")
	}
	if cfg.Reply == "" {
		cfg.Reply = ReplyAsync
	}
	if cfg.Bodies == nil {
		cfg.Bodies = NewBodies(0)
	}
	if cfg.Refusals == nil {
		cfg.Refusals = new(Refusals)
	}
	var routes []dialect.Route
	if cfg.Listener == nil {
		cfg.Listener = newNoListener()
	} else {
		live, ready := dialect.Health(cfg.Ready, cfg.Problems, cfg.Upgrade)
		routes = []dialect.Route{
			{Method: "GET", Path: "/healthz", Serve: live}, {Method: "GET", Path: "/readyz", Serve: ready}, {Method: "GET", Path: "/openapi.yaml", Serve: Description()},
			{Method: "GET", Path: "/docs", Serve: DocsPage()}, {Method: "GET", Path: "/", Serve: dialect.Alive},
		}
	}
	s := &Server{cfg: cfg, lastWord: lastWord, lastAnswers: lastAnswers, served: make(chan struct{}), polling: make(chan struct{}), handovers: map[io.Closer]struct{}{}, conns: map[*conn]struct{}{}, encrypted: map[*trackedConn]struct{}{}, nonBlocking: map[string]bool{}}
	for _, d := range cfg.Dialects {
		for _, r := range d.Routes(cfg.Path) {
			routes = append(routes, r)
			s.literals = append(s.literals, literal{r.Literal(), d})
		}
		if o, ok := d.(dialect.Owner); ok {
			for _, beginning := range o.Owns() {
				s.literals = append(s.literals, literal{beginning, d})
			}
		}
	}
	if err := dialect.CheckRoutes(routes); err != nil {
		return nil, fmt.Errorf("dialects: %w", err)
	}
	if a, ok := cfg.Listener.Addr().(*net.TCPAddr); ok {
		s.loopback = a.IP.IsLoopback()
	}
	s.functions = newFunctionRoutes(routes)
	s.stampDate(time.Now())
	s.port = port{bodyBytes: cfg.Limits.BodyBytes, memory: cfg.Bodies, refuse: s.refuse, panicked: cfg.Panicked}
	s.makeHertz()
	for _, r := range routes {
		s.hertz.Handle(r.Method, hertzPath(r.Path), s.handler(s.nearest(r.Literal()), r.Serve))
		if r.NonBlocking && r.Method == consts.MethodPost {
			s.nonBlocking[hertzPath(r.Path)] = true
		}
	}
	CompleteMethods(s.hertz, s.noRoute, s.refuseMethod)
	return s, nil
}

func (s *Server) makeHertz() {
	ln, transport := s.cfg.Listener, s.newTransporter
	var options []config.Option
	if s.cfg.TLS != nil {
		ln, transport = &tracked{ln, s}, s.newTLSTransporter
		options = append(options, server.WithTLS(s.cfg.TLS), server.WithALPN(true), server.WithReadTimeout(s.cfg.Limits.FirstByteTimeout)) // of the handshake
	}
	s.hertz = server.New(append(options,
		server.WithListener(ln), server.WithHostPorts(ln.Addr().String()), server.WithTransport(transport),
		server.WithExitWaitTime(0), server.WithMaxKeepBodySize(blockingAnswer), server.WithDisablePrintRoute(true), server.WithDisablePreParseMultipartForm(true),
		server.WithRedirectTrailingSlash(false), server.WithHandleMethodNotAllowed(true), server.WithDisableHeaderNamesNormalizing(false),
	)...)
	s.hertz.Name = "xebec"
	s.edge = &Edge{
		Limits: s.cfg.Limits, Bodies: s.cfg.Bodies, Refusals: s.cfg.Refusals, Refuse: s.refuseUnread, Panicked: s.cfg.Panicked, TLS: s.cfg.TLS != nil,
		HTTP2: s.newHTTP2,
	}
	s.hertz.AddProtocol(suite.HTTP1, s.edge)
	s.hertz.AddProtocol(suite.HTTP2, http2Factory{s})
	s.hertz.Use(s.middleware, s.closeWhileDraining)
}

func (s *Server) noRoute(_ context.Context, c *app.RequestContext) {
	path, expected := string(c.Path()), "functions are called by POST /{function}/predict"
	if g, ok := s.nearest(path).(dialect.Guide); ok {
		expected = g.NoRoute(path)
	}
	e := api.Errorf(api.NotFound, "no route %s: %s", path, expected)
	s.refuse(c, e, e.Code.HTTPStatus())
}

// hertzPath converts {name} to Hertz's syntax.
func hertzPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

// nearest returns the dialect that has the longest literal beginning of the path, in a route or among the paths that it owns.
func (s *Server) nearest(path string) dialect.Dialect {
	best := literal{dialect: s.cfg.Dialects[0]}
	for _, l := range s.literals {
		if strings.HasPrefix(path, l.text) && len(l.text) > len(best.text) {
			best = l
		}
	}
	return best.dialect
}

// refuse answers a request that no route takes, in the format of the nearest dialect.
func (s *Server) refuse(c *app.RequestContext, e *api.Error, status int) {
	nameAnswer(c, &s.exchangeOf(c).about.Identity)
	answerError(c, s.nearest(string(c.Path())), e, status)
}

// refuseMethod answers a request whose path has other methods. Most of those of a function's name were meant for predict.
func (s *Server) refuseMethod(c *app.RequestContext, e *api.Error, status int) {
	if _, route := s.functions.find(c.Path()); route != nil && len(route.end) == 0 {
		e = api.Errorf(e.Code, "%s; functions are called by POST /{function}/predict", e.Message)
	}
	s.refuse(c, e, status)
}

// refuseUnread answers a request that did not pass the edge: nothing has read its identity, the exchange may have another's.
func (s *Server) refuseUnread(c *app.RequestContext, e *api.Error, status int) {
	answerError(c, s.nearest(string(c.Path())), e, status)
}

// answerError answers a request that reached no dialect, perhaps not even the middleware that names it.
func answerError(c *app.RequestContext, shape dialect.Dialect, e *api.Error, status int) {
	nameRefused(c)
	e.RequestID = string(c.Response.Header.Peek(headerRequestID))
	c.Response.SetStatusCode(status)
	c.Response.Header.SetContentType(dialect.JSON)
	c.Response.SetBody(shape.AppendError(nil, e))
}

// Serve serves until Shutdown. It returns after the listener has been closed.
func (s *Server) Serve() error {
	defer close(s.served)
	stop := make(chan struct{})
	defer close(stop)
	go s.keepDate(stop)
	return s.hertz.Run()
}

// Polled counts the system calls and the spins of the pollers. There are none, and no counts, before Serve and where the port speaks TLS.
func (s *Server) Polled() poll.Counts {
	if g := s.pollers.Load(); g != nil {
		return g.Counts()
	}
	return poll.Counts{}
}

// CloseAfterAnswers makes each answer close its connection from now on.
func (s *Server) CloseAfterAnswers() { s.draining.Store(true) }

// closeWhileDraining is for answers that Hertz writes. No others are written while draining.
func (s *Server) closeWhileDraining(_ context.Context, c *app.RequestContext) {
	if s.draining.Load() {
		c.Response.SetConnectionClose()
	}
}

// AwaitClosed waits until every connection has closed, after CloseAfterAnswers, or until ctx ends. Clients of HTTP/2 are told to leave.
func (s *Server) AwaitClosed(ctx context.Context) error {
	s.mu.Lock()
	http2 := s.http2
	s.mu.Unlock()
	if http2 != nil {
		http2.Shutdown(ctx)
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		s.mu.Lock()
		n := len(s.conns) + len(s.encrypted)
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%d connections are still open", n)
		}
	}
}

// Shutdown stops accepting, waits until every accepted request is answered or ctx is done, and closes the connections.
// Answers sent meanwhile close their connection. Clients that have had an answer just now get the time to send another request.
func (s *Server) Shutdown(ctx context.Context) error {
	s.CloseAfterAnswers()
	s.endHandovers()
	if l, ok := s.cfg.Listener.(interface{ Drain() }); ok {
		l.Drain()
	}
	stopping, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = s.hertz.Shutdown(stopping) // closes the listener at once, then waits for connections to be idle
		s.stopTransport(stopping)
	}()
	s.mu.Lock()
	http2 := s.http2
	s.mu.Unlock()
	if http2 != nil {
		http2.Shutdown(ctx)
	}
	s.awaitAccepted(ctx)
	s.awaitLastWords(ctx)
	err := s.cfg.Path.Drain(ctx)
	s.awaitAnswers(ctx, http2)
	s.CloseQuiet(ctx)
	s.closeEncrypted()
	if t, ok := s.transport.(*transporter); ok {
		t.finish()
	}
	cancel()
	<-stopped
	<-s.served
	return err
}

// lastWord is how long a connection must have been silent before it is closed. A client that sends more often learns from an answer that its
// connection closes, and loses no request: one that meets the end of its connection on the way is lost.
const lastWord = time.Second //xebec:limit silence after which a gateway that stops closes a connection; sooner only with an answer

// awaitAccepted waits until the last connection that was accepted is tracked.
func (s *Server) awaitAccepted(ctx context.Context) {
	if t, ok := s.transport.(*transporter); ok {
		select {
		case <-t.accepted:
		case <-s.served:
		case <-ctx.Done():
		}
	}
}

// awaitLastWords waits until no connection has had an answer, or was accepted, within lastWord. Answers close their connections meanwhile, so it
// takes no longer than that.
func (s *Server) awaitLastWords(ctx context.Context) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for s.spokeJustNow() {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// spokeJustNow reports whether a connection may wait for a request, and has not waited for longer than lastWord.
func (s *Server) spokeJustNow() bool {
	justNow := func(since *atomic.Int64) bool {
		return s.edge.loop.now()-api.Nanos(since.Load()) < api.Nanos(s.lastWord)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if justNow(&c.since) {
			return true
		}
	}
	for c := range s.encrypted {
		if justNow(&c.since) {
			return true
		}
	}
	return false
}

// lastAnswers bounds how long the end waits for clients that take their last answers, and for those of HTTP/2 to leave.
const lastAnswers = 3 * time.Second //xebec:limit time for clients to take their last answers when the gateway stops

// CloseQuiet closes the connections, except encrypted ones. A request of which something has come is answered first, as
// long as ctx and lastAnswers allow: closing on it would reset the connection. No connections may be accepted any more.
func (s *Server) CloseQuiet(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.lastAnswers)
	defer cancel()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		over := ctx.Err() != nil
		s.mu.Lock()
		var closing []*conn
		left := len(s.conns)
		if over || s.edge.answering.Load() == 0 && s.cfg.Path.Open() == 0 {
			for c := range s.conns {
				if over || !c.begun.Load() && !c.Unread() {
					closing = append(closing, c)
				}
			}
		}
		s.mu.Unlock()
		for _, c := range closing { // closing untracks
			_ = c.Close()
		}
		if over || left == len(closing) {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// awaitAnswers waits until handlers have written the answers that the path has given them. The answers that other goroutines
// write are a part of Drain.
func (s *Server) awaitAnswers(ctx context.Context, http2 *h2.Server) {
	ctx, cancel := context.WithTimeout(ctx, s.lastAnswers)
	defer cancel()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for s.edge.answering.Load() > 0 || http2 != nil && http2.Open() > 0 {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopTransport retries until the transport has stopped: a shutdown that comes before the start finds nothing to stop.
func (s *Server) stopTransport(ctx context.Context) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		_ = s.transport.Shutdown(ctx)
		select {
		case <-s.served:
			return
		case <-again.C:
		}
	}
}

// track registers a new connection, or reports that there are too many.
func (s *Server) track(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.cfg.Limits.Connections {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) untrack(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}
