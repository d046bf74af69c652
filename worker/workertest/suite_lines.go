package workertest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/wire"
)

// The cases of models that call other functions: section 7 of the protocol.
var lineCases = []testCase{
	{name: "values and queries", run: testCallValues},
	{name: "errors", run: testCallErrors},
	{name: "another signature", run: testCallConflict},
	{name: "at once", run: testCallsAtOnce},
	{name: "a line that breaks", run: testLineBreaks},
	{name: "no lines", run: testNoLines},
}

func testLines(t *testing.T, su *suite) { runCases(t, lineCases, su.Worker, su.open) }

// callees answers what a worker calls on its lines. Its function up answers bytes[] in upper case; other names are not found.
type callees struct {
	lines  chan net.Conn
	closed chan struct{}
	given  atomic.Int64
	digest atomic.Int64 // of the signature of up
	heads  chan string  // what each call of up belongs to
	before func()       // is called before up answers, if it is not nil
}

// calling launches a worker of the model Markers that may call callees.
func (su *suite) calling(t *testing.T, c *callees, env ...string) *running {
	t.Helper()
	c.lines, c.closed, c.heads = make(chan net.Conn), make(chan struct{}), make(chan string, 256)
	server := &http.Server{Handler: c}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(c) }) // ends with the listener
	g, start := su.open(t, 0)
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	l := Expect(t, g.Transport, worker.Expectation{Signature: Text(), Depth: 2, Lines: c.line})
	p := start(t, append(l.Env, append(env, model(Markers), EnvFunctions+"=1")...))
	return &running{NewSession(t, l), g, p}
}

// line takes a line.
func (c *callees) line(l worker.Line) {
	c.given.Add(1)
	conn := &lineConn{Conn: l.Conn.(net.Conn), line: l}
	select {
	case c.lines <- conn:
	case <-c.closed:
		conn.Close()
	}
}

// lineConn is a line that says once that it was closed.
type lineConn struct {
	net.Conn
	line worker.Line
	once sync.Once
}

func (c *lineConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.line.Closed)
	return err
}

