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

// edge is the first middleware of the function port: it reads the request's identity and codings, decodes the body, and
// completes the answers that Hertz writes. (conn.go writes the others.)
func (s *Server) edge(ctx context.Context, c *app.RequestContext) {
	x := s.exchangeOf(c)
	x.about.read(&c.Request.Header)
	serveDecoded(ctx, c, &x.about, s.cfg.Limits.BodyBytes, s.refuse)
}

// Edge is the first middleware of another port with routes of Hertz: the same as on the function port. Handlers find the
// request's id in the request's header X-Request-Id.
func Edge(bodyBytes int, refuse Refuse) app.HandlerFunc {
	pool := sync.Pool{New: func() any { return new(about) }}
	return func(ctx context.Context, c *app.RequestContext) {
		a := pool.Get().(*about)
		defer pool.Put(a)
		a.read(&c.Request.Header)
		c.Request.Header.Set(headerRequestID, string(a.RequestID))
		name(c, &a.Identity) // now, because a handler may stream its answer
		serveDecoded(ctx, c, a, bodyBytes, refuse)
	}
}

func serveDecoded(ctx context.Context, c *app.RequestContext, a *about, bodyBytes int, refuse Refuse) {
	body, e := decodeBody(c, a.codings, bodyBytes)
	if e != nil {
		refuse(c, e, decodeStatus(c, e))
		c.Abort()
	} else {
		c.Next(ctx)
	}
	if body != nil {
		c.Request.ResetBody()
		body.Free()
	}
	if c.Response.GetHijackWriter() == nil {
		complete(c, a, refuse)
	}
}

// complete completes an answer that Hertz will write.
func complete(c *app.RequestContext, a *about, refuse Refuse) {
	if status := c.Response.StatusCode(); status == consts.StatusBadRequest && len(c.Response.BodyBytes()) == 0 { // Hertz found no path or no host
		refuse(c, api.Errorf(api.InvalidArgument, "the request has no Host, or its target is not a path"), status)
	}
	name(c, &a.Identity)
	compressBody(c, a.accept)
	if c.IsHead() {
		c.Response.SkipBody = true
		c.Response.Header.SetContentLength(len(c.Response.BodyBytes()))
	}
}
