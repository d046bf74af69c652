package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two streams side by side against a server that is not a gateway: each sees its own answers, all that were due.
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
	process := exec.Command("cat") // its CPU time is read
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := process.Wait(); err != nil {
			t.Error(err)
		}
	}()
	data, err := parseData(make([]byte, rowBytes), make([]byte, answerBytes))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{data: data, gateway: &gateway{addr: s.Listener.Addr().String(), cmd: process, output: &tail{}}}
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

	// A server that is gone is an error that shows what it said last.
	s.Close()
	io.WriteString(b.gateway.output, "I am ill")
	if _, err := b.play(t.Context(), b.closed(1, 10*ms)); err == nil || !strings.Contains(err.Error(), "I am ill") {
		t.Errorf("got %v", err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	w := &tail{}
	for range 3 {
		if n, err := w.Write(make([]byte, tailBytes-1)); n != tailBytes-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	io.WriteString(w, "the end")
	if s := w.String(); len(s) != tailBytes || !strings.HasSuffix(s, "the end") {
		t.Errorf("%d bytes are kept, want %d with the end", len(s), tailBytes)
	}
}
