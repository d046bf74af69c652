package grpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
)

// guard registers services whose handlers are guarded: a call of one message must begin to send it in time, and a defect ends the call, not the process.
type guard struct {
	*grpc.Server
	server *Server
}

func (g guard) RegisterService(d *grpc.ServiceDesc, srv any) {
	guarded := *d
	guarded.Methods, guarded.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range guarded.Methods {
		m := &guarded.Methods[i]
		m.Handler = g.server.unary("/"+d.ServiceName+"/"+m.MethodName, m.Handler)
	}
	for i := range guarded.Streams {
		m := &guarded.Streams[i]
		m.Handler = g.server.streaming("/"+d.ServiceName+"/"+m.StreamName, m.ClientStreams, m.Handler)
	}
	g.Server.RegisterService(&guarded, srv)
}

// handler is what the library calls for a call of one message and one answer.
type handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error)

func (s *Server) unary(method string, serve handler) handler {
	return func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (_ any, err error) {
		defer s.recovered(method, &err)
		c := served(ctx, true)
		return serve(srv, ctx, func(v any) error {
			err := decode(v)
			c.received()
			return err
		}, interceptor)
	}
}

func (s *Server) streaming(method string, many bool, serve grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) (err error) {
		defer s.recovered(method, &err)
		if c := served(stream.Context(), !many); !many {
			defer c.received()
			stream = &oneMessage{stream, c}
		}
		return serve(srv, stream)
	}
}

// oneMessage is a stream on which the client sends one message.
type oneMessage struct {
	grpc.ServerStream
	call *call
}

func (o *oneMessage) RecvMsg(m any) error {
	err := o.ServerStream.RecvMsg(m)
	o.call.received()
	return err
}
