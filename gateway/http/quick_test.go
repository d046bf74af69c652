package http

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// patient is a dialect with a route that waits.
type patient struct {
	native.Dialect
	began, goOn chan struct{}
}

func (p patient) Routes(*query.Path) []dialect.Route {
	return []dialect.Route{{Method: "POST", Path: "/wait", Serve: func(x dialect.Exchange) {
		p.began <- struct{}{}
		<-p.goOn
		x.Answer(&dialect.Answer{Status: 200, Body: append([]byte("waited "), x.Body()...)})
	}}}
}

// Handlers that wait, more than there are pollers, hold up no other connection.
func TestHandlersThatWait(t *testing.T) {
	p := patient{began: make(chan struct{}), goOn: make(chan struct{})}
	f := serve(t, querytest.Floats4, querytest.Sum, func(f *fixture) { f.dialects = []dialect.Dialect{p} })
	var readers []func() (int, string)
	for i := range 8 {
		c, r := f.raw()
		io.WriteString(c, request("/wait", fmt.Sprint(i))+request("/wait", "again"))
		<-p.began
		readers = append(readers, func() (int, string) { return readAnswer(t, r) })
	}
	c, r := f.raw()
	io.WriteString(c, request("/f/predict", `{"input":[1,2,3,4]}`))
	if status, body := readAnswer(t, r); status != 200 {
		t.Errorf("a prediction beside handlers that wait is answered %d %s", status, body)
	}
	go func() {
		for range 8 {
			<-p.began
		}
	}()
	close(p.goOn)
	for i, read := range readers {
		if status, body := read(); status != 200 || body != fmt.Sprint("waited ", i) {
			t.Errorf("%d %s", status, body)
		}
		if status, body := read(); status != 200 || body != "waited again" {
			t.Errorf("%d %s", status, body)
		}
	}
}

// An idle connection has one descriptor and no goroutine, also after requests that goroutines served.
func TestIdleConnectionsCostLittle(t *testing.T) {
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { querytest.End(it, api.OK, []byte("ok")) })
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	ask := func() {
		c, r := f.raw()
		io.WriteString(c, request("/f/predict", "x", "Content-Type: text/plain\r\n")+"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"+
			request("/f/predict", strings.Repeat("x", 100<<10), "Content-Type: text/plain\r\n"))
		for range 3 {
			if status, body := readAnswer(t, r); status != 200 {
				t.Fatalf("answered %d %s", status, body)
			}
		}
	}
	ask()
	const n = 200
	before, goroutines := descriptors(), runtime.NumGoroutine()
	for range n {
		ask()
	}
	if more := descriptors() - before; more > 2*n+4 { // the clients' are in this process too
		t.Errorf("%d connections have %d descriptors at their two ends", n, more)
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > goroutines+n/10; <-again.C {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines for %d idle connections", runtime.NumGoroutine()-goroutines, n)
		}
	}
}

// The connection of a client that ends its side is closed, whoever has served its requests.
func TestClientsThatEndTheirSide(t *testing.T) {
	f := serve(t, querytest.Bytes, echoed)
	for _, ask := range []string{
		request("/f/predict", "quick", "Content-Type: text/plain\r\n"), "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
	} {
		c, r := f.raw()
		io.WriteString(c, ask)
		if status, body := readAnswer(t, r); status != 200 {
			t.Errorf("%.30q is answered %d %s", ask, status, body)
		}
		c.(*net.TCPConn).CloseWrite()
		if _, err := r.ReadByte(); err != io.EOF {
			t.Errorf("%.30q: after the client has ended its side: %v", ask, err)
		}
	}
}

// Requests that come in any pieces, on the quick way and off it, are answered in their order.
func TestRequestsInPieces(t *testing.T) {
	f := serve(t, querytest.Bytes, echoed)
	text := request("/f/predict", "one", "Content-Type: text/plain\r\n") + "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" +
		request("/f/predict", "two", "Content-Type: text/plain\r\n") + request("/nothing/there", "x") + request("/f/predict", "six", "Content-Type: text/plain\r\n")
	for _, size := range []int{1, 7, 64, len(text)} {
		c, r := f.raw()
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			io.WriteString(c, rest[:n])
			rest = rest[n:]
		}
		for _, want := range []string{"b25l", "", "dHdv", "404", "c2l4"} { // base64 of one, two and six
			status, body := readAnswer(t, r)
			if want == "404" && status != 404 || want != "404" && (status != 200 || !strings.Contains(body, want)) {
				t.Errorf("in pieces of %d bytes: %d %s, want %s", size, status, body, want)
			}
		}
		c.Close()
	}
	f.wait(func(n int) bool { return n == 0 })
	if used := f.s.cfg.Bodies.Used(); used != 0 {
		t.Errorf("%d bytes of bodies are held", used)
	}
}

// A client that leaves in the middle of a body leaves nothing behind for the connection that gets its reader.
func TestClientsThatLeaveInABody(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, func(*fixture) {})
	for range 50 {
		c, _ := f.raw()
		io.WriteString(c, "POST /f/predict HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{\"input\"")
		c.Close()
		c, r := f.raw()
		io.WriteString(c, request("/f/predict", `{"input":[1,2,3,4]}`))
		if status, body := readAnswer(t, r); status != 200 {
			t.Fatalf("the next client is answered %d %s", status, body)
		}
		c.Close()
	}
}
