package http

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudwego/hertz/pkg/app"
	"golang.org/x/net/http2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// broken is a dialect whose handlers panic, as a parser would.
type broken struct{ native.Dialect }

type brokenCall struct{ dialect.Call }

func (*brokenCall) Settled() api.Code { return api.OK }
func (*brokenCall) Released()         {}

func (broken) Routes(p *query.Path) []dialect.Route {
	return []dialect.Route{{Method: "POST", Path: "/{function}/broken", Serve: func(x dialect.Exchange) {
		c := new(brokenCall)
		c.Init(p, c)
		c.Open()
		defer c.Request.Abandon()
		if err := c.AskFunction(x.Param("function")); err != nil {
			c.Drop()
			dialect.Fail(x, broken{}, err)
			return
		}
		panic("a defect")
	}}}
}

func brokenLane(*scheduler.Item) { panic("a defect") }

// A handler that panics, before it has submitted its queries or while it does, ends its request and its connection: with 500 in the dialect's
// format, counted and reported with the stack. The stop does not wait for the request, and nothing of its body is left.
func TestAHandlerThatPanics(t *testing.T) {
	for _, c := range []struct {
		what, path, kind, body string
		reply                  ReplyMode
		stack                  string
	}{
		{"parsing", "/f/broken", "text/plain", "x", ReplyAsync, "broken.Routes"},
		{"submitting", "/f/predict", "text/plain", "x", ReplyAsync, "brokenLane"},
		{"submitting, waiting", "/f/predict", "text/plain", "x", ReplyWait, "brokenLane"},
		{"submitting a large body", "/f/predict", "application/octet-stream", strings.Repeat("x", 1<<20), ReplyAsync, "brokenLane"},
		{"submitting a large body, waiting", "/f/predict", "application/octet-stream", strings.Repeat("x", 1<<20), ReplyWait, "brokenLane"},
	} {
		t.Run(c.what, func(t *testing.T) {
			panics := make(chan Panic, 1)
			f := serve(t, querytest.Bytes, brokenLane, func(f *fixture) {
				f.reply, f.dialects, f.panicked = c.reply, []dialect.Dialect{broken{}}, func(p Panic) { panics <- p }
			})
			nc, r := f.raw()
			defer nc.Close()
			if _, err := io.WriteString(nc, request(c.path, c.body, "Content-Type: "+c.kind+"\r\nX-Request-Id: r1\r\n")); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if m := decode(t, string(body)); resp.StatusCode != 500 || m["code"] != "internal" || m["request_id"] != "r1" || !resp.Close {
				t.Errorf("answered %d %v %s", resp.StatusCode, resp.Header, body)
			}
			if id, by := resp.Header.Get("X-Request-Id"), resp.Header.Get("Server"); id != "r1" || by != "xebec" {
				t.Errorf("the answer to r1 has X-Request-Id %q and Server %q", id, by)
			}
			if _, err := r.ReadByte(); err != io.EOF {
				t.Errorf("after the answer the connection has %v, want its end", err)
			}
			p := <-panics
			if p.Value != "a defect" || p.Method != "POST" || p.Path != c.path || p.RequestID != "r1" || !strings.Contains(string(p.Stack), c.stack) {
				t.Errorf("reported: %v of %s %s %s with\n%s", p.Value, p.Method, p.Path, p.RequestID, p.Stack)
			}
			if counted := f.fn.Stats.Read().Codes[api.Internal]; counted != 1 {
				t.Errorf("%d requests are counted as internal errors", counted)
			}
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			if err := f.p.Drain(ended); err != nil {
				t.Errorf("after the answer: %v", err)
			}
			if err := f.p.Quiesce(t.Context()); err != nil {
				t.Errorf("after the answer: %v", err)
			}
			f.wait(func(n int) bool { return n == 0 })
			if used := f.s.cfg.Bodies.Used(); used != 0 {
				t.Errorf("%d bytes are reserved when no request is open", used)
			}
		})
	}
}

// An answer that waits to be written is not lost when the handler of the next request of its connection panics.
func TestAPanicBehindAPendingAnswer(t *testing.T) {
	submitted := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { submitted <- it }, func(f *fixture) { f.dialects = []dialect.Dialect{broken{}} })
	nc, r := f.raw()
	defer nc.Close()
	if _, err := io.WriteString(nc, request("/f/predict", "x", "Content-Type: text/plain\r\n")+request("/f/broken", "x", "Content-Type: text/plain\r\n")); err != nil {
		t.Fatal(err)
	}
	querytest.End(<-submitted, api.OK, []byte("y"))
	for _, want := range []int{200, 500} {
		if status, body := readAnswer(t, r); status != want {
			t.Errorf("answered %d %s, want %d", status, body, want)
		}
	}
}

// On a port with routes of Hertz an answer that a handler has begun to stream is cut off, and any other becomes 500.
func TestAHandlerOfHertzThatPanics(t *testing.T) {
	for _, streams := range []bool{false, true} {
		c := app.NewContext(0)
		c.Request.SetRequestURI("/v1/x")
		c.Request.Header.Set("X-Request-Id", "r1")
		var reported []Panic
		refused := 0
		c.SetHandlers(app.HandlersChain{
			Middleware(1<<10, nil, func(c *app.RequestContext, e *api.Error, status int) { refused++; c.String(status, e.Message) }, func(p Panic) { reported = append(reported, p) }),
			func(_ context.Context, c *app.RequestContext) {
				c.Response.Header.Set("ETag", "1")
				if streams {
					c.Response.HijackWriter(begun{})
				}
				panic("a defect")
			},
			func(context.Context, *app.RequestContext) { t.Error("the next handler was called") },
		})
		c.Next(t.Context())
		if len(reported) != 1 || !c.Response.ConnectionClose() {
			t.Errorf("streams %v: reported %d times, closing: %v", streams, len(reported), c.Response.ConnectionClose())
		}
		if streams {
			if refused != 0 || c.Response.GetHijackWriter().Finalize() == nil {
				t.Errorf("an answer that had begun was completed, or refused %d times", refused)
			}
			continue
		}
		if status, id := c.Response.StatusCode(), c.Response.Header.Get("X-Request-Id"); refused != 1 || status != 500 || id != "r1" || c.Response.Header.Get("ETag") != "" {
			t.Errorf("answered %d with X-Request-Id %q and ETag %q", status, id, c.Response.Header.Get("ETag"))
		}
	}
}

// begun is an answer whose header has been sent.
type begun struct{}

func (begun) Write(p []byte) (int, error) { return len(p), nil }
func (begun) Flush() error                { return nil }
func (begun) Finalize() error             { return nil }

// Over HTTP/2 a handler that panics costs its stream only.
func TestAHandlerThatPanicsOverHTTP2(t *testing.T) {
	secure, trust := withTLS()
	panics := make(chan Panic, 1)
	f := serve(t, querytest.Bytes, querytest.Echo, secure, func(f *fixture) {
		f.dialects, f.panicked = []dialect.Dialect{broken{}}, func(p Panic) { panics <- p }
	})
	transport := &http2.Transport{TLSClientConfig: trust}
	defer transport.CloseIdleConnections()
	for path, want := range map[string]int{"/f/broken": 500, "/f/predict": 200} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+f.addr+path, strings.NewReader("abc"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s is answered %d, want %d", path, resp.StatusCode, want)
		}
	}
	if p := <-panics; p.Path != "/f/broken" {
		t.Errorf("reported: %v of %s", p.Value, p.Path)
	}
}
