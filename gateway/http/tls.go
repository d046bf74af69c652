package http

import (
	"errors"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/network/standard"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/consts"
	"github.com/cloudwego/hertz/pkg/protocol/suite"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/h2"
	"github.com/xebec-serving/xebec/gateway/http/http1"
)

// newTLSTransporter makes the transport of a port with TLS. Each connection has a goroutine, and handlers write the answers: the
// faster way writes to the descriptor itself, which encryption does not allow.
func (s *Server) newTLSTransporter(o *config.Options) network.Transporter {
	s.transport = standard.NewTransporter(o)
	return s.transport
}

// http2Options are the limits of HTTP/1.1, for HTTP/2.
func (s *Server) http2Options() h2.Options {
	l := &s.cfg.Limits
	return h2.Options{
		BodyBytes: l.BodyBytes, HeaderBytes: l.HeaderBytes, Requests: l.Connections, IdleTimeout: l.IdleTimeout, WriteTimeout: l.RateGrace, BodyGrace: l.RateGrace, MinRate: l.MinRate,
		Unread: func() { s.cfg.Refusals.count(http1.Unread) },
		Refuse: func(c *app.RequestContext, status int, message string) {
			s.cfg.Refusals.count(reasonOf(status))
			s.refuseUnread(c, &api.Error{Code: codeOf(status), Message: message}, status)
			if status == consts.StatusServiceUnavailable {
				c.Response.Header.Set("Retry-After", strconv.Itoa(retryAfterSeconds))
			}
		},
		GRPC: s.cfg.GRPC, Draining: s.draining.Load, Reserve: s.cfg.Bodies.Reserve, Return: s.cfg.Bodies.Return,
		Hold: func(c network.Conn, bytes int) h2.Held {
			if h := s.edge.hold(c, int64(bytes)); h != nil {
				return h
			}
			return nil
		},
		CheckTarget: func(path []byte) error {
			if f := http1.CheckPath(path); f != nil {
				return errors.New(f.Text)
			}
			return nil
		},
	}
}

// http2Factory makes Hertz's server of HTTP/2.
type http2Factory struct{ *Server }

func (f http2Factory) New(core suite.Core) (protocol.Server, error) { return f.newHTTP2(core), nil }

// newHTTP2 makes the server of HTTP/2, which serves both connections that agreed on it and those that begin with its preface.
func (s *Server) newHTTP2(core suite.Core) *h2.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http2 == nil {
		s.http2 = h2.New(core, s.http2Options())
	}
	return s.http2
}

// reasonOf is the reason by which HTTP/1.1 would count a refusal with this status.
func reasonOf(status int) http1.Reason {
	switch status {
	case 408:
		return http1.Rate
	case 413:
		return http1.TooLarge
	case 503:
		return http1.NoRoom
	}
	return http1.Framing
}

// tracked is a listener whose connections the server can close: Hertz's transport only waits for them.
type tracked struct {
	net.Listener
	server *Server
}

func (l *tracked) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, server: l.server}
	t.spoke()
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	l.server.encrypted[t] = struct{}{}
	return t, nil
}

type trackedConn struct {
	net.Conn
	server *Server
	since  atomic.Int64 // when it was accepted, or something came or went
}

func (c *trackedConn) spoke() { c.since.Store(int64(c.server.edge.loop.now())) }

func (c *trackedConn) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	c.spoke()
	return n, err
}

func (c *trackedConn) Write(b []byte) (n int, err error) {
	n, err = c.Conn.Write(b)
	c.spoke()
	return n, err
}

func (c *trackedConn) Close() error {
	c.server.mu.Lock()
	delete(c.server.encrypted, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}

func (s *Server) closeEncrypted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.encrypted {
		c.Conn.Close() // its goroutine ends and removes it
	}
}
