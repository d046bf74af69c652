package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/grpc"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
)

// DefaultGRPC is where gRPC is served if no address is given and nothing else listens there.
const DefaultGRPC = "127.0.0.1:1339"

// grpcPort is the gRPC port.
type grpcPort struct {
	listener *accept.Listener // nil: no port
	tls      *tls.Config
	server   *grpc.Server // nil: it does not serve yet
	refused  [len(grpcReasons)]atomic.Uint64
	off      string // why there is no port although none was declined
}

var grpcReasons = [...]string{grpc.TooSlow: "rate", grpc.Unread: "unread_answer", grpc.NoRoom: "body_memory"}

// listenGRPC opens the gRPC port. Where the address is the default one and taken, for example by another gateway of this machine, the gateway does without.
func (s *Server) listenGRPC() error {
	address := s.cfg.GRPC
	if address == NoPort {
		return nil
	}
	byDefault := address == ""
	if byDefault {
		address = DefaultGRPC
	}
	var ln net.Listener
	var err error
	inherited := s.before != nil && s.before.files[fileGRPC] != nil // a program before gRPC has no such port
	if inherited {
		if ln, err = s.before.listener(fileGRPC, "--grpc-listen", address); err != nil {
			return err
		}
	} else if ln, err = accept.Listen(address); err != nil {
		if byDefault && errors.Is(err, syscall.EADDRINUSE) {
			s.grpc.off = address + " is taken: --grpc-listen chooses another address"
			s.log.Warn("gRPC is not served", zap.String("reason", s.grpc.off))
			return nil
		}
		return fmt.Errorf("listen on the gRPC port: %w; --grpc-listen chooses another address, and \"off\" opens none", err)
	}
	s.onClose(func() error { ln.Close(); return nil })
	if s.grpc.tls, err = s.cfg.functionTLS(s.log); err != nil {
		return err
	}
	bound := accept.Config{Report: s.notAccepted("grpc"), Connections: s.cfg.Connections, Shared: s.before != nil}
	if s.grpc.listener, err = accept.New(ln, bound); err != nil {
		return err
	}
	s.onClose(func() error { _ = s.grpc.listener.Close(); return nil })
	return nil
}

// serveGRPC answers calls on the gRPC port.
func (s *Server) serveGRPC() {
	if s.grpc.listener == nil {
		return
	}
	l := s.cfg.limits()
	s.grpc.server = grpc.New(grpc.Config{
		Path: s.path, Listener: s.grpc.listener, TLS: s.grpc.tls, Memory: s.bodies, Version: s.cfg.Version, Ready: s.Ready, Models: s.repository.Models, Statistics: s.repository.Statistics, SetLoaded: s.repository.SetLoaded,
		Limits: grpc.Limits{
			MessageBytes: l.BodyBytes, HeaderBytes: l.HeaderBytes, FirstByteTimeout: l.FirstByteTimeout, HeaderTimeout: l.HeaderTimeout, IdleTimeout: l.IdleTimeout,
			MinRate: l.MinRate, RateGrace: l.RateGrace,
		},
		Refused: func(r grpc.Reason) { s.grpc.refused[r].Add(1) },
		Panicked: func(p grpc.Panic) {
			s.panicked("grpc")(http.Panic{Method: "POST", Path: p.Method, Value: p.Value, Stack: p.Stack})
		},
	})
	s.ports.Go(func() { s.portEnded("gRPC", s.grpc.server.Serve()) })
}

// shutdownGRPC answers what was accepted, as far as ctx allows, and ends the port.
func (s *Server) shutdownGRPC(ctx context.Context) {
	if s.grpc.server == nil {
		return
	}
	s.grpc.listener.Drain()
	s.grpc.server.Shutdown(ctx)
}

// GRPC is the address of the gRPC port; empty: there is none.
func (s *Server) GRPC() string {
	if s.grpc.listener == nil {
		return ""
	}
	return s.grpc.listener.Addr().String()
}

// grpcRefused counts the connections that were closed, by reason.
func (s *Server) grpcRefused() map[string]uint64 {
	m := map[string]uint64{}
	for i, name := range grpcReasons {
		m[name] = s.grpc.refused[i].Load()
	}
	return m
}

// whereGRPC is what calls of gRPC to the function port are told.
func (s *Server) whereGRPC() string {
	const here = "this port speaks HTTP, not gRPC: "
	switch at := s.GRPC(); {
	case at != "":
		return here + "gRPC is served at " + at + " (--grpc-listen)"
	case s.grpc.off != "":
		return here + "gRPC is not served, because " + s.grpc.off
	}
	return here + "gRPC is not served; xebec serve --grpc-listen 127.0.0.1:1339 does"
}
