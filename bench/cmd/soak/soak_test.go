package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

// TestTrend: a leak is found in noise, noise alone and a warm-up are not taken for one, and a short curve is not judged.
func TestTrend(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	curve := func(n int, f func(x float64) float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = 100 + f(float64(i)/float64(n)) + 4*random.NormFloat64()
		}
		return out
	}
	for _, c := range []struct {
		name  string
		curve []float64
		grows bool
	}{
		{"noise", curve(600, func(float64) float64 { return 0 }), false},
		{"leak", curve(600, func(x float64) float64 { return 12 * x }), true},
		{"warm-up", curve(600, func(x float64) float64 { return -60 * max(0, 0.1-x) / 0.1 }), false},
		{"falls", curve(600, func(x float64) float64 { return -12 * x }), false},
		{"too short", curve(20, func(x float64) float64 { return 500 * x }), false},
		{"zeros", make([]float64, 600), false},
		{"none", nil, false},
	} {
		if got := trend(c.curve); got.Grows() != c.grows {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	got, ok := parseStat(7, "7 (a ) Z (b) S 1 7 7 0\n")
	if want := (process{pid: 7, parent: 1, name: "a ) Z (b", state: 'S'}); !ok || got != want {
		t.Errorf("%+v, %v: expected %+v", got, ok, want)
	}
	for _, text := range []string{"", "7", "7 (", ")(", "7 (a)", "7 (a) S x"} {
		if p, ok := parseStat(7, text); ok {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

func TestBelow(t *testing.T) {
	all := []process{{pid: 5, parent: 4}, {pid: 2, parent: 1}, {pid: 4, parent: 2}, {pid: 3, parent: 1}}
	var got []int
	for _, p := range below(all, 2) {
		got = append(got, p.pid)
	}
	if diff := cmp.Diff([]int{4, 5}, got); diff != "" {
		t.Error(diff)
	}
}

// TestReport: what must not happen is an error and stands in the report.
func TestReport(t *testing.T) {
	r := &Report{Seconds: 60, tally: newTally(), Lives: []Life{{}}}
	for i := range 60 {
		r.Lives[0].Samples = append(r.Lives[0].Samples, Sample{Seconds: float64(i), Descriptors: 50, Goroutines: 50 + float64(i), Zombies: 1})
	}
	r.tally.answered("echo", 200, "")
	r.tally.wrong("echo", "sent a, got b")
	r.tally.broken("echo", syscall.ECONNREFUSED, false) // it starts again
	r.tally.broken("echo", errors.New("reset"), true)
	r.tally.broken("echo", errors.New("reset"), false)
	r.tally.broken("echo", errDouble, false)
	r.tally.broken(attackName, errors.New("reset"), true)
	r.tally.operation("deploy", errors.New("refused: {a|b}\n"))
	r.tally.attacked("silence")
	r.finish()
	err := r.Failed()
	for _, want := range []string{"2 wrong answers, 1 requests without an answer", "sent a, got b", "goroutines grew", "zombies stayed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	}
	resultstest.Contains(t, r.Markdown(), " 4 requests by careful clients, 1 of them", "| echo | 0 connection broke: 3, 200: 1 |", "| deploy | 1 | 1 | refused: {a\\|b} |", "| silence | 1 |")
	figures, err := r.Figures()
	if err != nil || len(figures) != 1 {
		t.Errorf("%d figures, error %v", len(figures), err)
	}
}

// TestLingering: a dead process that is reaped within seconds is no fault.
func TestLingering(t *testing.T) {
	if lingering([]Sample{{Zombies: 1}}) || lingering([]Sample{{Zombies: 1}, {}, {Zombies: 1}, {Zombies: 1}, {Zombies: 1}, {Zombies: 1}}[:5]) {
		t.Error("a moment counts")
	}
	if !lingering([]Sample{{}, {Zombies: 1}, {Zombies: 1}, {Zombies: 2}, {Zombies: 1}, {Zombies: 1}}) {
		t.Error("five seconds do not count")
	}
}

// TestAttacksEnd: each attack returns although the server reads nothing and answers nothing.
func TestAttacksEnd(t *testing.T) {
	addr := silentServer(t)
	for i := range attacks {
		if status, err := attacks[i].run(addr, 10*time.Millisecond); status != "" || err != nil {
			t.Errorf("%s: status %q, error %v", attacks[i].name, status, err)
		}
	}
}

// TestWrongAnswer: a client notices another output, a default, and a second answer.
func TestWrongAnswer(t *testing.T) {
	for _, c := range []struct{ name, answer string }{
		{"another output", "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"output\":\"QUFB\"}"},
		{"no JSON", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"a status", "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}"},
		{"two answers", "HTTP/1.1 503 Oh\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 503 Oh\r\nContent-Length: 2\r\n\r\n{}"},
	} {
		w, tally := worldOf(scriptedServer(t, c.answer)), newTally()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.ask(tally, 1, "echo", 16, time.Millisecond)(ctx)
		}()
		poll := time.NewTicker(time.Millisecond)
		for wrong := 0; wrong == 0; <-poll.C { // go test's own limit ends it
			tally.mu.Lock()
			wrong = tally.r.Wrong
			tally.mu.Unlock()
		}
		poll.Stop()
		cancel()
		<-done
	}
}

func worldOf(addr string) *world {
	return &world{gateway: &gateway.Gateway{Addr: addr, Admin: addr}}
}

// silentServer accepts connections and does nothing with them.
func silentServer(t *testing.T) string {
	return listen(t, func(net.Conn) {})
}

// scriptedServer gives the same answer to the first request of each connection.
func scriptedServer(t *testing.T, answer string) string {
	return listen(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, answer) // the client notices
		}
		c.Close()
	})
}

func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go serve(c)
		}
	})
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	return ln.Addr().String()
}
