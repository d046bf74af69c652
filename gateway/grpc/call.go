package grpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/xebec-serving/xebec/api"
)

// call is the context of a call that the client had not sent completely when it began.
type call struct {
	context.Context
	conn   *conn
	stream uint32
	since  api.Nanos
	answer ender // under the connection's lock; nil: its handler has not begun
}

// ender is what the library's stream of a call has beyond its interface: a status ends the call, wherever its handler waits.
type ender interface {
	grpc.ServerTransportStream
	WriteStatus(*status.Status) error
}

type callKey struct{}

// Value implements [context.Context].
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// tapHandle begins a call. The library calls it when it has read the call's head, and nothing behind it: the meter knows its stream.
func (s *Server) tapHandle(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx = withMetaData(ctx, info)
	c := connOf(ctx)
	if c == nil {
		return ctx, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := &call{Context: ctx, conn: c, stream: c.meter.Last(), since: s.now()}
	if c.meter.Attach(of.stream, of) {
		ctx = of
	}
	return ctx, nil
}

// served returns the call of a context whose handler begins; nil: the client had sent all when it began. onlyOne says that the handler waits for the call's
// only message, until received.
func served(ctx context.Context, onlyOne bool) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return nil
	}
	answer, _ := grpc.ServerTransportStreamFromContext(ctx).(ender)
	c.conn.mu.Lock()
	if c.answer = answer; onlyOne {
		c.conn.waiting[c] = struct{}{}
	}
	c.conn.mu.Unlock()
	return c
}

// received says that the call's only message has come, or that none does.
func (c *call) received() {
	if c != nil {
		c.conn.mu.Lock()
		delete(c.conn.waiting, c)
		c.conn.mu.Unlock()
	}
}

// end ends the call with DEADLINE_EXCEEDED and a message.
func (c *call) end(message string) {
	f := failure{code: api.DeadlineExceeded, message: message}
	_ = c.answer.SetTrailer(metadata.MD{keyCode: {f.code.String()}})
	_ = c.answer.WriteStatus(f.GRPCStatus()) // it fails if the call has ended otherwise
}
