package http

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func echoed(it *scheduler.Item) { querytest.End(it, api.OK, it.Inputs[0].Data) }

// Each body is larger than what is read, parsed or grown at a time, or just as large.
func TestBodiesOfAllSizesArrive(t *testing.T) {
	f := serve(t, querytest.Bytes, echoed)
	for _, size := range []int{1, firstChunkBytes - 1, firstChunkBytes + 1, windowBytes, readBytes + 1, 1 << 17, 3<<20 + 5} {
		body := strings.Repeat("x", size-1) + "y"
		c, r := f.raw()
		io.WriteString(c, request("/f/predict", body, "Content-Type: application/octet-stream\r\n"))
		var chunked bytes.Buffer
		chunked.WriteString("POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for rest := body; len(rest) > 0; {
			n := min(len(rest), 60_000)
			chunked.WriteString(strconv.FormatInt(int64(n), 16) + ";x\r\n" + rest[:n] + "\r\n")
			rest = rest[n:]
		}
		chunked.WriteString("0\r\nA: b\r\n\r\n")
		go c.Write(chunked.Bytes()) // pipelined
		for range 2 {
			if status, got := readAnswer(t, r); status != 200 || !strings.HasSuffix(strings.TrimRight(got, "\"}]\n"), "y") && len(got) < size {
				t.Errorf("a body of %d bytes is answered %d with %d bytes", size, status, len(got))
			}
		}
		c.Close()
	}
	f.wait(func(n int) bool { return n == 0 })
	if used := f.s.cfg.Bodies.Used(); used != 0 {
		t.Errorf("%d bytes are reserved when no request is open", used)
	}
}

// A body that stalls is refused after the grace, and an answer that is not read ends its connection. Both are counted, and neither
// keeps memory.
func TestWhatDoesNotFlowIsCut(t *testing.T) {
	f := serve(t, querytest.Bytes, echoed, func(f *fixture) {
		f.limits = func(l *Limits) { l.RateGrace = 50 * time.Millisecond }
	})
	c, r := f.raw()
	io.WriteString(c, "POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx")
	if status, body := readAnswer(t, r); status != 408 || !strings.Contains(body, `"code":"deadline_exceeded"`) {
		t.Errorf("a body that stalls is answered %d %s", status, body)
	}
	unread, _ := f.raw()
	body := strings.Repeat("x", 3<<20)
	if err := unread.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	go func() { // no more than may be sent ahead, and more answers than the sockets take
		for range 3 {
			if _, err := io.WriteString(unread, request("/f/predict", body, "Content-Type: text/plain\r\n")); err != nil {
				return
			}
		}
	}()
	f.wait(func(n int) bool { return n == 0 })
	counts := f.s.cfg.Refusals.Read()
	if counts["rate"] == 0 || counts["unread_answer"] == 0 {
		t.Errorf("counted: %v", counts)
	}
}

// 100 (Continue) comes once, and only where the body has room.
func TestExpectations(t *testing.T) {
	f := serve(t, querytest.Bytes, echoed, func(f *fixture) {
		f.bodies = NewBodies(1000)
		f.bodies.turns.wait = time.Millisecond
	})
	ask := func(length string) string {
		return "POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nExpect: 100-continue\r\nContent-Length: " + length + "\r\n\r\n"
	}
	c, r := f.raw()
	io.WriteString(c, ask("5"))
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if line, err := r.ReadString('\n'); err != nil || line != "\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	io.WriteString(c, "hello")
	if status, _ := readAnswer(t, r); status != 200 {
		t.Errorf("answered %d", status)
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !f.s.cfg.Bodies.Reserve(998) { // by another connection, once the body above has been given back
		<-again.C
	}
	for length, want := range map[string]int{"5": 503, "1001": 413} {
		c, r := f.raw()
		io.WriteString(c, ask(length))
		if status, body := readAnswer(t, r); status != want {
			t.Errorf("%s bytes are answered %d %s, want %d", length, status, body, want)
		}
	}
	f.s.cfg.Bodies.Return(998)
}

// Memory of large bodies is used again, and reads as zeros after it was given back.
func TestBodiesAreGivenBack(t *testing.T) {
	b := NewBodies(1 << 20)
	m := b.take(600 << 10)
	if b.take(600<<10) != nil {
		t.Error("the budget was exceeded")
	}
	m.bytes = append(m.bytes, strings.Repeat("x", 600<<10)...)
	kept := m.bytes
	b.put(m)
	if again := b.take(700 << 10); &again.bytes[:1][0] != &kept[0] {
		t.Error("it was not used again")
	} else {
		b.put(again)
	}
	b.trim(time.Now().Add(-time.Hour))
	if kept[0] != 'x' {
		t.Error("it was given back too early")
	}
	b.trim(time.Now().Add(time.Hour))
	if kept[0] != 0 || b.Used() != 0 {
		t.Errorf("after it was given back %q is there, %d bytes are reserved", kept[0], b.Used())
	}
}

// Memory that bodies of one size have left is within the budget while bodies of another size come.
func TestIdleMemoryIsWithinTheBudget(t *testing.T) {
	const limit = 1 << 20
	b := NewBodies(limit)
	left := map[*byte]int{}
	for _, size := range []int{1000 << 10, 500 << 10, 250 << 10, 500 << 10, 130 << 10} {
		m := b.take(size)
		resident := int(b.Used())
		for p, n := range left {
			if *p != 0 && p != &m.bytes[:1][0] {
				resident += n
			}
		}
		if resident > limit {
			t.Errorf("with a body of %d bytes %d are resident: expected at most %d", size, resident, limit)
		}
		m.bytes = append(m.bytes, strings.Repeat("x", size)...)
		left[&m.bytes[0]] = size
		b.put(m)
	}
}
