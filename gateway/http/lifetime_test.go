package http

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// A body of several network buffers is copied together by netpoll into memory that any connection may get next.
func TestNothingOfAnotherClientsBodyIsEchoed(t *testing.T) {
	held := make(chan *scheduler.Item, 64)
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) { held <- it })
	infer := func(id string) string {
		body := fmt.Sprintf(`{"id":"%s","inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`, id)
		return request("/v2/models/m/infer", body+strings.Repeat(" ", 20000))
	}
	mine := strings.Repeat("A", 40)
	c, r := f.raw()
	io.WriteString(c, infer(mine))
	first := <-held
	for range 30 {
		other, _ := f.raw()
		io.WriteString(other, infer(strings.Repeat("C", 40)))
	}
	var others []*scheduler.Item
	for range 30 {
		others = append(others, <-held)
	}
	querytest.Sum(first)
	if _, body := readAnswer(t, r); !strings.Contains(body, mine) {
		t.Errorf("the id that was sent is %s, the answer %s", mine, body)
	}
	for _, it := range others {
		querytest.Sum(it)
	}
}

func TestConnectionsOverTheLimitAreClosedAndForgotten(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, func(f *fixture) { f.connections = 2 })
	first, firstReader := f.raw()
	second, _ := f.raw()
	ask := request("/f/predict", `{"input":[1,2,3,4]}`)
	io.WriteString(first, ask)
	readAnswer(t, firstReader)
	io.WriteString(second, ask)
	f.wait(func(n int) bool { return n == 2 })
	for range 10 {
		c, r := f.raw()
		if _, err := r.ReadByte(); err == nil {
			t.Fatal("a connection over the limit was answered")
		}
		c.Close()
	}
	first.Close()
	second.Close()
	f.wait(func(n int) bool { return n == 0 })
	again, r := f.raw()
	io.WriteString(again, ask)
	if status, _ := readAnswer(t, r); status != 200 {
		t.Errorf("after all have left a client is answered %d", status)
	}
}

// wait polls the number of connections until ok says so.
func (f *fixture) wait(ok func(n int) bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		f.s.mu.Lock()
		n := len(f.s.conns)
		f.s.mu.Unlock()
		if ok(n) {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			f.t.Fatalf("still %d connections", n)
		}
	}
}

func TestAmbiguousFramingIsRefusedOnEveryRoute(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	const smuggled = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, line := range []string{"POST /nosuch/predict", "POST /v2/models/none/infer", "GET /healthz", "DELETE /f/predict", "POST /nothing"} {
		c, r := f.raw()
		body := "0\r\n\r\n" + smuggled
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n%s", line, len(body), body)
		if status, _ := readAnswer(t, r); status != 400 {
			t.Errorf("%s is answered %d, want 400", line, status)
		}
		if rest, _ := io.ReadAll(r); len(rest) > 0 {
			t.Errorf("%s: after the refusal came %q", line, rest)
		}
	}
}

func TestShutdownUnderLoadAnswersWhatItAccepts(t *testing.T) {
	var work sync.WaitGroup
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		work.Add(1)
		go func() { defer work.Done(); querytest.Sum(it) }()
	})
	var answered atomic.Int64
	var clients sync.WaitGroup
	started := make(chan struct{}, 64)
	for range 8 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			c, err := net.Dial("tcp", f.addr)
			if err != nil {
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(20 * time.Second))
			buf := make([]byte, 4096)
			for {
				if _, err := io.WriteString(c, request("/f/predict", `{"input":[1,2,3,4]}`)); err != nil {
					return
				}
				n, err := c.Read(buf)
				if n == 0 || err != nil {
					return // closed between requests, or this one was never accepted
				}
				if !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200") {
					t.Errorf("answer %q", buf[:n])
				}
				answered.Add(1)
				select {
				case started <- struct{}{}:
				default:
				}
			}
		}()
	}
	for range 8 {
		<-started
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := f.shutdown(ctx); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", f.addr); err == nil {
		c.Close()
		t.Error("the port still accepts connections")
	}
	clients.Wait() // every client came to an end: none is left without its answer
	work.Wait()
	if got := f.fn.Stats.Read().Codes[api.OK]; got < uint64(answered.Load()) {
		t.Errorf("%d answers were read, %d were counted", answered.Load(), got)
	}
}

// A client that sends on while its query waits is not read: no more is taken than the kernel's buffers and one of ours hold. A little
// ahead is answered in order, and so is a body of any size.
func TestWhatIsSentAheadIsBounded(t *testing.T) {
	held := make(chan *scheduler.Item, 64)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { held <- it }, func(f *fixture) {
		f.bodies = NewBodies(16 << 20)
		f.limits = func(l *Limits) { l.BodyBytes = 12 << 20 }
	})
	ask := func(bytes int) string {
		return request("/f/predict", strings.Repeat("x", bytes), "Content-Type: application/octet-stream\r\n")
	}
	modest, answers := f.raw()
	go io.WriteString(modest, ask(1)+ask(11<<20)+ask(1))
	for range 3 {
		echoed(<-held)
		if status, _ := readAnswer(t, answers); status != 200 {
			t.Errorf("a client that sends a little ahead is answered %d", status)
		}
	}
	greedy, r := f.raw()
	io.WriteString(greedy, ask(1))
	waits := <-held
	const ahead = 64 << 20
	if err := greedy.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.WriteString(greedy, strings.Repeat(ask(1000), ahead/1000)); err == nil {
		t.Errorf("%d bytes were taken while an answer was pending", n)
	}
	if used := f.s.cfg.Bodies.Used(); used > 1 {
		t.Errorf("%d bytes of bodies are held: expected those of one request", used)
	}
	echoed(waits)
	if status, _ := readAnswer(t, r); status != 200 {
		t.Errorf("the first request is answered %d", status)
	}
	modest.Close()
	greedy.Close()
	gone := make(chan struct{})
	var behind sync.WaitGroup
	behind.Go(func() { // what came before the client left
		for {
			select {
			case it := <-held:
				echoed(it)
			case <-gone:
				return
			}
		}
	})
	f.wait(func(n int) bool { return n == 0 })
	close(gone)
	behind.Wait()
}
