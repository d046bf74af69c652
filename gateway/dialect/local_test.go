package dialect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain answers in plain text.
type plain struct{ routes func(p *query.Path) []Route }

func (d plain) Routes(p *query.Path) []Route { return d.routes(p) }

func (plain) AppendError(dst []byte, e *api.Error) []byte {
	return fmt.Appendf(dst, "%s: %s", e.Code, e.Message)
}

// echo is a call that answers with the output.
type echo struct {
	Call
	released chan struct{}
}

func (e *echo) Settled() api.Code {
	e.Answer.Reset(e.Code().HTTPStatus())
	e.Answer.ContentType = "text/plain"
	if e.Code() == api.OK {
		e.Answer.Body = append(e.Answer.Body, e.Query(0).Outputs[0].Data...)
	}
	return e.Code()
}

func (e *echo) Released() { e.released <- struct{}{} }

// echoes is a dialect that sends the body to the model of the route, without a copy.
func echoes(released chan struct{}) plain {
	return plain{func(p *query.Path) []Route {
		return []Route{{Method: "POST", Path: "/{model}/echo", Serve: func(x Exchange) {
			e := &echo{released: released}
			e.Init(p, e)
			e.Open()
			if err := e.AskModel(x.Param("model"), ""); err != nil {
				e.Drop()
				Fail(x, plain{}, err)
				return
			}
			if _, err := e.Next(); err != nil || !e.Borrow(x.Body()) {
				panic("the body cannot be borrowed")
			}
			x.Submit(&e.Call)
		}}}
	}}
}

func onePath(submit func(it *scheduler.Item), cancelled chan uint64) *query.Path {
	start := time.Now()
	p := query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }})
	m := query.NewModel(api.ModelID{Name: "m", Version: "1"}, querytest.Bytes, &querytest.Lane{Submit: submit, Cancelled: cancelled}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	p.Publish(&query.Table{Models: map[string]*query.Model{"m": m}})
	return p
}

// TestLocal: the caller gets a copy of the answer, after its body has been released.
func TestLocal(t *testing.T) {
	released := make(chan struct{}, 10)
	l := NewLocal(onePath(querytest.Echo, nil), echoes(released))
	a, err := l.Do(t.Context(), &Message{Method: "POST", Path: "/m/echo", Body: []byte("hello")})
	if err != nil || a.Status != 200 || string(a.Body) != "hello" || a.ContentType != "text/plain" {
		t.Errorf("answered %+v, %v", a, err)
	}
	<-released
	for path, want := range map[string]string{"/x/echo": `not_found: no model "x"`, "/m/echo/": "not_found: no route POST /m/echo/", "//echo": "not_found: no route POST //echo"} {
		if a, err := l.Do(t.Context(), &Message{Method: "POST", Path: path}); err != nil || a.Status != 404 || string(a.Body) != want {
			t.Errorf("%s: %d %s, want %s", path, a.Status, a.Body, want)
		}
	}
}

// TestLocalCallerThatLeaves: the query is cancelled, and the caller waits only for its body.
func TestLocalCallerThatLeaves(t *testing.T) {
	items, cancelled, released := make(chan *scheduler.Item, 1), make(chan uint64), make(chan struct{}, 10)
	p := onePath(func(it *scheduler.Item) { items <- it }, cancelled)
	l := NewLocal(p, echoes(released))
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := l.Do(ctx, &Message{Method: "POST", Path: "/m/echo", Body: []byte("hello")})
		left <- err
	}()
	it := <-items
	cancel()
	if id := <-cancelled; id != it.ID {
		t.Errorf("query %d was cancelled, want %d", id, it.ID)
	}
	select {
	case err := <-left:
		t.Fatalf("the caller left with %v while the query has its body", err)
	case <-released:
		t.Fatal("released while the scheduler has the query")
	default:
	}
	querytest.End(it, api.Cancelled)
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller left with %v", err)
	}
	if n := p.Open(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
}

// TestRoutes: a literal segment goes before a parameter, and parameters have what they matched.
func TestRoutes(t *testing.T) {
	var got string
	serve := func(name string) func(Exchange) {
		return func(x Exchange) {
			got = name
			for _, p := range []string{"a", "b"} {
				if v := x.Param(p); v != "" {
					got += " " + p + "=" + v
				}
			}
			x.Answer(&Answer{Status: 200})
		}
	}
	l := NewLocal(nil, plain{func(*query.Path) []Route {
		return []Route{{Method: "GET", Path: "/{a}/x", Serve: serve("param")}, {Method: "GET", Path: "/lit/x", Serve: serve("literal")}, {Method: "GET", Path: "/{a}/x/{b}", Serve: serve("two")}, {Method: "PUT", Path: "/lit/x", Serve: serve("put")}, {Method: "GET", Path: "/", Serve: serve("root")}}
	}})
	for path, want := range map[string]string{"/q/x": "param a=q", "/lit/x": "literal", "/q/x/r:s": "two a=q b=r:s", "/lit/y": "", "/q/x/": "", "/": "root"} {
		got = ""
		if _, err := l.Do(t.Context(), &Message{Method: "GET", Path: path}); err != nil || got != want {
			t.Errorf("%s goes to %q, want %q (%v)", path, got, want, err)
		}
	}
}

func TestCheckRoutes(t *testing.T) {
	f := func(Exchange) {}
	for _, c := range []struct {
		routes []Route
		want   string
	}{
		{[]Route{{Method: "GET", Path: "/a/{b}", Serve: f}, {Method: "POST", Path: "/a/{b}", Serve: f}, {Method: "GET", Path: "/a/b", Serve: f}}, ""},
		{[]Route{{Method: "GET", Path: "/a/{b}", Serve: f}, {Method: "GET", Path: "/a/{c}", Serve: f}}, "GET /a/{c} is there twice"},
		{[]Route{{Method: "", Path: "/a", Serve: f}}, "expected a method"},
		{[]Route{{Method: "GET", Path: "a", Serve: f}}, "begins with a slash"},
		{[]Route{{Method: "GET", Path: "/a", Serve: nil}}, "and a function"},
		{[]Route{{Method: "GET", Path: "/{a}:b", Serve: f}}, `the segment "{a}:b"`},
		{[]Route{{Method: "GET", Path: "/:a", Serve: f}}, `the segment ":a"`},
		{[]Route{{Method: "GET", Path: "/{}", Serve: f}}, `the segment "{}"`},
	} {
		if err := CheckRoutes(c.routes); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.routes, err, c.want)
		}
	}
}
