package main

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/runtimes"
)

func waiting(g *fakeGateway) *console {
	x := newConsole("")
	x.admin, x.http, x.now = g.URL, g.Client(), time.Now
	return x
}

func created(name string) []api.Change {
	return []api.Change{{Kind: api.KindModel, Name: name, Version: "1", Action: api.Created}}
}

// A command is silent for a second, and then reports each state once.
func TestProgress(t *testing.T) {
	x := newConsole("")
	at := then
	x.now = func() time.Time { return at }
	p := progress{c: x.cli, began: then}
	for _, step := range []struct {
		after time.Duration
		state string
	}{{0, "starting"}, {999 * time.Millisecond, "starting"}, {time.Second, "starting"}, {2 * time.Second, "starting"}, {3 * time.Second, "ready"}} {
		at = then.Add(step.after)
		p.report(step.state)
	}
	if diff := cmp.Diff("starting (after 1s)\nready (after 3s)\n", x.stderr.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWaitUntilReady(t *testing.T) {
	g := newFakeGateway(t)
	if err := waiting(g).waitFor(t.Context(), created("slow"), waitOptions{wait: true, timeout: time.Minute}); err != nil {
		t.Error(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.polls != 3 {
		t.Errorf("the gateway was polled %d times, want 3", g.polls)
	}
}

func TestWaitGivesUp(t *testing.T) {
	g := newFakeGateway(t)
	err := waiting(g).waitFor(t.Context(), created("never"), waitOptions{wait: true, timeout: 10 * time.Millisecond})
	if want := "model never@1 is not ready after 10ms (--timeout)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

func TestWaitIsInterrupted(t *testing.T) {
	g := newFakeGateway(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := waiting(g).waitFor(ctx, created("never"), waitOptions{wait: true, timeout: time.Minute})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// Without a version, the one that serves is waited for. While none does, it is not one that has failed if an older one takes its place.
func TestTheVersionThatIsWaitedFor(t *testing.T) {
	version := func(version string, phase api.VersionPhase, state api.ModelState, aspired, serving bool) api.ModelStatus {
		m := svm(version)
		m.State, m.Serving, m.Version = state, serving, api.VersionStatus{Phase: phase, Aspired: aspired}
		return m
	}
	serving := version("1", api.PhaseAvailable, api.ModelReady, true, true)
	old := version("1", api.PhaseDeclared, api.ModelIdle, false, false)
	loading := version("2", api.PhaseLoading, api.ModelStarting, true, false)
	failed := version("3", api.PhaseLoading, api.ModelFailed, true, false)
	rejected := version("4", api.PhaseRejected, api.ModelIdle, true, false)
	for _, c := range []struct {
		name   string
		models []api.ModelStatus
		want   string
	}{
		{"the one that serves", []api.ModelStatus{serving, loading, failed}, "1"},
		{"one that takes the place of one that failed", []api.ModelStatus{old, loading, failed}, "2"},
		{"of one that was rejected", []api.ModelStatus{loading, failed, rejected}, "2"},
		{"none that will serve: the newest", []api.ModelStatus{old, failed}, "3"},
	} {
		if got := awaited(c.models); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{"1": 1, "64KiB": 64 << 10, "64MiB": 64 << 20, "1GiB": 1 << 30} {
		if got, err := parseBytes(s, 1, math.MaxInt32); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "0", "-1", "x", "1kB", "64 MiB", "2GiB", "9223372036854775807GiB", "MiB"} {
		if got, err := parseBytes(s, 1, math.MaxInt32); err == nil {
			t.Errorf("%q: got %d, want an error", s, got)
		}
	}
}

func TestAge(t *testing.T) {
	c := newConsole("")
	c.now = func() time.Time { return then }
	for ago, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", 90 * time.Minute: "1h30m", 47 * time.Hour: "47h0m", 72 * time.Hour: "3d",
	} {
		if got := c.age(then.Add(-ago)); got != want {
			t.Errorf("%s: got %q, want %q", ago, got, want)
		}
	}
	if got := c.age(time.Time{}); got != "-" {
		t.Errorf("the zero time: got %q, want -", got)
	}
}

// What the installer of an environment says is printed once: the replica's output, the gateway's line about it, and the reason have it.
func TestAnInstallersErrorIsPrintedOnce(t *testing.T) {
	const said = "ERROR: No matching distribution found for numpie==1"
	reason := "it could not be started: the environment cannot be built: pip exited with code 1:\n" + said
	m := &api.ModelStatus{
		Spec: api.ModelSpec{Name: "m", Version: "1"}, Replicas: []api.ReplicaStatus{{LastExit: reason}},
		Logs: []api.LogLine{
			{Stream: "stderr", Text: "environment: building 12, once for these requirements"}, {Stream: "stderr", Text: "environment: " + said}, {Stream: "stderr", Text: "of the model"},
			{Stream: "gateway", Text: "replica 1 of m@1: " + reason + "; next attempt in 19s"},
		},
	}
	x := newConsole("")
	err := x.failure(m)
	text := x.stderr.String() + err.Error()
	if strings.Count(text, said) != 1 || !strings.Contains(text, "of the model") || !strings.Contains(text, "building 12") {
		t.Errorf("it prints\n%s", text)
	}
}

// The same holds for a file that is deployed: lines that were shown while its model was loaded, and those that the reason quotes, are not
// printed again.
func TestAnInspectionsErrorIsPrintedOnce(t *testing.T) {
	const quoted, early, late = "ERROR: No matching distribution found for numpie==1", "environment: building 12", "environment: Resolved 5 packages"
	x := newConsole("")
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, text := range []string{early, "environment: " + quoted, late} {
			answer(w, api.LogLine{Stream: "stderr", Text: text})
		}
		answer(w, api.ErrorBody{Error: api.ErrorInfo{Code: "internal", Message: "pip exited with code 1:\n" + quoted}})
	}))
	defer gateway.Close()
	x.admin, x.http = gateway.URL, gateway.Client()
	times := 0
	x.now = func() time.Time { times++; return then.Add(time.Duration(times) * 400 * time.Millisecond) } // the third line comes after a second
	_, err := x.inspect(t.Context(), &dropped{path: "m.onnx", found: &runtimes.Found{}, dir: t.TempDir(), file: "m.onnx"}, io.Discard)
	if err == nil {
		t.Fatal("a model that cannot be loaded was described")
	}
	text := x.stderr.String() + err.Error()
	for _, line := range []string{quoted, early, late} {
		if strings.Count(text, line) != 1 {
			t.Errorf("it prints %q %d times:\n%s", line, strings.Count(text, line), text)
		}
	}
}
