package accept

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pause is the time between attempts where another one at once would fail again: also where a process without descriptors
	// waits for a connection. It is short because a poller may be the one that waits.
	pause = time.Millisecond
	// unsentBytes are taken by the kernel beyond what is on its way to a client. Without it a client that reads nothing makes the kernel hold
	// some hundred KiB, which no budget of the gateway counts, but its control group does.
	unsentBytes = 16 << 10 //xebec:limit bytes of answers that the kernel holds for a client that does not take them, beside its window
	// reportEvery bounds how often failures are reported: a client decides how many there are.
	reportEvery = 10 * time.Second //xebec:limit how often failures to accept connections are logged
)

// Config configures a listener. Its zero value bounds nothing and reports nothing.
type Config struct {
	// Connections is how many may be open at a time; 0: any number. Only Accept counts them, not what Pollable returns.
	Connections int
	// Shared says that another process may have the socket too, and accept from it later. Own ends that.
	Shared bool
	// Report is told how many connections could not be accepted since the last report, and the newest reason. The goroutine that
	// accepts calls it.
	Report func(failed uint64, newest error)
}

// Listener is a net.Listener whose Accept returns no error except after Close.
type Listener struct {
	net.Listener
	cfg    Config
	raw    syscall.RawConn
	open   atomic.Int64
	failed atomic.Uint64
	shared atomic.Bool
	ended  chan struct{}
	end    sync.Once
	// stopped: another process accepts.
	stopped chan struct{}
	stop    sync.Once

	sharing sync.Mutex
	share   *Share // nil: another process gets no connections

	begun   chan struct{} // closed by Begin; nil: it accepts from the start
	begin   sync.Once
	fromRaw syscall.RawConn // of from

	mu      sync.Mutex
	from    *os.File // nil: there is no process that passes on connections
	reserve int      // a descriptor to do without; -1: another part of the process was faster to take it
	events  int      // of Pollable: an epoll with the socket; -1: none
	report  reporter
}

// New makes a listener of one that the system made, and owns it.
func New(ln net.Listener, cfg Config) (*Listener, error) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("listen on %s: a %T has no file descriptor: expected a listener of package net", ln.Addr(), ln)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", ln.Addr(), err)
	}
	_ = raw.Control(func(fd uintptr) { // connections inherit it; the kernel that has no such option, or a socket that is not TCP, does without
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
	l := &Listener{Listener: ln, cfg: cfg, raw: raw, ended: make(chan struct{}), stopped: make(chan struct{}), events: -1}
	l.shared.Store(cfg.Shared)
	if l.reserve, err = openReserve(); err != nil {
		return nil, fmt.Errorf("listen on %s: keep a descriptor in reserve: %w", ln.Addr(), err)
	}
	return l, nil
}

func openReserve() (int, error) { return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) }

// Own says that after this process no other one accepts from the socket.
func (l *Listener) Own() { l.shared.Store(false) }

// Failed counts the connections that were not accepted, or closed at once.
func (l *Listener) Failed() uint64 { return l.failed.Load() }

// Close stops accepting. Connections that were accepted stay open.
func (l *Listener) Close() error {
	l.closeInherited()
	l.unpoll() // the socket may live on in another process, and would be reported here for as long
	err := l.Listener.Close()
	l.end.Do(func() {
		close(l.ended)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.reserve >= 0 {
			unix.Close(l.reserve)
			l.reserve = -1
		}
		if l.events >= 0 {
			unix.Close(l.events)
			l.events = -1
		}
	})
	return err
}

// Stop leaves new connections to another process that has the same socket, but for one that an Accept under way may take. Connections go on;
// Accept waits for Close.
func (l *Listener) Stop() {
	l.stop.Do(func() {
		close(l.stopped)
		if d, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok {
			_ = d.SetDeadline(time.Unix(1, 0)) // wakes Accept; it fails only if the listener is closed
		}
		l.unpoll()
	})
}

