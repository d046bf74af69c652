package accept

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pollable is a listener for a server that polls its descriptor, such as netpoll: Accept does not wait, and returns nil and no error
// if there is no connection. What it accepts has a descriptor and no other methods that work; the server reads and writes by itself.
type Pollable struct {
	*Listener
	fd int // an epoll with the socket
}

// Pollable returns the listener in the form for servers that poll. Closing either closes both.
func (l *Listener) Pollable() (*Pollable, error) {
	// The server polls an epoll, out of which Stop takes the socket: the server itself could only stop by closing, and netpoll closes its
	// idle connections with its listener.
	events, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = events
	if l.from != nil {
		err = l.poll(l.fromRaw)
	}
	if err == nil && l.hasBegun() {
		err = l.poll(l.raw)
	}
	if err != nil {
		unix.Close(events)
		l.events = -1
		return nil, err
	}
	return &Pollable{l, events}, nil
}

// poll puts a socket into the epoll of Pollable. The caller holds mu.
func (l *Listener) poll(socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) {
		failed = unix.EpollCtl(l.events, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	})
	return errors.Join(err, failed)
}

// Fd is the descriptor to poll. It belongs to the listener.
func (p *Pollable) Fd() int { return p.fd }

// Accept returns a connection, or nil if there is none now.
func (p *Pollable) Accept() (net.Conn, error) {
	if fd := p.takePassed(); fd >= 0 {
		peer, _ := unix.Getpeername(fd) // it fails only if the client has gone
		return p.polled(fd, peer), nil
	}
	if p.isStopped() || !p.hasBegun() {
		return nil, nil
	}
	fd, peer, err := p.accept4()
	switch {
	case err == nil && p.passOn(fd):
		unix.Close(fd)
	case err == nil:
		return p.polled(fd, peer), nil
	case errors.Is(err, unix.EAGAIN), p.closed(), errors.Is(err, net.ErrClosed):
		return nil, nil
	case p.failedToAccept(err):
		time.Sleep(pause) // the poller would ask again at once
	}
	return nil, nil
}

func (p *Pollable) polled(fd int, peer unix.Sockaddr) net.Conn {
	c := &polled{fd: fd, local: p.Addr(), remote: address(peer)}
	if _, tcp := c.local.(*net.TCPAddr); tcp {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // an answer is sent at once, or with the next one if that fails
	}
	return c
}

// polled is what a polling server needs of a connection. It reads and writes on the descriptor, which it owns.
type polled struct {
	net.Conn      // nil: it is not used to read and write
	fd            int
	local, remote net.Addr
}

func (c *polled) Fd() int              { return c.fd }
func (c *polled) LocalAddr() net.Addr  { return c.local }
func (c *polled) RemoteAddr() net.Addr { return c.remote }
func (c *polled) Close() error         { return unix.Close(c.fd) }

func address(peer unix.Sockaddr) net.Addr {
	switch a := peer.(type) {
	case *unix.SockaddrInet4:
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	case *unix.SockaddrInet6:
		zone := ""
		if a.ZoneId != 0 {
			if i, err := net.InterfaceByIndex(int(a.ZoneId)); err == nil {
				zone = i.Name
			}
		}
		return &net.TCPAddr{IP: a.Addr[:], Port: a.Port, Zone: zone}
	case *unix.SockaddrUnix:
		return &net.UnixAddr{Name: a.Name, Net: "unix"}
	}
	return &net.TCPAddr{}
}
