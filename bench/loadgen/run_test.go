package loadgen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a net/http server and returns its address for Options.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func post(addr, body string) Request {
	return Request{Wire: Render(addr, "/noop/predict", "application/json", []byte(body))}
}

// allowedCPU returns a processor that this process may run on.
func allowedCPU(t *testing.T) int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := range 8 * len(set) * 8 {
		if set.IsSet(cpu) {
			return cpu
		}
	}
	t.Fatal("no CPU is allowed")
	return 0
}

// In a loop of fresh connections each request has its own, whether the server closes it or not.
func TestFreshConnections(t *testing.T) {
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	addr := s.Listener.Addr().String()
	closing := Request{Wire: Render(addr, "/", JSON, nil, "Connection: close"), Equals: []byte("ok")}
	r, err := Run(t.Context(), Options{Addr: addr, Requests: []Request{closing, {Wire: Render(addr, "/", JSON, nil), Equals: []byte("ok")}}, Connections: 16, Fresh: true, Rate: 200, Duration: 500 * time.Millisecond})
	if err != nil || r.Clean() != nil {
		t.Fatalf("%v, %v", err, r)
	}
	if n := connections.Load(); n == 0 || uint64(n) < r.Completed {
		t.Errorf("%d connections for %d requests", n, r.Completed)
	}
	s.Close()
	r, err = Run(t.Context(), Options{Addr: addr, Requests: []Request{closing}, Connections: 16, Fresh: true, Rate: 200, Duration: 200 * time.Millisecond})
	if err != nil || r.Failed() == 0 || len(r.Errors) != 1 {
		t.Errorf("without a server: %v, %+v", err, r)
	}
	if _, err := Run(t.Context(), Options{Addr: addr, Requests: []Request{closing}, Connections: 1, Fresh: true, Duration: time.Second}); err == nil {
		t.Error("a closed loop has fresh connections")
	}
}

func TestClosedLoopCountsAnswers(t *testing.T) {
	var served atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(len(body))) // Go's server would chunk a long one
		w.Write(body)
	})
	// One small request and one that exceeds every socket buffer.
	requests := []Request{post(addr, "small"), post(addr, strings.Repeat("large", 200_000))}
	requests[0].Equals, requests[1].Contains = []byte("small"), []byte("elarge")
	var hooks []string
	r, err := Run(t.Context(), Options{
		Addr: addr, Requests: requests, Connections: 5, Threads: 2, Duration: 200 * time.Millisecond, CPUs: []int{allowedCPU(t)},
		OnMeasure: func() { hooks = append(hooks, "measure") }, OnEnd: func() { hooks = append(hooks, "end") },
	})
	if err != nil {
		t.Fatal(err)
	}
	// Each connection sends at least once, even on a slow machine. Without warm-up that counts.
	if n := r.Status[200]; n < 5 || n > uint64(served.Load()) || len(r.Status) != 1 || r.Wrong+r.Defaults+r.Unanswered != 0 || len(r.Errors) > 0 {
		t.Errorf("%d served: got %+v", served.Load(), r)
	}
	if r.Mode != "closed" || r.SendDelay != nil || r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P99 {
		t.Errorf("got %+v", r)
	}
	if strings.Join(hooks, " ") != "measure end" {
		t.Errorf("hooks: %q", hooks)
	}
}

// An open loop sends exactly what its schedule says, for any number of connections.
func TestOpenLoopSendsWhatIsDue(t *testing.T) {
	const rate, warmup, duration = 3000, 50 * time.Millisecond, 200 * time.Millisecond
	for _, arrivals := range []Arrivals{Poisson, Constant} {
		var served atomic.Int64
		addr := serve(t, func(http.ResponseWriter, *http.Request) { served.Add(1) })
		r, err := Run(t.Context(), Options{
			Addr: addr, Requests: []Request{post(addr, "x")}, Connections: 3, Threads: 2, Rate: rate, Arrivals: arrivals, Seed: 5,
			Warmup: warmup, Duration: duration,
		})
		if err != nil {
			t.Fatal(err)
		}
		var due, measured int64
		for part := range 2 {
			for s := mustSchedule(t, rate, arrivals, 5, part, 2); s.Due() < int64(warmup+duration); {
				due++
				if s.Next() >= int64(warmup) {
					measured++
				}
			}
		}
		if served.Load() != due || r.Status[200] != uint64(measured) || r.Clean() != nil || r.SendDelay == nil {
			t.Errorf("%s: %d served, %d counted, want %d and %d; %v", arrivals, served.Load(), r.Status[200], due, measured, r.Clean())
		}
	}
}

// The latency of a request includes its wait for a free connection, which avoids coordinated omission.
func TestLatencyCountsFromDue(t *testing.T) {
	l := &loop{opts: &Options{Requests: []Request{{Wire: []byte("x")}}}, measure: 0, end: 1e9, latency: newHistogram()}
	c := &conn{due: 1e6, in: make([]byte, 10), resp: response{status: 200, headerBytes: 5, bodyBytes: 5}}
	l.judge(c, 8e6)
	if got := distribution(l.latency); got.P50 < 6990 || got.P50 > 7010 {
		t.Errorf("sent late and answered 7 ms after it was due: got %v µs", got.P50)
	}
	// Requests that were due in the warm-up are not counted, even if the answer comes later.
	l.measure, c.due = 5e6, 4e6
	l.judge(c, 9e6)
	if l.latency.TotalCount() != 1 || l.completed != 2 {
		t.Errorf("%d latencies, %d completed, want 1 and 2", l.latency.TotalCount(), l.completed)
	}
}

