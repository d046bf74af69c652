package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/forecast"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// runPlan runs one command line without a gateway. Its clock advances by a second at each look.
func runPlan(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	x := newConsole("")
	now := then
	x.now = func() time.Time { now = now.Add(time.Second); return now }
	return x.run(t.Context(), append([]string{"plan"}, args...)...)
}

// busyLog has 20 minutes of two queries per second to "digits", with a minute of 100 per second in the middle. Half of
// them were sampled. It has one query to "other" an hour earlier.
func busyLog(t *testing.T) string {
	return writeLog(t, func(l *inferlog.Log) {
		s := l.Function("digits", digitsIn, digitsOut, 0.5)
		rng := rand.New(rand.NewPCG(1, 1))
		id := uint64(0)
		for second := range 1200 {
			n := 1
			if second >= 600 && second < 660 {
				n = 50
			}
			for range n {
				id++
				r := loggedQuery(id, 1.5, 2)
				r.AtMicros = then.UnixMicro() + int64(second)*1e6 + rng.Int64N(1e6)
				s.Add(r)
			}
		}
		r := loggedQuery(1, 1.5, 2)
		r.AtMicros = then.Add(-time.Hour).UnixMicro()
		l.Function("other", digitsIn, digitsOut, 1).Add(r)
	})
}

func TestPlanFromLog(t *testing.T) {
	dir := busyLog(t)
	plan := func(args ...string) forecast.Plan {
		t.Helper()
		code, stdout, stderr := runPlan(t, append(args, "--log", dir, "--profile", "20ms", "--slo", "200ms", "-o", "json")...)
		if code != 0 {
			t.Fatalf("exit status %d: %s", code, stderr)
		}
		var p forecast.Plan
		d := json.NewDecoder(strings.NewReader(stdout))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan("--function", "digits")
	if x := p.Traffic; x.Shape != "recorded" || x.Seconds != 1200 || math.Abs(x.Peak-100) > 1 || math.Abs(x.Low-2) > 1e-9 {
		t.Errorf("the traffic of a log with a minute of 100 queries per second is %+v", x)
	}
	if n := p.Recommended.Replicas; n < 2 || n > 4 { // each query takes 20 ms
		t.Errorf("%d replicas for 100 queries per second of 20 ms each", n)
	}
	if want := 2.0*1140 + 100*60; math.Abs(float64(p.Day.Fixed.Queries)-want) > 0.05*want {
		t.Errorf("%d queries were played: expected about %g", p.Day.Fixed.Queries, want)
	}
	if scaled := plan("--function", "digits", "--scale", "3"); math.Abs(scaled.Traffic.Peak-300) > 3 || scaled.Recommended.Replicas <= p.Recommended.Replicas {
		t.Errorf("three times as many queries: %+v, %d replicas", scaled.Traffic, scaled.Recommended.Replicas)
	}
	if all := plan(); all.Traffic.Seconds != 4800 {
		t.Errorf("with the query of an hour before, the log spans %g s", all.Traffic.Seconds)
	}
	code, _, stderr := runPlan(t, "--log", dir, "--function", "missing", "--profile", "20ms", "--slo", "200ms")
	if code != 1 || !strings.Contains(stderr, "queries, but none of missing") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	empty := writeLog(t, func(l *inferlog.Log) {
		l.Function("digits", digitsIn, digitsOut, 1).Feedback(&inferlog.Feedback{ID: 1, Kind: inferlog.FeedbackLabel, Label: []byte("[1,2]")})
	})
	if code, _, stderr = runPlan(t, "--log", empty, "--profile", "20ms", "--slo", "200ms"); code != 1 || !strings.Contains(stderr, "the log has no queries") {
		t.Errorf("a log without queries: exit status %d: %s", code, stderr)
	}
}

// TestPlanProgress: stderr has the progress and the name of the picture, stdout only the answer.
func TestPlanProgress(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "day.svg")
	code, stdout, stderr := runPlan(t, "--rate", "200", "--profile", "5ms+0.5ms", "--slo", "100ms", "--over", "10m", "--svg", svg)
	if code != 0 || !strings.Contains(stderr, "simulating: 1 runs so far") || !strings.Contains(stderr, "the day is drawn in "+svg) {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	if !strings.HasPrefix(stdout, "A batch of n takes 5ms + 500µs × n; 99% of the queries within 100ms; 200 queries per second, steady.\n") || strings.Contains(stdout, "simulating") {
		t.Errorf("stdout:\n%s", stdout)
	}
	text, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); err == nil; {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) || !bytes.HasPrefix(text, []byte("<svg ")) {
		t.Errorf("the picture is not SVG: %v", err)
	}
	if code, _, stderr = runPlan(t, "--rate", "200", "--profile", "5ms", "--slo", "100ms", "--over", "1m", "--svg", filepath.Join(svg, "x")); code != 1 || !strings.Contains(stderr, "--svg: ") {
		t.Errorf("a picture that cannot be written: exit status %d: %s", code, stderr)
	}
}

// TestPlanBounds: flags override the model's bounds, which override the defaults.
func TestPlanBounds(t *testing.T) {
	given := func(flags ...string) func(string) bool {
		return func(flag string) bool { return slices.Contains(flags, flag) }
	}
	spec := api.ReplicaBounds{Min: 2, Max: 6, Idle: time.Minute, Window: 30 * time.Second, Delay: time.Second, Utilization: 0.5, Up: 4, Down: 3}
	q := &forecast.Question{}
	q.Bounds.Min, q.Bounds.IdleNanos = 1, 7
	if err := (&planOptions{changed: given("idle")}).bounds(q, &spec); err != nil {
		t.Fatal(err)
	}
	if b := q.Bounds; b.Min != 2 || b.Max != 6 || b.IdleNanos != 7 || b.WindowNanos != 30e9 || b.DelayNanos != 1e9 || b.Utilization != 0.5 || b.Up != 4 || b.Down != 3 {
		t.Errorf("the model's bounds and --idle are %+v", b)
	}
	q.Bounds.Min = 8
	if err := (&planOptions{changed: given("min")}).bounds(q, &spec); err != nil || q.Bounds.Min != 8 || q.Bounds.Max != 8 {
		t.Errorf("--min 8 with a model of at most 6: %+v, %v", q.Bounds, err)
	}
	q.Bounds.Max = 1
	if err := (&planOptions{changed: given("max")}).bounds(q, &spec); err == nil {
		t.Error("--max 1 with a model of at least 2 was accepted")
	}
	q = &forecast.Question{}
	q.Bounds.Min = 1
	spec.Min, spec.Max = 4, 4
	if err := (&planOptions{changed: given()}).bounds(q, &spec); err != nil || q.Bounds.Min != 1 || q.Bounds.Max != 0 {
		t.Errorf("the bounds of a model with a fixed number of replicas are %+v, %v", q.Bounds, err)
	}
}

// TestProfileHint: each reason for a missing profile comes with what to do.
func TestProfileHint(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{forecast.ErrTooFewBatches, "it has no profile yet; send it 16 queries or more"},
		{forecast.ErrSingleQueries, "is unknown; send several queries at a time"},
		{forecast.ErrNoBatchTimes, "batch times; if it is older than this program, upgrade it, or give the time of a batch, such as --profile"},
		{io.EOF, "EOF"},
	} {
		if err := profileHint(c.err, nil); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
