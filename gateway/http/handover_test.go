package http

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// moved is how a handover has ended on one side.
type moved struct {
	taken int
	err   error
}

// handOver moves the connections of a server to another one until the test ends. It returns how each side ends.
func handOver(t *testing.T, from, to *fixture) (given, taken <-chan moved) {
	t.Helper()
	out, there, err := accept.NewOutlet()
	if err != nil {
		t.Fatal(err)
	}
	return hand(from, out), take(t, to, there)
}

func hand(from *fixture, out *accept.Outlet) <-chan moved {
	ended := make(chan moved, 1)
	go func() {
		n, err := from.s.HandOver(out)
		ended <- moved{n, err}
	}()
	return ended
}

// sent waits until a connection is on its way to the other process.
func sent(t *testing.T, there *os.File) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(there.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(time.Minute.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("no connection was sent: %v", err)
		}
		return
	}
}

func take(t *testing.T, to *fixture, there *os.File) <-chan moved {
	t.Helper()
	in, err := accept.NewInlet(there, to.s.cfg.Listener.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan moved, 1)
	go func() {
		n, err := to.s.TakeConnections(in)
		ended <- moved{n, err}
	}()
	return ended
}

func (f *fixture) has(n int) { f.t.Helper(); f.wait(func(have int) bool { return have == n }) }

// kept is a connection that was answered once.
func (f *fixture) kept() (net.Conn, *bufio.Reader) {
	f.t.Helper()
	c, r := f.raw()
	io.WriteString(c, asked)
	f.open(r)
	return c, r
}

// open reads an answer that leaves its connection open.
func (f *fixture) open(r *bufio.Reader) {
	f.t.Helper()
	if a := answerOf(f.t, r); a.StatusCode != 200 || a.Close {
		f.t.Errorf("answered %d, close %v: want 200 and an open connection", a.StatusCode, a.Close)
	}
}

// closing reads an answer that closes its connection.
func (f *fixture) closing(r *bufio.Reader) {
	f.t.Helper()
	if a := answerOf(f.t, r); a.StatusCode != 200 || !a.Close {
		f.t.Errorf("answered %d, close %v: want 200 and a close", a.StatusCode, a.Close)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		f.t.Errorf("after the answer: %v, want the end", err)
	}
}

var asked = request("/f/predict", `{"input":[1,2,3,4]}`)

// named is a server whose queries are noted under a name.
func named(t *testing.T, name string, by chan string, change ...func(*fixture)) *fixture {
	t.Helper()
	return serve(t, querytest.Floats4, func(it *scheduler.Item) { by <- name; querytest.Sum(it) }, change...)
}

// A connection that waits for a request moves, whether it has had one or not: the other server answers the next one, and the client
// notices nothing.
func TestHandOver(t *testing.T) {
	by := make(chan string, 64)
	first, second := named(t, "first", by), named(t, "second", by)
	fresh, freshReader := first.raw()
	first.has(1)
	var conns []net.Conn
	readers := []*bufio.Reader{freshReader}
	for range 2 * maxPassing {
		c, r := first.kept()
		<-by
		conns, readers = append(conns, c), append(readers, r)
	}
	conns = append([]net.Conn{fresh}, conns...)
	given, taken := handOver(t, first, second)
	first.has(0)
	second.has(len(conns))
	for i, c := range conns {
		for range 2 {
			io.WriteString(c, asked)
			second.open(readers[i])
			if who := <-by; who != "second" {
				t.Fatalf("the %s server answers connection %d", who, i)
			}
		}
		c.Close()
	}
	second.has(0)
	if err := first.shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for side, m := range map[string]moved{"given": <-given, "taken": <-taken} {
		if m.taken != len(conns) || m.err != nil {
			t.Errorf("%s: %+v, want %d connections", side, m, len(conns))
		}
	}
}

// A connection with a request in work moves after its answer, which does not close it. What has come meanwhile goes along in the kernel, here half of
// the next request.
func TestHandOverAfterTheAnswer(t *testing.T) {
	held, by := make(chan *scheduler.Item, 1), make(chan string, 8)
	first, second := serve(t, querytest.Floats4, func(it *scheduler.Item) { held <- it }), named(t, "second", by)
	c, r := first.raw()
	io.WriteString(c, asked)
	it := <-held
	io.WriteString(c, asked[:len(asked)/2])
	idle, idleReader := first.raw()
	first.has(2)
	handOver(t, first, second)
	first.has(1)
	querytest.Sum(it)
	second.open(r)
	first.has(0)
	second.has(2)
	io.WriteString(c, asked[len(asked)/2:])
	second.open(r)
	io.WriteString(idle, asked)
	second.open(idleReader)
}

// A request that goes another way than the pollers' own is answered here, too, and then its connection moves.
func TestHandOverAfterAGoroutine(t *testing.T) {
	by := make(chan string, 8)
	first, second := named(t, "first", by), named(t, "second", by)
	c, r := first.raw()
	const chunked = "POST /f/predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n{\"input\":[1,2,3,4]}"
	io.WriteString(c, chunked)
	first.has(1)
	first.wait(func(int) bool { return first.s.reads() })
	handOver(t, first, second)
	io.WriteString(c, "\r\n0\r\n\r\n")
	second.open(r)
	if who := <-by; who != "first" {
		t.Errorf("the %s server answers what the first one has begun to read", who)
	}
	second.has(1)
	io.WriteString(c, asked)
	second.open(r)
	if who := <-by; who != "second" {
		t.Errorf("the %s server answers after the move", who)
	}
}

// reads reports whether every connection has a request of which some was read.
func (s *Server) reads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.Offer() {
			return false
		}
	}
	return true
}

