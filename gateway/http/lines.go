package http

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// This file serves lines: connections that belong to models. A server of lines has no listener, so nothing else reaches its routes.

// AddLine serves a connection of a model, and owns it. closed is called once, when the connection is closed.
func (s *Server) AddLine(nc io.ReadWriteCloser, caller dialect.Caller, closed func()) error {
	fd, err := takeDescriptor(nc)
	if err != nil {
		closed()
		return fmt.Errorf("take a line: %w", err)
	}
	select {
	case <-s.polling:
	case <-s.served:
	}
	s.mu.Lock()
	ended := s.ended || s.pollers.Load() == nil
	s.mu.Unlock()
	if ended {
		closed()
		_ = unix.Close(fd)
		return net.ErrClosed
	}
	c := s.newConn()
	c.caller, c.ended = caller, sync.OnceFunc(closed)
	if !s.track(c) {
		c.ended()
		_ = unix.Close(fd)
		return fmt.Errorf("%d lines are open, which is the limit", s.cfg.Limits.Connections)
	}
	s.begin(c, &descriptor{fd: fd}, 0)
	return nil
}

// takeDescriptor returns a descriptor of the connection, and closes that which the runtime watches.
func takeDescriptor(nc io.ReadWriteCloser) (fd int, err error) {
	defer nc.Close()
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a %T has no descriptor", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	if err := raw.Control(func(f uintptr) { fd, failed = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	return fd, failed
}

// descriptor is a line as pollers take it.
type descriptor struct {
	net.Conn // nil: it is not used to read and write
	fd       int
}

func (d *descriptor) Fd() int              { return d.fd }
func (d *descriptor) LocalAddr() net.Addr  { return lines }
func (d *descriptor) RemoteAddr() net.Addr { return lines }

// lines is the address of both ends of every line.
var lines = &net.UnixAddr{Net: "unix", Name: "lines"}

// Caller implements [dialect.Line].
func (x *exchange) Caller() dialect.Caller {
	if x.conn == nil {
		return nil
	}
	return x.conn.caller
}

// Identify implements [dialect.Line].
func (x *exchange) Identify(id *api.Identity) { x.about.Identity.Set(id) }

// noListener stands for the listener of a server of lines.
type noListener struct {
	closed chan struct{}
	once   sync.Once
}

func newNoListener() *noListener { return &noListener{closed: make(chan struct{})} }

func (l *noListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *noListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *noListener) Addr() net.Addr { return lines }
