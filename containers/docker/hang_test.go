package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// hangingEngine is a fake engine without containers: their processes are not visible, as from another PID name space.
// When silent returns true it accepts requests and does not answer, like an engine that hangs.
type hangingEngine struct {
	host   string
	silent func(r *http.Request) bool // guarded by mu
	mu     sync.Mutex
	asked  map[string]int // number of requests by method and last path element
	end    chan struct{}
}

func newHangingEngine(t *testing.T) *hangingEngine {
	socket := filepath.Join(t.TempDir(), "e")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	m := &hangingEngine{host: "unix://" + socket, silent: func(*http.Request) bool { return false }, asked: map[string]int{}, end: make(chan struct{})}
	server := &http.Server{Handler: m}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(ln) }()
	t.Cleanup(func() { close(m.end); server.Close(); <-served })
	return m
}

func (m *hangingEngine) hang(when func(r *http.Request) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = when
}

func always(*http.Request) bool { return true }

func (m *hangingEngine) count(what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[what]
}

func (m *hangingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	m.mu.Lock()
	m.asked[what]++
	silent := m.silent(r)
	m.mu.Unlock()
	if silent || what == "POST wait" {
		select {
		case <-m.end:
		case <-r.Context().Done():
		}
		return
	}
	w.Header().Set("Api-Version", "1.44")
	w.Header().Set("Content-Type", "application/json")
	switch what {
	case "POST attach":
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
		<-m.end
		conn.Close()
	case "POST create":
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"Id":"c0ffee"}`)
	case "POST start", "DELETE c0ffee", "POST kill":
		w.WriteHeader(http.StatusNoContent)
	case "GET json":
		if strings.Contains(r.URL.Path, "/containers/c0ffee/") {
			_, _ = io.WriteString(w, `{"Id":"c0ffee","State":{"Running":true,"Pid":0}}`)
		} else if strings.Contains(r.URL.Path, "/containers/") {
			_, _ = io.WriteString(w, `[]`)
		} else {
			_, _ = io.WriteString(w, `{"Id":"sha256:1","Config":{"User":"1000"}}`)
		}
	}
}

// hangingLaunch returns a launch on the fake engine, and its log.
func hangingLaunch(t *testing.T) (containers.Launch, *collected) {
	log := &collected{}
	return containers.Launch{
		Replica: 1, Model: api.ModelID{Name: "m", Version: "1"}, Image: "x", Stderr: log, Env: []string{"XEBEC_SOCKET=" + listen(t, t.TempDir())},
	}, log
}

// If the engine does not answer and the process is not visible, nothing can be ended. Every caller gets an error with
// the engine's name, and none waits for ever.
func TestNothingIsSeenWhileEngineHangs(t *testing.T) {
	m := newHangingEngine(t)
	r, err := New(Config{Host: m.host, Owner: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := hangingLaunch(t)
	set, err := containers.NewSet(containers.Config{Model: l.Model, Runtime: r, Image: l.Image, Env: l.Env})
	if err != nil {
		t.Fatal(err)
	}
	if err := set.SetCount(1); err != nil {
		t.Fatal(err)
	}
	until(t, "the start of the replica", func() bool { return set.Status()[0].State == containers.Running })
	until(t, "the wait for its end", func() bool { return m.count("POST wait") == 1 })
	m.hang(always)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = set.Close(ctx)
	for _, part := range []string{"replica 1 of m@1", "send SIGKILL to the container", "the Docker engine at " + m.host + " does not answer: no answer within 2s"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error of the set's Close: %v, expected %q", err, part)
		}
	}
	if err == nil || strings.Contains(err.Error(), "kernel") {
		t.Errorf("error of the set's Close: %v, expected none of the kernel", err)
	}
	st := set.Status()[0]
	if said := fmt.Sprint(st.Lines); st.State != containers.Stopping || !strings.Contains(said, "send SIGKILL to the container") {
		t.Errorf("state %s, log %s", st.State, said)
	}
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "1 containers may still run") || !strings.Contains(err.Error(), m.host) {
		t.Errorf("error of the runtime's Close: %v", err)
	}
	if err := set.Close(t.Context()); err != nil { // the replica was given up
		t.Errorf("error of the set's second Close: %v", err)
	}
}

// An engine may hang in the middle of a launch. The replica's log says so, a cancelled launch returns, and its outcome
// is checked when the engine answers again.
func TestEngineHangsInALaunch(t *testing.T) {
	for _, at := range []string{"/_ping", "/images/x/json", "/containers/create", "/containers/c0ffee/start", "/containers/c0ffee/json"} {
		t.Run(strings.ReplaceAll(strings.Trim(at, "/_"), "/", " "), func(t *testing.T) {
			t.Parallel()
			m := newHangingEngine(t)
			reached := make(chan struct{})
			once := sync.OnceFunc(func() { close(reached) })
			hung := false
			m.hang(func(r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, at) {
					hung = true
					once()
				}
				return hung
			})
			r, err := New(Config{Host: m.host, Owner: t.Name()})
			if err != nil {
				t.Fatal(err)
			}
			l, log := hangingLaunch(t)
			ctx, giveUp := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() { _, err := r.Start(ctx, l); failed <- err }()
			<-reached
			until(t, "the log line about the wait", func() bool {
				return strings.Contains(log.String(), m.host+" does not answer: this replica has been waiting")
			})
			giveUp()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled launch: error %v, expected context.Canceled", err)
			}
			m.hang(func(*http.Request) bool { return false })
			looked := m.count("GET _ping") + m.count("HEAD _ping")
			if err := r.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if n := m.count("GET _ping") + m.count("HEAD _ping"); n == looked && at != "/images/x/json" {
				t.Error("the engine was not contacted to check the launch")
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
