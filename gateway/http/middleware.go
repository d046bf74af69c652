package http

import (
	"context"
	"sync"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol/consts"

	"github.com/xebec-serving/xebec/api"
)

// Refuse answers a request that reaches no handler, in the port's format of errors.
type Refuse func(c *app.RequestContext, e *api.Error, status int)

// Memory is the budget for the bodies of requests.
type Memory interface {
	// Reserve takes bytes of the budget, or reports that it has too few.
	Reserve(bytes int) bool
	// Return gives bytes back.
	Return(bytes int)
}

// port is what the first middleware of a port needs to know.
type port struct {
	bodyBytes int
	memory    Memory // nil: without a budget
	refuse    Refuse
	panicked  func(Panic) // may be nil
}

// Middleware is the first middleware of a port that serves routes of Hertz. It names requests, decodes their bodies, and
// completes their answers: the same as on the function port. Handlers find the request's id in the request's header
// X-Request-Id. memory is the budget for decoded bodies; nil: only bodyBytes bounds each. panicked is told of handlers that panic; may be nil.
func Middleware(bodyBytes int, memory Memory, refuse Refuse, panicked func(Panic)) app.HandlerFunc {
	p := port{bodyBytes, memory, refuse, panicked}
	pool := sync.Pool{New: func() any { return new(about) }}
	return func(ctx context.Context, c *app.RequestContext) {
		a := pool.Get().(*about)
		defer pool.Put(a)
		a.read(&c.Request.Header)
		c.Request.Header.Set(headerRequestID, string(a.RequestID))
		c.Response.Header.SetServerBytes(serverName) // this and the next now, because a handler may stream its answer
		nameAnswer(c, &a.Identity)
		p.serve(ctx, c, a)
	}
}

// middleware is the first one of the function port. It judges pages before it decodes what they send, and completes the
// answers that Hertz writes; conn.go writes the others.
func (s *Server) middleware(ctx context.Context, c *app.RequestContext) {
	x := s.exchangeOf(c)
	a := &x.about
	a.read(&c.Request.Header)
	if x.conn != nil && x.conn.quick && (len(a.codings) > 0 || !s.nonBlocking[c.FullPath()]) {
		x.conn.handed = true
		c.Abort()
		return
	}
	if !s.guard(c, x) {
		c.Abort()
		s.port.complete(c, a)
		return
	}
	s.port.serve(ctx, c, a)
	x.fields = nil
}

// serve decodes the body, calls the handlers, and completes the answer.
func (p *port) serve(ctx context.Context, c *app.RequestContext, a *about) {
	defer p.recovered(c, a)
	if len(a.codings) == 0 {
		c.Next(ctx)
	} else {
		p.serveDecoded(ctx, c, a)
	}
	if c.Response.GetHijackWriter() == nil {
		p.complete(c, a)
	}
}

// complete completes an answer that Hertz will write.
func (p *port) complete(c *app.RequestContext, a *about) {
	if status := c.Response.StatusCode(); status == consts.StatusBadRequest && len(c.Response.BodyBytes()) == 0 { // Hertz found no path or no host
		p.refuse(c, api.Errorf(api.InvalidArgument, "the request has no Host, or its target is not a path"), status)
	}
	if len(c.Response.Header.Peek(headerRequestID)) == 0 {
		nameAnswer(c, &a.Identity)
	}
	compressBody(c, a.accept)
	if c.IsHead() {
		c.Response.SkipBody = true
		c.Response.Header.SetContentLength(len(c.Response.BodyBytes()))
	}
}
