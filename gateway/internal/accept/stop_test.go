package accept

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// shared is another listener of the same socket, as another process has it.
func shared(t *testing.T, l *Listener) net.Listener {
	t.Helper()
	file, err := l.Listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	other, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return other
}

// acceptOne accepts a connection of a new client.
func acceptOne(t *testing.T, l net.Listener) {
	t.Helper()
	dial(t, l)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// After Stop, new connections are for another process with the same socket, and Accept waits for Close.
func TestStop(t *testing.T) {
	l := listen(t, Config{})
	other := shared(t, l)
	acceptOne(t, l)
	ended := make(chan error, 1)
	go func() { c, err := l.Accept(); _ = c; ended <- err }()
	l.Stop()
	l.Stop()
	for range 5 {
		acceptOne(t, other)
	}
	l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returned %v", err)
	}
	acceptOne(t, other)
	if l.Failed() != 0 {
		t.Errorf("%d failures are counted", l.Failed())
	}
}

// A poller hears nothing of the socket after Stop, although it has connections that wait.
func TestStopOfPollable(t *testing.T) {
	l := listen(t, Config{})
	p, err := l.Pollable()
	if err != nil {
		t.Fatal(err)
	}
	other := shared(t, l)
	dial(t, p)
	poll(t, p).(*polled).Close()
	dial(t, p) // it waits
	ready := func() int {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.Fd()), Events: unix.POLLIN}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(p.Fd()), Events: unix.POLLIN}}, 30_000); err != nil || ready() != 1 {
		t.Fatalf("a waiting connection is not reported: %v", err)
	}
	p.Stop()
	if c, err := p.Accept(); c != nil || err != nil || ready() != 0 {
		t.Errorf("after Stop, Accept returns %v, %v, and the poller hears of %d", c, err, ready())
	}
	c, err := other.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
