package accept

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, cfg Config) *Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(ln, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// wantClosed fails unless the other side closes the connection.
func wantClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v: want a closed connection", n, err)
	}
}

func TestReportsAreRare(t *testing.T) {
	var r reporter
	at := time.Unix(100, 0)
	for _, c := range []struct {
		after time.Duration
		want  uint64
	}{{0, 1}, {1, 0}, {reportEvery - 2, 0}, {1, 3}, {1, 0}, {time.Hour, 2}} {
		at = at.Add(c.after)
		if got := r.failed(at); got != c.want {
			t.Errorf("after another %v %d failures are reported, want %d", c.after, got, c.want)
		}
	}
}

func TestTheNewestOverTheBoundIsClosed(t *testing.T) {
	reports := make(chan error, 1) // one in ten seconds
	l := listen(t, Config{Connections: 2, Report: func(_ uint64, err error) { reports <- err }})
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial(t, l)
	first := <-accepted
	dial(t, l)
	second := <-accepted
	wantClosed(t, dial(t, l))
	if l.Failed() != 1 || <-reports == nil {
		t.Errorf("%d connections were refused, want 1", l.Failed())
	}
	first.Close()
	first.Close() // counts once
	dial(t, l)
	third := <-accepted
	wantClosed(t, dial(t, l))
	second.Close()
	third.Close()
	l.Close()
	if _, more := <-accepted; more {
		t.Error("a closed listener accepts")
	}
}

// failing fails as often as it has errors.
type failing struct {
	*net.TCPListener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return f.TCPListener.Accept()
}

func TestNoErrorEndsAccept(t *testing.T) {
	l := listen(t, Config{})
	l.Listener = &failing{l.Listener.(*net.TCPListener), []error{unix.ECONNABORTED, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO, unix.EINVAL}}
	dial(t, l)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if l.Failed() != 5 {
		t.Errorf("%d failures are counted, want 5", l.Failed())
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener's error is %v", err)
	}
}

func TestPollableAcceptsWithoutWaiting(t *testing.T) {
	l := listen(t, Config{})
	p, err := l.Pollable()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := p.Accept(); c != nil || err != nil {
		t.Fatalf("without a client Accept returns %v, %v", c, err)
	}
	client := dial(t, p)
	c := poll(t, p)
	defer c.Close()
	if c.RemoteAddr().String() != client.LocalAddr().String() || c.LocalAddr().String() != client.RemoteAddr().String() {
		t.Errorf("the connection is from %v to %v, want %v to %v", c.RemoteAddr(), c.LocalAddr(), client.LocalAddr(), client.RemoteAddr())
	}
	fd := c.(interface{ Fd() int }).Fd()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("programs that the gateway starts would inherit the connection (flags %#x, %v)", flags, err)
	}
	p.Close()
	if c, err := p.Accept(); c != nil || err != nil {
		t.Errorf("after Close Accept returns %v, %v", c, err)
	}
}

func poll(t *testing.T, p *Pollable) net.Conn {
	t.Helper()
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(p.Fd()), Events: unix.POLLIN}}, 30_000); err != nil {
		t.Fatal(err)
	}
	c, err := p.Accept()
	if c == nil || err != nil {
		t.Fatalf("Accept returns %v, %v", c, err)
	}
	return c
}

// outOfDescriptors is set in a process that runs without descriptors: the limit is the process's own, and other tests need theirs.
const outOfDescriptors = "XEBEC_TEST_OUT_OF_DESCRIPTORS"

// Without descriptors the newest connection is closed, those before it stay, and there is room again when one of them ends.
func TestOutOfDescriptors(t *testing.T) {
	for _, way := range []string{"blocking", "polling"} {
		if os.Getenv(outOfDescriptors) == way {
			withoutDescriptors(t, way == "polling")
			return
		}
	}
	if os.Getenv(outOfDescriptors) != "" {
		return
	}
	for _, way := range []string{"blocking", "polling"} {
		t.Run(way, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutOfDescriptors$", "-test.v", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), outOfDescriptors+"="+way)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func withoutDescriptors(t *testing.T, polling bool) {
	l := listen(t, Config{})
	accept := l.Accept
	if polling {
		p, err := l.Pollable()
		if err != nil {
			t.Fatal(err)
		}
		accept = func() (net.Conn, error) { return poll(t, p), nil }
	}
	kept := dial(t, l)
	server, err := accept()
	if err != nil {
		t.Fatal(err)
	}
	newest := dial(t, l) // the kernel has it, and nothing has accepted it
	held := useUp(t)

	accepted := make(chan net.Conn, 1)
	if polling { // the poller asks, and gets nothing
		if c, err := (&Pollable{Listener: l}).Accept(); c != nil || err != nil {
			t.Fatalf("Accept returns %v, %v", c, err)
		}
	} else {
		go func() {
			c, err := accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
	}
	wantClosed(t, newest)
	if _, err := kept.Write([]byte("x")); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	for _, fd := range held {
		unix.Close(fd)
	}
	dial(t, l)
	if polling {
		c, err := accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}
	for again := time.After(time.Second); ; again = time.After(time.Second) {
		select {
		case c := <-accepted:
			c.Close()
			server.Close()
			if l.Failed() == 0 {
				t.Error("nothing is counted")
			}
			return
		case <-again: // an attempt that began without descriptors has dropped it
			dial(t, l)
		}
	}
}

// Without descriptors the kernel refuses before it looks whether a connection waits. That is no failure, and nothing to hurry for.
func TestNothingWaits(t *testing.T) {
	l := listen(t, Config{})
	if !l.failedToAccept(unix.EMFILE) || l.Failed() != 0 {
		t.Errorf("%d failures are counted and no pause is made while no connection waits", l.Failed())
	}
	waiting := dial(t, l)
	if l.failedToAccept(unix.EMFILE) || l.Failed() != 1 {
		t.Errorf("%d failures are counted and a pause is made while a connection waits", l.Failed())
	}
	wantClosed(t, waiting)
}

// useUp takes every descriptor that the process may have.
func useUp(t *testing.T) (held []int) {
	t.Helper()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		t.Fatal(err)
	}
	for {
		fd, err := openReserve()
		if errors.Is(err, unix.EMFILE) {
			return held
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, fd)
	}
}
