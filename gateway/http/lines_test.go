package http

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// asks is a dialect whose only route says who calls.
type asks struct{}

func (asks) Routes(*query.Path) []dialect.Route {
	return []dialect.Route{{Method: "GET", Path: "/who", Serve: func(x dialect.Exchange) {
		x.(dialect.Line).Identify(&api.Identity{RequestID: []byte("theirs")})
		x.Answer(&dialect.Answer{Status: 200, Body: []byte(x.(dialect.Line).Caller().Model() + " " + string(x.Header("X-Request-Id")))})
	}}}
}

func (asks) AppendError(dst []byte, e *api.Error) []byte { return append(dst, e.Message...) }

type modelNamed string

func (m modelNamed) Model() string                      { return string(m) }
func (modelNamed) May(string) bool                      { return true }
func (modelNamed) Origin(uint64, int, *api.Origin) bool { return false }
func (modelNamed) CalleeStarts(uint64, int, int64)      {}

func linePair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "line")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return conns[0], conns[1]
}

// Each line has its own caller. What cannot be served is closed, and reported as closed.
func TestLines(t *testing.T) {
	limits := DefaultLimits()
	limits.Connections = 2
	s, err := New(Config{Path: query.New(query.Config{Now: func() api.Nanos { return 1 }, MaxBatch: 8}), Limits: limits, Dialects: []dialect.Dialect{asks{}}})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	closed := make(chan string, 4)
	ends := map[string]net.Conn{}
	add := func(name string) error {
		ours, theirs := linePair(t)
		t.Cleanup(func() { _ = ours.Close() })
		ends[name] = ours
		_ = ours.SetDeadline(time.Now().Add(20 * time.Second))
		return s.AddLine(theirs, modelNamed(name), func() { closed <- name })
	}
	for _, name := range []string{"a", "b"} {
		if err := add(name); err != nil {
			t.Fatal(err)
		}
		if _, err := ends[name].Write([]byte("GET /who HTTP/1.1\r\nHost: x\r\nX-Request-Id: own\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4096)
		n, err := ends[name].Read(answer)
		if want := name + " theirs"; err != nil || n < len(want) || string(answer[n-len(want):n]) != want {
			t.Errorf("line %s is answered %q, %v", name, answer[:n], err)
		}
	}
	if err := add("c"); err == nil || <-closed != "c" {
		t.Errorf("a line too many: %v", err)
	}
	if _, err := ends["c"].Read(make([]byte, 1)); err == nil {
		t.Error("a line too many is open")
	}
	_ = ends["a"].Close()
	if name := <-closed; name != "a" {
		t.Errorf("%s was closed, expected a", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
		t.Error(err)
	}
	if name := <-closed; name != "b" {
		t.Errorf("%s was closed by the end, expected b", name)
	}
	if err := add("d"); !errors.Is(err, net.ErrClosed) || <-closed != "d" {
		t.Errorf("a line after the end: %v", err)
	}
}