// Accept, Close and Addr make it a listener.
func (c *callees) Accept() (net.Conn, error) {
	select {
	case conn := <-c.lines:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

func (c *callees) Close() error   { close(c.closed); return nil }
func (c *callees) Addr() net.Addr { return &net.UnixAddr{Name: "lines", Net: "unix"} }

func (c *callees) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(code api.Code, text string) {
		w.WriteHeader(code.HTTPStatus())
		fmt.Fprintf(w, `{"error":%q,"code":%q,"request_id":""}`, text, code)
	}
	digest := strconv.FormatInt(c.digest.Load(), 16)
	switch {
	case r.URL.Path != "/call/up":
		fail(api.NotFound, "no function or model")
		return
	case r.Method == "GET":
		fmt.Fprintf(w, `{"digest":%q,"inputs":[{"name":"in","dtype":"bytes","shape":[]}],"outputs":[{"name":"out","dtype":"bytes","shape":[]}]}`, digest)
		return
	case r.Header.Get("Xebec-Signature") != digest:
		fail(api.Conflict, "the signature may have changed")
		return
	}
	n, err := strconv.Atoi(r.Header.Get("Xebec-Queries"))
	if err != nil || n != 1 {
		fail(api.InvalidArgument, "Xebec-Queries: expected 1")
		return
	}
	schema := wire.NewSchema(Text().Inputs)
	body, err := io.ReadAll(r.Body)
	var block wire.Reader
	if err == nil {
		err = schema.Open(&block, body, n)
	}
	if err != nil {
		fail(api.InvalidArgument, err.Error())
		return
	}
	text, _, _ := block.Item(0, 0, nil) // Open has checked it
	c.heads <- r.Header.Get("Xebec-For")
	if c.before != nil {
		c.before()
	}
	switch string(text) {
	case "refuse":
		fail(api.InvalidInput, "not this one")
	case "break":
		panic(http.ErrAbortHandler)
	default:
		out := answer(strings.ToUpper(string(text)))
		data := make([]byte, schema.Size(out))
		if _, err := schema.Write(data, out); err != nil {
			panic(err) // it is one text
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data) // the worker may have ended
	}
}

// answer is a batch of one output.
type answer string

func (answer) Len() int                 { return 1 }
func (a answer) At(_, _ int) *api.Value { return &api.Value{Data: []byte(a)} }

// A call has the values of its query, large ones too, and says which query that is.
func testCallValues(t *testing.T, su *suite) {
	c := &callees{}
	r := su.calling(t, c)
	long := strings.Repeat("x", 2_000_000)
	for batch := uint64(1); batch <= 3; batch++ {
		b := r.Send(Texts("plain", "ask:up:one", "ask:up:"+long, "ask:up:")...)
		r.WantTexts(b, "plain", "ONE", strings.ToUpper(long), "")
		for i := 1; i < 4; i++ {
			if got, want := <-c.heads, fmt.Sprintf("%d.%d", batch, i); got != want {
				t.Errorf("a call for %q, expected %q", got, want)
			}
		}
	}
	if n := c.given.Load(); n != 1 {
		t.Errorf("%d lines for one call at a time: they are not kept", n)
	}
	r.stop()
}

// What a call ends with has a code and a text.
func testCallErrors(t *testing.T, su *suite) {
	r := su.calling(t, &callees{})
	b := r.Send(Texts("ask:up:refuse", "ask:none:x", "ask:up:fine")...)
	r.WantOK(b)
	for i, want := range []string{"invalid_input|not this one", "not_found|no function or model", "FINE"} {
		code, text, _ := strings.Cut(want, "|")
		if got := string(b.Queries[i].Outputs[0].Data); !strings.HasPrefix(got, code) || !strings.Contains(got, text) {
			t.Errorf("query %d: %q, expected %q", i, got, want)
		}
	}
	r.stop()
}

// A worker reads the signature again if its callee has another one now.
func testCallConflict(t *testing.T, su *suite) {
	c := &callees{}
	r := su.calling(t, c)
	for range 3 {
		r.WantTexts(r.Send(Texts("ask:up:a")...), "A")
		c.digest.Add(1)
	}
	r.stop()
}

// Calls of batches that are evaluated at once are under way at once.
func testCallsAtOnce(t *testing.T, su *suite) {
	var both sync.WaitGroup
	both.Add(2)
	c := &callees{before: func() {
		both.Done()
		both.Wait()
	}}
	r := su.calling(t, c, EnvConcurrency+"=2")
	one, two := r.Send(Texts("ask:up:one")...), r.Send(Texts("ask:up:two")...)
	r.WantTexts(two, "TWO")
	r.WantTexts(one, "ONE")
	r.stop()
}

// A line that the gateway closes in the middle of a call is an error of that call, and the next one has another line.
func testLineBreaks(t *testing.T, su *suite) {
	c := &callees{}
	r := su.calling(t, c)
	b := r.Send(Texts("ask:up:break", "ask:up:next")...)
	r.WantOK(b)
	if got := string(b.Queries[0].Outputs[0].Data); !strings.HasPrefix(got, "unavailable|") {
		t.Errorf("%q", got)
	}
	if got := string(b.Queries[1].Outputs[0].Data); got != "NEXT" {
		t.Errorf("%q", got)
	}
	r.stop()
}

// A model that is declared to call nothing is told so, and goes on.
func testNoLines(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers), EnvFunctions+"=1")
	b := r.Send(Texts("ask:up:x", "fine")...)
	r.WantOK(b)
	if got := string(b.Queries[0].Outputs[0].Data); !strings.HasPrefix(got, "forbidden|") || !strings.Contains(got, "add calls: [up]") {
		t.Errorf("%q", got)
	}
	if got := string(b.Queries[1].Outputs[0].Data); got != "fine" {
		t.Errorf("%q", got)
	}
	r.stop()
}