// unpoll takes the socket out of the epoll of Pollable.
func (l *Listener) unpoll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events >= 0 {
		_ = l.raw.Control(func(fd uintptr) { _ = unix.EpollCtl(l.events, unix.EPOLL_CTL_DEL, int(fd), nil) }) // both fail only if it is not there
	}
}

func (l *Listener) isStopped() bool {
	select {
	case <-l.stopped:
		return true
	default:
		return false
	}
}

// Accept waits for a connection. The only error is that the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.next()
		switch {
		case err == nil && l.passOnConn(c):
		case err == nil && (l.cfg.Connections == 0 || l.open.Add(1) <= int64(l.cfg.Connections)):
			return &counted{Conn: c, open: &l.open}, nil
		case err == nil:
			l.open.Add(-1)
			l.fail(fmt.Errorf("%d connections are open, which is the limit", l.cfg.Connections))
			c.Close()
		case l.closed() || errors.Is(err, net.ErrClosed):
			return nil, err
		case l.isStopped():
			<-l.ended
			return nil, net.ErrClosed
		case l.failedToAccept(err):
			select {
			case <-time.After(pause):
			case <-l.ended:
			}
		}
	}
}

// next waits for the next connection, of this listener or of another process's share.
func (l *Listener) next() (net.Conn, error) {
	if l.begun != nil {
		if c, err := l.acceptPassed(); c != nil || err != nil {
			return c, err
		}
	}
	return l.Listener.Accept()
}

func (l *Listener) closed() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// failedToAccept does what an error of accept asks for. again reports that another attempt at once would fail too.
func (l *Listener) failedToAccept(err error) (again bool) {
	if isOutOfDescriptors(err) {
		dropped, reserved := l.dropNewest()
		if dropped || !reserved {
			l.fail(err)
		}
		return !dropped // the kernel looks for a descriptor before it looks for a connection
	}
	l.fail(err)
	return !isOfConnection(err)
}

func isOutOfDescriptors(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// isOfConnection reports that an error concerns the connection that was to be accepted, and not the listener: accept(2) passes on
// what has already gone wrong on the new connection.
func isOfConnection(err error) bool {
	for _, e := range []error{unix.ECONNABORTED, unix.EINTR, unix.EPROTO, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.ENONET, unix.EHOSTUNREACH, unix.ENETUNREACH} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// dropNewest takes the waiting connection, if there is one, in place of the reserve and closes it. reserved is false if the descriptor
// that the reserve gave up is not to be had any more.
func (l *Listener) dropNewest() (dropped, reserved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed() {
		return false, true
	}
	if l.reserve >= 0 {
		unix.Close(l.reserve)
		l.reserve = -1
		if fd, _, err := l.accept4(); err == nil {
			unix.Close(fd)
			dropped = true
		}
	}
	fd, err := openReserve()
	if err != nil {
		return dropped, false
	}
	l.reserve = fd
	return dropped, true
}

// accept4 accepts a connection without waiting. EAGAIN means that there is none.
func (l *Listener) accept4() (fd int, peer unix.Sockaddr, err error) {
	closed := l.raw.Control(func(listener uintptr) {
		fd, peer, err = unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	})
	if closed != nil {
		return -1, nil, closed
	}
	return fd, peer, err
}

// fail counts a connection that was not accepted, and reports it if it is time to.
func (l *Listener) fail(err error) {
	l.failed.Add(1)
	if l.cfg.Report == nil {
		return
	}
	l.mu.Lock()
	n := l.report.failed(time.Now())
	l.mu.Unlock()
	if n > 0 {
		l.cfg.Report(n, err)
	}
}

// reporter decides when to report.
type reporter struct {
	since uint64 // failures that were not reported
	last  time.Time
}

// failed notes a failure. It returns how many are to be reported now; 0: none yet.
func (r *reporter) failed(now time.Time) (n uint64) {
	r.since++
	if !r.last.IsZero() && now.Sub(r.last) < reportEvery {
		return 0
	}
	n, r.since, r.last = r.since, 0, now
	return n
}

// counted is an accepted connection.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.open.Add(-1) })
	return err
}