func TestAnswersAreJudged(t *testing.T) {
	var n atomic.Int64
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			fmt.Fprint(w, `{"output":0,"default":false}`)
		case 1:
			fmt.Fprint(w, `{"output":-1,"default":true}`)
		case 2:
			fmt.Fprint(w, `{"output":7,"default":false}`)
		case 3:
			w.WriteHeader(503)
		}
	})
	request := post(addr, "x")
	request.Contains = []byte(`"output":0`)
	began := time.Now()
	shown := map[string]int{}
	r, err := Run(t.Context(), Options{
		Addr: addr, Requests: []Request{request}, Connections: 1, Rate: 1000, Arrivals: Constant, Warmup: 100 * time.Millisecond, Duration: 100 * time.Millisecond,
		OnAnswer: func(a Answered) {
			shown[fmt.Sprintf("%d default %v wrong %v", a.Status, a.Default, a.Wrong)]++
			if a.Due.Before(began) || a.Done.Before(a.Due) || a.Done.After(time.Now()) {
				t.Errorf("due at %v, answered at %v: expected times of this run, in this order", a.Due, a.Done)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The hook also gets the answers of the warm-up.
	want := map[string]int{"200 default false wrong false": 50, "200 default true wrong false": 50, "200 default false wrong true": 50, "503 default false wrong false": 50}
	if !maps.Equal(shown, want) {
		t.Errorf("the hook saw %v: expected %v", shown, want)
	}
	if r.Status[200] != 75 || r.Status[503] != 25 || r.Defaults != 25 || r.Wrong != 25 || r.FirstWrong != `{"output":7,"default":false}` {
		t.Errorf("got %+v", r)
	}
	if err := r.Clean(); err == nil || !strings.Contains(err.Error(), "25 answers of status 503") {
		t.Errorf("got %v", err)
	}
}

// raw answers each connection's requests with fixed bytes, then closes it.
func raw(t *testing.T, perConnection int, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for range perConnection {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, req.Body)
					io.WriteString(c, answer)
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// The generator reopens connections that the server closes. A request that was outstanding on one counts as an error.
func TestClosedConnections(t *testing.T) {
	const fine = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
	for _, c := range []struct {
		name, answer string
		want         string // part of the only kind of error; "" for none
	}{
		{"announced", strings.Replace(fine, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1), ""},
		{"in the middle of an answer", fine[:len(fine)-1], "closed the connection"},
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "expected a response that starts with HTTP/1.1"},
		{"too much", fine + "y", "bytes without a request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := raw(t, 1, c.answer)
			r, err := Run(t.Context(), Options{Addr: addr, Requests: []Request{post(addr, "x")}, Connections: 4, Threads: 2, Rate: 500, Arrivals: Constant, Duration: 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			failed := uint64(0)
			for why, n := range r.Errors {
				if c.want == "" || !strings.Contains(why, c.want) && !strings.Contains(why, "reset") {
					t.Errorf("%d × %s", n, why)
				}
				failed += n
			}
			if total := failed + r.Status[200]; total != 50 || (c.want == "") != (failed == 0) {
				t.Errorf("%d errors and %d answers, want 50 together; %v", failed, r.Status[200], r.Errors)
			}
		})
	}
}

func TestAServerThatClosesEverythingEndsTheRun(t *testing.T) {
	addr := raw(t, 0, "")
	_, err := Run(t.Context(), Options{Addr: addr, Requests: []Request{post(addr, "x")}, Connections: 1, Duration: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "closed more than") {
		t.Errorf("got %v", err)
	}
}

func TestCancelledRunEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	block := make(chan struct{})
	defer close(block)
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		select {
		case <-block:
		case <-r.Context().Done():
		}
	})
	_, err := Run(ctx, Options{Addr: addr, Requests: []Request{post(addr, "x")}, Connections: 2, Threads: 2, Duration: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	_, err := Run(t.Context(), Options{Addr: "here", Threads: 3, Rate: -1})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{`address "here"`, "no requests", "0 connections", "3 threads", "duration", "rate -1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	if _, err := Run(t.Context(), Options{Addr: "localhost:80", Requests: []Request{{Wire: []byte("x")}}, Connections: 1, Duration: 1}); err == nil || !strings.Contains(err.Error(), "IP address") {
		t.Errorf("a host name was accepted: %v", err)
	}
}

// A run that waits only for its grace period counts what has no answer then, and says of each answer whether it counts.
func TestGrace(t *testing.T) {
	release := make(chan struct{})
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		io.WriteString(w, "late")
	})
	defer close(release)
	r, err := Run(t.Context(), Options{Addr: addr, Requests: []Request{post(addr, "x")}, Connections: 2, Duration: 20 * time.Millisecond, Grace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if r.Unanswered != 2 || len(r.Status) != 0 {
		t.Errorf("%d unanswered and status %v: want 2 and none", r.Unanswered, r.Status)
	}
}

func TestAnswersOfTheWarmUpAreNotMeasured(t *testing.T) {
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	var warm, measured uint64
	r, err := Run(t.Context(), Options{
		Addr: addr, Requests: []Request{post(addr, "x")}, Connections: 1, Warmup: 50 * time.Millisecond, Duration: 50 * time.Millisecond,
		OnAnswer: func(a Answered) {
			if a.Measured {
				measured++
			} else {
				warm++
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if warm == 0 || measured == 0 || measured != r.Status[200] {
		t.Errorf("%d answers of the warm-up, %d measured; the result has %d", warm, measured, r.Status[200])
	}
}
