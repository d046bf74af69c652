package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two streams run side by side against a server that is not a gateway. Each gets all of its own answers.
func TestPlayKeepsStreamsApart(t *testing.T) {
	var asked [2]atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || len(body) != rowBytes {
			t.Errorf("a body of %d bytes (%v), want %d", len(body), err, rowBytes)
		}
		switch r.URL.Path {
		case "/flood/predict":
			asked[0].Add(1)
			w.WriteHeader(503)
		case "/stuck/predict":
			asked[1].Add(1)
			io.WriteString(w, `{"output":-1,"default":true}`)
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	defer s.Close()
	// The child provides the CPU time and the last words.
	process, err := server.Start(t.Context(), server.Options{
		Name: "the gateway", Program: "/bin/sh", Args: []string{"-c", "echo I am ill; exec sleep 600"}, Ready: func() error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer process.Stop()
	for !strings.Contains(process.LastWords(), "I am ill") {
		runtime.Gosched()
	}
	data, err := parseData(make([]byte, rowBytes), make([]byte, answerBytes))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{data: data, gateway: &gateway.Gateway{Process: process, Addr: s.Listener.Addr().String()}}
	p, err := b.play(t.Context(), b.open(flood, 1000, 100*ms), b.open(stuck, 500, 200*ms))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []end{refused, defaulted} {
		h := p.streams[i]
		if n := len(h.trace); n == 0 || n != int(asked[i].Load()) || h.trace.count(want) != n {
			t.Errorf("%s: %d asked for, %d answers, %d as expected", h.function, asked[i].Load(), n, h.trace.count(want))
		}
		for _, a := range h.trace {
			if a.due < 0 || a.done < a.due || a.due > h.end+time.Second {
				t.Errorf("%s: due at %v, done at %v; it ended at %v", h.function, a.due, a.done, h.end)
			}
		}
		if l := h.load(); l.Others != 0 || l.Refused+l.Defaults != len(h.trace) {
			t.Errorf("%s: got %+v", h.function, l)
		}
	}
	if p.streams[0].seed == p.streams[1].seed {
		t.Error("two streams have the same arrivals")
	}

	// The error for a server that is gone shows its last output.
	s.Close()
	if _, err := b.play(t.Context(), b.closed(1, 10*ms)); err == nil || !strings.Contains(err.Error(), "I am ill") {
		t.Errorf("got %v", err)
	}
}
