package http

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// exchange is a request that Hertz has read, on its handler's goroutine. Consecutive requests of a connection share one.
type exchange struct {
	server   *Server
	c        *app.RequestContext
	ctx      context.Context // ends when the client leaves, where the connection can tell
	conn     *conn           // nil: Hertz's own connection, on which only handlers can write
	about    about
	dialect  dialect.Dialect // of the route
	fields   []dialect.Field // that the guard adds to the answer
	answered bool
	pipe     *pipe         // the parts of the answer that the handler writes; nil: it has one
	done     chan struct{} // capacity 1: the answer that the handler writes has been rendered
	released query.Signal  // capacity 1: the body has been released
}

// init is called for each connection, or for each request if the connection is Hertz's own.
func (x *exchange) init(s *Server, cn *conn) {
	x.server, x.conn = s, cn
	x.done, x.released = make(chan struct{}, 1), make(query.Signal, 1)
}

// exchangeOf returns the exchange of a request.
func (s *Server) exchangeOf(c *app.RequestContext) *exchange {
	if cn, ok := c.GetConn().(*conn); ok {
		return &cn.exchange
	}
	const key = "xebec.exchange"
	if x, ok := c.Value(key).(*exchange); ok {
		return x
	}
	x := new(exchange)
	x.init(s, nil)
	c.Set(key, x)
	return x
}

// handler serves a route.
func (s *Server) handler(d dialect.Dialect, serve func(dialect.Exchange)) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		x := s.exchangeOf(c)
		x.c, x.ctx, x.dialect, x.answered = c, ctx, d, false
		serve(x)
		if !x.answered {
			s.refuse(c, api.Errorf(api.Internal, "internal error"), api.Internal.HTTPStatus())
		}
		x.c, x.ctx = nil, nil
	}
}

func (x *exchange) Param(name string) string { return x.c.Param(name) }

func (x *exchange) HasQuery(name string) bool { return x.c.QueryArgs().Has(name) }

func (x *exchange) Header(name string) []byte {
	switch name {
	case "Content-Type": // every request reads it
		return x.c.Request.Header.ContentType()
	case headerRequestID:
		return x.about.RequestID
	}
	return x.c.Request.Header.Peek(name)
}

func (x *exchange) Body() []byte { return x.c.Request.Body() }

// TakesParts reports whether the client understands an answer without a length.
func (x *exchange) TakesParts() bool { return x.c.Request.Header.IsHTTP11() || x.c.GetConn() == nil }

// Answer answers through Hertz, which copies the answer and writes it after the handler has returned.
func (x *exchange) Answer(a *dialect.Answer) {
	x.answered = true
	r := &x.c.Response
	r.SetStatusCode(a.Status)
	if a.ContentType != "" {
		r.Header.SetContentType(a.ContentType)
	}
	for i := range a.Fields {
		r.Header.Set(a.Fields[i].Name, string(a.Fields[i].Value))
	}
	r.SetBody(a.Body)
}

// Submit submits the call. If the connection supports it the handler is done, and the goroutine that ends the last query
// writes the answer. Otherwise the handler waits.
func (x *exchange) Submit(call *dialect.Call) {
	if x.conn != nil {
		x.conn.awaitWritten()
	}
	call.Identity.Set(&x.about.Identity)
	call.Answer.Transport = x.fields
	borrowed := call.Borrowed()
	switch {
	case !borrowed:
	case x.conn != nil && x.conn.laid != nil:
		call.NotifyReleased(x.conn.laid)
		x.conn.laid, borrowed = nil, false // the query gives the body back: no handler waits for that
	default:
		call.NotifyReleased(x.released)
	}
	if h := &x.c.Request.Header; x.conn != nil && x.server.cfg.Reply == ReplyAsync && (x.conn.quick || !x.server.draining.Load()) && !h.ConnectionClose() && h.IsHTTP11() && !h.IsHead() {
		x.answered = true
		x.c.Response.HijackWriter(hijacked{})
		x.conn.expect(call, x.about.accept, x.dialect)
		x.conn.waits = borrowed
		call.Submit(x.conn, x.conn.cork())
	} else {
		x.submitAndWait(call)
	}
	if borrowed {
		<-x.released
	}
}

func (x *exchange) submitAndWait(call *dialect.Call) {
	if x.conn != nil {
		x.conn.call.Store(call)
	}
	call.Retain()
	call.Submit(x, nil)
	x.awaitAnswer(call)
	if x.pipe != nil {
		x.answerInParts(call)
		return
	}
	if x.conn != nil {
		x.conn.call.Store(nil)
	}
	x.Answer(&call.Answer)
	if !call.Borrowed() { // otherwise the handler stays, and Shutdown waits for it
		call.Delivered()
	}
	call.Release()
}

// awaitAnswer waits for the answer. If the client leaves first, as HTTP/2 says by the request's context, the call is cancelled.
func (x *exchange) awaitAnswer(call *dialect.Call) {
	select {
	case <-x.done:
	case <-x.ctx.Done():
		call.Cancel()
		<-x.done
	}
}

// Refuses implements [dialect.Refuser].
func (x *exchange) Refuses(call *dialect.Call) bool { return x.server.noRoomFor(call, x.dialect) }

// Reply signals the waiting handler.
func (x *exchange) Reply(call *dialect.Call) {
	if f := call.Flow(); f != nil {
		x.pipe = newPipe(f, call.Answer.Body)
		freeFirst(&call.Answer)
		call.SetSink(x.pipe)
	}
	x.done <- struct{}{}
}

// hijacked tells Hertz that the handler has taken care of the answer.
type hijacked struct{}

func (hijacked) Write(p []byte) (int, error) { return len(p), nil }
func (hijacked) Flush() error                { return nil }
func (hijacked) Finalize() error             { return nil }
