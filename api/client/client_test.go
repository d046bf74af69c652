package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake answers with its answers one after the other; the last one stays.
type fake struct {
	*Client
	mu      sync.Mutex
	answers []answer
	asked   []*http.Request
	bodies  []string
	pauses  []time.Duration
}

type answer struct {
	status int
	body   string
	after  string // Retry-After
	cut    bool   // the connection is closed instead, after the body
}

func newFake(t *testing.T, r Retry, answers ...answer) *fake {
	t.Helper()
	f := &fake{answers: answers}
	server := httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(server.Close)
	c, err := New(Config{Address: server.URL, Retry: r, Header: http.Header{"X-Tenant": {"a"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.pause = func(_ context.Context, d time.Duration) error { f.pauses = append(f.pauses, d); return nil }
	f.Client = c
	return f
}

// requests are those that were sent, and body is that of the last one.
func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fake) body() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bodies[len(f.bodies)-1]
}

// answer chooses the next answers.
func (f *fake) answer(next ...answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = next
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked, f.bodies = append(f.asked, r), append(f.bodies, string(body))
	a := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	f.mu.Unlock()
	if a.after != "" {
		w.Header().Set("Retry-After", a.after)
	}
	if r.Header.Get("Accept") == "application/jsonl" && a.status == 200 {
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header().Set("Xebec-Query-Id", "5")
	}
	if a.cut {
		if a.body == "" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)+100))
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func failed(status int, code string) answer {
	return answer{status: status, body: fmt.Sprintf(`{"error":"Query processing error","cause":"why","code":%q,"request_id":"r1"}`, code)}
}

var seven = answer{status: 200, body: `{"query_id":1,"output":7,"default":false,"confidence":1,"models":["m@1"]}`}

func TestOverloadedIsTriedAgainAfterRetryAfter(t *testing.T) {
	busy := failed(503, "overloaded")
	busy.after = "1"
	f := newFake(t, Retry{}, busy, seven)
	p, err := f.Predict(t.Context(), "f", 1, nil)
	var n int
	if err != nil || p.Decode(&n) != nil || n != 7 || p.Models[0] != "m@1" {
		t.Fatalf("%+v, %v", p, err)
	}
	if len(f.pauses) != 1 || f.pauses[0] < time.Second || f.pauses[0] > time.Second+50*time.Millisecond {
		t.Errorf("paused %v", f.pauses)
	}
	if f.requests()[1].Header.Get("X-Tenant") != "a" || f.requests()[1].Header.Get("Xebec-Slo-Ms") != "" || f.body() != `{"input":1}` {
		t.Errorf("sent %v %s", f.requests()[1].Header, f.body())
	}
}

func TestOtherErrorsAreNotTriedAgain(t *testing.T) {
	for status, code := range map[int]string{400: "invalid_argument", 404: "not_found", 502: "model_error", 503: "low_confidence", 504: "deadline_exceeded"} {
		f := newFake(t, Retry{}, failed(status, code))
		_, err := f.Predict(t.Context(), "f", 1, nil)
		var e *Error
		if !errors.As(err, &e) || e.Status != status || e.RequestID != "r1" || CodeOf(err) != code || err.Error() != code+": why (request r1)" || len(f.requests()) != 1 {
			t.Errorf("%s: %d requests, %v", code, len(f.requests()), err)
		}
	}
}

func TestBrokenConnections(t *testing.T) {
	cut := answer{cut: true}
	f := newFake(t, Retry{}, cut, seven)
	if _, err := f.Predict(t.Context(), "f", 1, nil); err != nil || len(f.requests()) != 2 {
		t.Errorf("%d requests: %v", len(f.requests()), err)
	}
	counted := answer{status: 200, body: `{"status":"counted"}`}
	f = newFake(t, Retry{}, cut, counted)
	if _, err := f.Feedback(t.Context(), "f", Feedback{Input: 1, Label: 2}); CodeOf(err) != ConnectionFailed || len(f.requests()) != 1 {
		t.Errorf("feedback by input, which may have been counted: %d requests, %v", len(f.requests()), err)
	}
	f = newFake(t, Retry{}, cut, counted)
	if r, err := f.Feedback(t.Context(), "f", Feedback{QueryID: 42, Label: 0}); err != nil || r.Status != "counted" || f.body() != `{"query_id":42,"label":0}` {
		t.Errorf("feedback by query: %+v, %v, %q", r, err, f.body())
	}
}

func TestTheBudgetEndsRetries(t *testing.T) {
	f := newFake(t, Retry{}, failed(503, "overloaded"))
	for range 50 {
		if _, err := f.Predict(t.Context(), "f", 1, nil); CodeOf(err) != "overloaded" {
			t.Fatal(err)
		}
	}
	if n := len(f.requests()); n <= 50 || n >= 60 {
		t.Errorf("50 calls made %d requests", n)
	}
	f.answer(seven)
	for range 100 {
		if _, err := f.Predict(t.Context(), "f", 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	f.answer(failed(503, "overloaded"), seven)
	if _, err := f.Predict(t.Context(), "f", 1, nil); err != nil {
		t.Errorf("after a hundred successes nothing is tried again: %v", err)
	}
}

// A context's deadline is the objective, less the way back, and no attempt begins after it.
func TestDeadlines(t *testing.T) {
	busy := failed(503, "overloaded")
	busy.after = "3600"
	f := newFake(t, Retry{}, busy)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, err := f.Predict(ctx, "f", 1, nil); CodeOf(err) != "overloaded" || len(f.pauses) != 0 {
		t.Errorf("%v, paused %v", err, f.pauses)
	}
	if ms, err := strconv.ParseFloat(f.requests()[0].Header.Get("Xebec-Slo-Ms"), 64); err != nil || ms <= 0 || ms > 600_000-20 {
		t.Errorf("the objective is %v: %v", ms, err)
	}
	for left, want := range map[time.Duration]float64{100 * time.Millisecond: 95, time.Second: 980, time.Hour: 600_000, -1: 0} {
		if got := objective(left); got > want || got < want-0.001 {
			t.Errorf("with %v left the objective is %v ms, want %v", left, got, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Predict(ended, "f", 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestProxiesAndNoGateway(t *testing.T) {
	f := newFake(t, Retry{}, answer{status: 502, body: "<html>"})
	if _, err := f.Predict(t.Context(), "f", 1, nil); CodeOf(err) != "bad_gateway" {
		t.Error(err)
	}
	f = newFake(t, Retry{}, answer{status: 200, body: "<html>"})
	if _, err := f.Predict(t.Context(), "f", 1, nil); err == nil || !strings.Contains(err.Error(), "not one of a gateway") {
		t.Error(err)
	}
	server := httptest.NewServer(nil)
	server.Close()
	c, err := New(Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	c.pause = func(context.Context, time.Duration) error { return nil }
	if _, err := c.Feedback(t.Context(), "f", Feedback{Input: 1}); CodeOf(err) != NotConnected {
		t.Error(err)
	}
}

func TestStreamsThatBreakOff(t *testing.T) {
	const line = `{"output":"w0"}` + "\n"
	for name, c := range map[string]struct {
		a    answer
		code string
	}{
		"stops": {answer{status: 200, body: line}, StreamBroken}, "is cut": {answer{status: 200, body: line, cut: true}, StreamBroken},
		"fails": {answer{status: 200, body: line + `{"error":"x","cause":"why","code":"model_error"}` + "\n"}, "model_error"},
	} {
		f := newFake(t, Retry{}, c.a)
		s, err := f.Stream(t.Context(), "f", "1", nil)
		if err != nil {
			t.Fatal(err)
		}
		var word string
		if !s.Next() || s.Decode(&word) != nil || word != "w0" || s.QueryID != 5 || s.Next() || s.Next() || CodeOf(s.Err()) != c.code {
			t.Errorf("a stream that %s: %q, %v", name, word, s.Err())
		}
	}
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"ftp://a", "http://", "http://a?b", "http://%"} {
		if _, err := New(Config{Address: bad}); err == nil {
			t.Errorf("address %q is taken", bad)
		}
	}
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "a/b", "..", "a b", "a?b", "A"} {
		if _, err := c.Predict(t.Context(), bad, 1, nil); err == nil || !strings.Contains(err.Error(), "function") {
			t.Errorf("function %q: %v", bad, err)
		}
	}
	if _, err := c.PredictRaw(t.Context(), "f", nil, &Call{Salt: "a"}); err == nil {
		t.Error("a raw request has a salt")
	}
	if _, err := c.Predict(t.Context(), "f", func() {}, nil); err == nil {
		t.Error("a function is an input")
	}
}

func TestBytes(t *testing.T) {
	var b Bytes
	if err := b.UnmarshalJSON([]byte(`{"b64":"AP8="}`)); err != nil || !slices.Equal(b, []byte{0, 255}) {
		t.Error(b, err)
	}
	if text, err := Bytes(nil).MarshalJSON(); err != nil || string(text) != `{"b64":""}` {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []string{`"AP8="`, `{}`, `{"b64":"?"}`} {
		if b.UnmarshalJSON([]byte(bad)) == nil {
			t.Errorf("%s is read", bad)
		}
	}
}