// At its limit the other server takes no more. The rest stays, and closes with its next answer.
func TestHandOverToAFullServer(t *testing.T) {
	by := make(chan string, 8)
	first, second := named(t, "first", by), named(t, "second", by, func(f *fixture) { f.connections = 1 })
	conns, readers := map[net.Conn]bool{}, map[net.Conn]*bufio.Reader{}
	for range 3 {
		c, r := first.kept()
		<-by
		conns[c], readers[c] = true, r
	}
	given, taken := handOver(t, first, second)
	if m := <-taken; m.taken != 1 || m.err == nil || !strings.Contains(m.err.Error(), "--max-connections") {
		t.Errorf("the second server ends with %+v", m)
	}
	if m := <-given; m.taken != 1 || m.err == nil {
		t.Errorf("the first server ends with %+v", m)
	}
	first.has(2)
	second.has(1)
	for c := range conns {
		io.WriteString(c, asked)
		if who := <-by; who == "second" {
			second.open(readers[c])
		} else {
			first.closing(readers[c])
		}
	}
	first.has(0)
}

// Without another process the connections stay, and close with their next answers.
func TestHandOverToNone(t *testing.T) {
	by := make(chan string, 8)
	first := named(t, "first", by)
	c, r := first.kept()
	out, there, err := accept.NewOutlet()
	if err != nil {
		t.Fatal(err)
	}
	there.Close()
	if m := <-hand(first, out); m.taken != 0 || m.err == nil {
		t.Errorf("it ends with %+v", m)
	}
	io.WriteString(c, asked)
	first.closing(r)
}

// What is no connection is refused, and ends the handover. The server goes on.
func TestTakeConnectionsRefuses(t *testing.T) {
	by := make(chan string, 8)
	f := named(t, "f", by)
	c, r := f.kept()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out, there, err := accept.NewOutlet()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := out.Pass(int(file.Fd()), accept.Kept{}); err != nil {
		t.Fatal(err)
	}
	if m := <-take(t, f, there); m.taken != 0 || m.err == nil || !strings.Contains(m.err.Error(), "no socket") {
		t.Errorf("it ends with %+v", m)
	}
	io.WriteString(c, asked)
	f.open(r)
}

// The time that a connection has waited counts on: one that has waited for as long as it may is closed at once.
func TestTakenConnectionsHaveWaited(t *testing.T) {
	by := make(chan string, 8)
	f := named(t, "f", by, func(f *fixture) {
		f.limits = func(l *Limits) { l.IdleTimeout, l.FirstByteTimeout = time.Hour, 2*time.Hour }
	})
	out, there, err := accept.NewOutlet()
	if err != nil {
		t.Fatal(err)
	}
	ended := take(t, f, there)
	for _, k := range []accept.Kept{{Served: true, Waited: time.Hour}, {Waited: 2 * time.Hour}, {Served: true, Waited: 1<<63 - 1}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		copied, err := accepted.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Pass(int(copied.Fd()), k); err != nil {
			t.Fatal(err)
		}
		if err := out.Taken(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		ln.Close()
		accepted.Close()
		copied.Close()
		_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := client.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%+v: %v, want the end", k, err)
		}
		client.Close()
	}
	out.Close()
	if m := <-ended; m.taken != 3 || m.err != nil {
		t.Errorf("it ends with %+v", m)
	}
}

// A server that has ended has nothing to give and does not take, and one that ends stops both.
func TestHandOverEnds(t *testing.T) {
	by := make(chan string, 8)
	first, second := named(t, "first", by), named(t, "second", by)
	c, _ := first.kept()
	given, taken := handOver(t, first, second)
	second.has(1)
	if err := second.shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if m := <-taken; m.taken != 1 || m.err != nil {
		t.Errorf("the server that ends has taken %+v", m)
	}
	if m := <-given; m.taken != 1 || m.err == nil {
		t.Errorf("the other one has given %+v", m)
	}
	c.Close()
	given, taken = handOver(t, first, second)
	if m := <-taken; m.err == nil {
		t.Errorf("a server that has ended takes: %+v", m)
	}
	if m := <-given; m.err == nil {
		t.Errorf("the other one gives: %+v", m)
	}
	if err := first.shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	given, _ = handOver(t, first, second)
	if m := <-given; m.taken != 0 || m.err != nil {
		t.Errorf("a server that has ended, and so has nothing to give, gives: %+v", m)
	}
}

// What is on its way when a server ends is the other one's.
func TestHandOverEndsOnTheWay(t *testing.T) {
	by := make(chan string, 8)
	first, second := named(t, "first", by), named(t, "second", by)
	c, r := first.kept()
	<-by
	out, there, err := accept.NewOutlet()
	if err != nil {
		t.Fatal(err)
	}
	given := hand(first, out)
	sent(t, there) // and has no answer
	if err := first.shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if m := <-given; m.taken != 0 || m.err != nil {
		t.Errorf("the server that has ended has given %d: %v", m.taken, m.err)
	}
	io.WriteString(c, asked)
	if m := <-take(t, second, there); m.taken != 1 || m.err != nil {
		t.Errorf("the other one has taken %+v", m)
	}
	second.open(r)
	if who := <-by; who != "second" {
		t.Errorf("the %s server answers", who)
	}
}

// The other process is late if it has not taken a connection for a while, counted from the last one, or from when there was one to take.
func TestHandOverIsLate(t *testing.T) {
	began := time.Now()
	h := &handover{moved: began}
	if h.late(began.Add(time.Hour)) {
		t.Error("nothing is on its way, and it is late")
	}
	h.sent = []*conn{nil}
	for _, c := range []struct {
		after time.Duration
		late  bool
	}{{0, false}, {passWithin, false}, {passWithin + 1, true}} {
		if got := h.late(began.Add(c.after)); got != c.late {
			t.Errorf("after %s: late %v", c.after, got)
		}
	}
}
