package accept

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passedBytes bounds the connections that have been passed to another process and that it has not taken: the kernel charges some
// hundred bytes for each. Beyond it the connections stay here.
const passedBytes = 32 << 10 //xebec:limit memory of connections on their way to a new process of the gateway

// passedMark is the byte that comes with each connection: a message needs one.
const passedMark = 'c'

// Share passes a part of the new connections to another process, over a socket. The listener accepts all of them, so the part is exact,
// and a process that does not take its connections gets none: they stay here.
type Share struct {
	part   float64
	due    float64 // how much of the next connection is the other process's
	to     *os.File
	raw    syscall.RawConn
	passed atomic.Uint64
}

// NewShare makes a share, from 0 to 1, and the socket from which the other process's [Listener.Inherit] takes the connections. The caller
// owns both.
func NewShare(part float64) (_ *Share, there *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	to, there := os.NewFile(uintptr(fds[0]), "connections for another process"), os.NewFile(uintptr(fds[1]), "connections from another process")
	raw, err := to.SyscallConn()
	if err == nil {
		err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, passedBytes)
	}
	if err != nil {
		return nil, nil, errors.Join(err, to.Close(), there.Close())
	}
	return &Share{part: part, to: to, raw: raw}, there, nil
}

// Passed counts the connections that the other process has got.
func (s *Share) Passed() uint64 { return s.passed.Load() }

// Close ends the share. The other process gets what was passed before. No listener may use it any more.
func (s *Share) Close() error { return s.to.Close() }

// pass passes a connection on, if it is the other process's turn. The caller closes its own descriptor then. Only one goroutine at a
// time calls it.
func (s *Share) pass(fd int) bool {
	if s.due += s.part; s.due < 1 {
		return false
	}
	s.due--
	passed := false
	_ = s.raw.Control(func(to uintptr) { // it fails only if the share is closed
		passed = unix.Sendmsg(int(to), []byte{passedMark}, unix.UnixRights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) == nil
	})
	if !passed {
		return false
	}
	s.passed.Add(1)
	return true
}

// SetShare passes a share of the connections to another process from now on; nil: none. When it returns, the share before is not used
// any more.
func (l *Listener) SetShare(s *Share) {
	l.sharing.Lock()
	defer l.sharing.Unlock()
	l.share = s
}

// passOn reports whether another process has got the connection.
func (l *Listener) passOn(fd int) bool {
	l.sharing.Lock()
	defer l.sharing.Unlock()
	return l.share != nil && l.share.pass(fd)
}

// passOnConn is passOn for a connection of package net, which it closes then.
func (l *Listener) passOnConn(c net.Conn) (passed bool) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { passed = l.passOn(int(fd)) })
	if passed {
		c.Close()
	}
	return passed
}

// Inherit makes the listener take connections from another process's [Share], and none of its own before Begin. It owns the socket. It
// is called before Accept and Pollable.
func (l *Listener) Inherit(from *os.File) error {
	raw, err := from.SyscallConn()
	if err == nil {
		err = from.SetDeadline(time.Time{}) // it must be a descriptor that can be waited for
	}
	if err != nil {
		return errors.Join(err, from.Close())
	}
	l.from, l.fromRaw = from, raw
	l.begun = make(chan struct{})
	return nil
}

// Begin makes a listener that inherits connections accept its own, too.
func (l *Listener) Begin() error {
	if l.begun == nil {
		return nil
	}
	var err error
	l.begin.Do(func() {
		close(l.begun)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.events >= 0 {
			err = l.poll(l.raw)
		}
	})
	return err
}

// hasBegun reports whether the listener accepts connections of its own.
func (l *Listener) hasBegun() bool {
	if l.begun == nil {
		return true
	}
	select {
	case <-l.begun:
		return true
	default:
		return false
	}
}

// acceptPassed waits for a connection that another process passes on. When there will be none, it waits for Begin and returns nil.
func (l *Listener) acceptPassed() (net.Conn, error) {
	l.mu.Lock()
	inherits := l.from != nil
	l.mu.Unlock()
	if inherits {
		fd, err := -1, error(nil)
		ended := l.fromRaw.Read(func(from uintptr) bool {
			fd, err = receivePassed(int(from))
			return !errors.Is(err, unix.EAGAIN)
		})
		if err = errors.Join(ended, err); err == nil {
			f := os.NewFile(uintptr(fd), "connection from another process")
			defer f.Close()
			return net.FileConn(f)
		}
		l.closeInherited()
	}
	select {
	case <-l.begun:
		return nil, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// takePassed returns a connection that another process has passed on, without waiting; -1: there is none now.
func (l *Listener) takePassed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from == nil {
		return -1
	}
	fd, err := -1, error(nil)
	ended := l.fromRaw.Control(func(from uintptr) { fd, err = receivePassed(int(from)) })
	if err = errors.Join(ended, err); err == nil {
		return fd
	}
	if !errors.Is(err, unix.EAGAIN) {
		l.from.Close() // which also takes it out of the epoll
		l.from = nil
	}
	return -1
}

func (l *Listener) closeInherited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from != nil {
		l.from.Close()
		l.from = nil
	}
}

var errNoMorePassed = errors.New("the other process passes on no more connections")

// receivePassed receives one connection, non-blocking. A message without one is passed over: this process is out of descriptors, and the
// kernel has closed the connection.
func receivePassed(from int) (fd int, err error) {
	var mark [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(from, mark[:], oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return -1, err
		case n == 0:
			return -1, errNoMorePassed
		}
		fds := descriptors(oob[:oobn])
		if len(fds) == 1 && unix.SetNonblock(fds[0], true) == nil {
			return fds[0], nil
		}
		for _, fd := range fds { // there must not be more than one
			unix.Close(fd)
		}
	}
}
