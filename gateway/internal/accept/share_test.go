package accept

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// between are two listeners of one socket: the first one passes a part of its connections to the second one.
func between(t *testing.T, part float64) (here, there *Listener, share *Share) {
	t.Helper()
	here = listen(t, Config{})
	share, from, err := NewShare(part)
	if err != nil {
		t.Fatal(err)
	}
	if there, err = New(shared(t, here), Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close(); share.Close() })
	if err := there.Inherit(from); err != nil {
		t.Fatal(err)
	}
	here.SetShare(share)
	return here, there, share
}

// greeter accepts and says its name on each connection, until the listener is closed.
func greeter(l *Listener, name string) (ended <-chan error) {
	done := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				done <- err
				return
			}
			_, _ = io.WriteString(c, name)
			c.Close()
		}
	}()
	return done
}

// greetings connects n times and returns who answered.
func greetings(t *testing.T, l net.Listener, n int) string {
	t.Helper()
	var all strings.Builder
	for range n {
		c := dial(t, l)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		text, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// The share is exact. The process that gets it accepts nothing of its own before Begin, and all that comes after the other has stopped.
func TestShare(t *testing.T) {
	here, there, share := between(t, 0.25)
	greeter(here, "o")
	ended := greeter(there, "n")
	if got := greetings(t, here, 12); got != "ooonooonooon" || share.Passed() != 3 {
		t.Errorf("%d were passed, answered by %s", share.Passed(), got)
	}
	here.SetShare(nil)
	share.Close()
	if got := greetings(t, here, 4); got != "oooo" {
		t.Errorf("without a share: %s", got)
	}
	if err := there.Begin(); err != nil {
		t.Fatal(err)
	}
	here.Stop()
	if got := greetings(t, here, 5); strings.Count(got, "n") < 4 { // the Accept under way may still take one
		t.Errorf("after the end of the other process: %s", got)
	}
	there.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A share ends with either side: the connections stay with the process that accepts them.
func TestShareWithoutTaker(t *testing.T) {
	here, there, share := between(t, 1)
	greeter(here, "o")
	ended := greeter(there, "n")
	if got := greetings(t, here, 2); got != "nn" {
		t.Errorf("all are shared: %s", got)
	}
	there.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if got := greetings(t, here, 3); got != "ooo" || share.Passed() != 2 {
		t.Errorf("the other process is gone: %s", got)
	}
}

// A process that does not take what it gets gets no more than a bound.
func TestShareIsBounded(t *testing.T) {
	share, from, err := NewShare(1)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer share.Close()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	n := 0
	for share.pass(null) {
		if n++; n > 1000 {
			t.Fatal("a thousand connections wait")
		}
	}
	if n == 0 {
		t.Error("no connection was passed")
	}
	t.Logf("%d connections wait", n)
}

// The same for a server that polls.
func TestShareOfPollable(t *testing.T) {
	here, there, share := between(t, 0.5)
	old, err := here.Pollable()
	if err != nil {
		t.Fatal(err)
	}
	next, err := there.Pollable()
	if err != nil {
		t.Fatal(err)
	}
	one := func(p *Pollable) string {
		c := poll(t, p)
		defer c.Close()
		return fmt.Sprint(c.RemoteAddr())
	}
	if first := dial(t, old); one(old) != first.LocalAddr().String() {
		t.Error("the first connection is not the old process's")
	}
	second := dial(t, old)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(old.Fd()), Events: unix.POLLIN}}, 30_000); err != nil {
		t.Fatal(err)
	}
	if c, err := old.Accept(); c != nil || err != nil || share.Passed() != 1 {
		t.Fatalf("the second connection was not passed: %v, %v", c, err)
	}
	if got := one(next); got != second.LocalAddr().String() {
		t.Errorf("the new process got %s, passed was %s", got, second.LocalAddr())
	}
	here.SetShare(nil)
	dial(t, old) // it waits, and the new process does not hear of it
	if c, err := next.Accept(); c != nil || err != nil {
		t.Errorf("before Begin it accepts %v, %v", c, err)
	}
	share.Close()
	if err := next.Begin(); err != nil {
		t.Fatal(err)
	}
	one(next)
}

// Messages without a connection, or with more descriptors than one, are passed over and their descriptors closed. Those behind them are
// not forgotten.
func TestShareOfADamagedProcess(t *testing.T) {
	_, there, share := between(t, 0.5)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[1])
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client := os.NewFile(uintptr(ends[0]), "client")
	defer client.Close()
	for _, rights := range [][]byte{unix.UnixRights(p[0], p[0]), nil, unix.UnixRights(p[0], p[0], p[0]), unix.UnixRights(ends[1])} {
		if err := unix.Sendmsg(int(share.to.Fd()), []byte{passedMark}, rights, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(p[0])
	unix.Close(ends[1])
	c, err := there.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := client.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("the connection behind them: %v", err)
	}
	if _, err := unix.Write(p[1], []byte{1}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("a descriptor is still open: %v", err)
	}
}
