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
	"github.com/xebec-serving/xebec/gateway/cmd/xebec/capacity"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// runPlan runs one command line without a gateway, with a clock that goes on by a second at each look.
func runPlan(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	now := then
	c := &cli{in: strings.NewReader(""), out: &out, err: &errs, getenv: func(string) string { return "" }, now: func() time.Time { now = now.Add(time.Second); return now }}
	code = c.run(t.Context(), append([]string{"plan"}, args...))
	return code, out.String(), errs.String()
}

// busyLog has 20 minutes of two queries a second to "sum", with a minute of 100 a second in the middle, of which a half was sampled, and
// one query to "other" long before.
func busyLog(t *testing.T) string {
	return writeLog(t, func(l *inferlog.Log) {
		s := l.Function("sum", sumIn, sumOut, 0.5)
		rng := rand.New(rand.NewPCG(1, 1))
		id := uint64(0)
		for second := range 1200 {
			n := 1
			if second >= 600 && second < 660 {
				n = 50
			}
			for range n {
				id++
				r := sumQuery(id, 1)
				r.AtMicros = then.UnixMicro() + int64(second)*1e6 + rng.Int64N(1e6)
				s.Add(r)
			}
		}
		r := sumQuery(1, 1)
		r.AtMicros = then.Add(-time.Hour).UnixMicro()
		l.Function("other", sumIn, sumOut, 1).Add(r)
	})
}

func TestPlanFromLog(t *testing.T) {
	dir := busyLog(t)
	plan := func(args ...string) capacity.Plan {
		t.Helper()
		code, stdout, stderr := runPlan(t, append(args, "--log", dir, "--profile", "20ms", "--slo", "200ms", "-o", "json")...)
		if code != 0 {
			t.Fatalf("exit status %d: %s", code, stderr)
		}
		var p capacity.Plan
		d := json.NewDecoder(strings.NewReader(stdout))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan("--function", "sum")
	if x := p.Traffic; x.Shape != "recorded" || x.Seconds != 1200 || math.Abs(x.Peak-100) > 1 || math.Abs(x.Low-2) > 1e-9 {
		t.Errorf("of a log with a minute of 100 queries a second: %+v", x)
	}
	if n := p.Recommended.Replicas; n < 2 || n > 4 { // each query takes 20 ms
		t.Errorf("%d replicas for 100 queries a second that take 20 ms each", n)
	}
	if want := 2.0*1140 + 100*60; math.Abs(float64(p.Day.Fixed.Queries)-want) > 0.05*want {
		t.Errorf("%d queries were played: expected about %g", p.Day.Fixed.Queries, want)
	}
	if scaled := plan("--function", "sum", "--scale", "3"); math.Abs(scaled.Traffic.Peak-300) > 3 || scaled.Recommended.Replicas <= p.Recommended.Replicas {
		t.Errorf("three times as much: %+v, %d replicas", scaled.Traffic, scaled.Recommended.Replicas)
	}
	if all := plan(); all.Traffic.Seconds != 4800 {
		t.Errorf("with the query an hour before it spans %g s", all.Traffic.Seconds)
	}
	code, _, stderr := runPlan(t, "--log", dir, "--function", "nobody", "--profile", "20ms", "--slo", "200ms")
	if code != 1 || !strings.Contains(stderr, "queries, but none of nobody") {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	empty := writeLog(t, func(l *inferlog.Log) {
		l.Function("sum", sumIn, sumOut, 1).Feedback(label(1, "1"))
	})
	if code, _, stderr = runPlan(t, "--log", empty, "--profile", "20ms", "--slo", "200ms"); code != 1 || !strings.Contains(stderr, "the log has no queries") {
		t.Errorf("a log without queries: exit status %d: %s", code, stderr)
	}
}

// TestPlanSays: what takes longer than a second says so, and where the picture is; stdout has the answer and nothing else.
func TestPlanSays(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "day.svg")
	code, stdout, stderr := runPlan(t, "--rate", "200", "--profile", "5ms+0.5ms", "--slo", "100ms", "--over", "10m", "--svg", svg)
	if code != 0 || !strings.Contains(stderr, "simulating: 1 runs so far") || !strings.Contains(stderr, "the day is drawn in "+svg) {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	if !strings.HasPrefix(stdout, "A batch of n takes 5ms + 500µs × n; 99% of the queries within 100ms; 200 queries a second, steady.\n") || strings.Contains(stdout, "simulating") {
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
		t.Errorf("the picture is no SVG: %v", err)
	}
	if code, _, stderr = runPlan(t, "--rate", "200", "--profile", "5ms", "--slo", "100ms", "--over", "1m", "--svg", filepath.Join(svg, "x")); code != 1 || !strings.Contains(stderr, "--svg: ") {
		t.Errorf("a picture that cannot be written: exit status %d: %s", code, stderr)
	}
}

// TestPlanProfile: the mean over the replicas that have shown enough; where none has, what was known of those before.
func TestPlanProfile(t *testing.T) {
	replica := func(samples uint64, intercept, slope float64) api.ReplicaStatus {
		return api.ReplicaStatus{Profile: api.Profile{Samples: samples, InterceptMicros: intercept, SlopeMicros: slope}}
	}
	known := func(intercept, meanBatch float64) *api.KnownProfile {
		return &api.KnownProfile{InterceptMicros: intercept, SlopeMicros: 100, Batches: 40, MeanBatch: meanBatch}
	}
	for _, c := range []struct {
		name     string
		replicas []api.ReplicaStatus
		before   *api.KnownProfile
		want     capacity.Profile
		says     string
		notes    string
	}{
		{"two of three", []api.ReplicaStatus{replica(16, 1000, 100), replica(99, 3000, 200), replica(3, 1e6, 1e6)}, known(1, 1), capacity.Profile{FixedNanos: 2e6, EachNanos: 150e3}, "", ""},
		{"none", nil, nil, capacity.Profile{}, "has no profile yet: it takes 16 batches of one replica, and none is there now, or was known before; ask it 16 times or more", ""},
		{"too few", []api.ReplicaStatus{replica(15, 1000, 100)}, nil, capacity.Profile{}, "none has evaluated 15; ask it 16 times or more", ""},
		{"an old gateway", []api.ReplicaStatus{replica(100, 0, 0)}, nil, capacity.Profile{}, "of an older version", ""},
		{"only batches of one", []api.ReplicaStatus{replica(100, 700, 0)}, nil, capacity.Profile{FixedNanos: 700e3}, "all batches of model @ have had one query", ""},
		{"nonsense", []api.ReplicaStatus{replica(100, -5, 1)}, nil, capacity.Profile{}, "of an older version", ""},
		{"asleep", nil, known(1000, 3), capacity.Profile{FixedNanos: 1e6, EachNanos: 100e3}, "", "from 40 batches"},
		{"just woken", []api.ReplicaStatus{replica(3, 1e6, 1e6)}, known(1000, 3), capacity.Profile{FixedNanos: 1e6, EachNanos: 100e3}, "", "from 40 batches"},
		{"asleep after batches of one", nil, &api.KnownProfile{InterceptMicros: 700, Batches: 40, MeanBatch: 1}, capacity.Profile{FixedNanos: 700e3}, "all batches of model @ have had one query", ""},
		{"asleep, and nonsense", nil, known(-5, 3), capacity.Profile{}, "has no profile yet", ""},
	} {
		m := api.ModelStatus{Spec: api.ModelSpec{Batching: api.BatchingSpec{Max: 64}}, Replicas: c.replicas, Capacity: &api.CapacityStatus{Profile: c.before}}
		p, note, err := planProfile(&m)
		if p != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || (note == "") != (c.notes == "") || !strings.Contains(note, c.notes) {
			t.Errorf("%s: %+v, %q, %v", c.name, p, note, err)
		}
	}
}

// TestPlanBounds: flags before the model's, the model's before the defaults; a fixed number is no bound.
func TestPlanBounds(t *testing.T) {
	given := func(flags ...string) func(string) bool {
		return func(flag string) bool { return slices.Contains(flags, flag) }
	}
	spec := api.ReplicaBounds{Min: 2, Max: 6, Idle: time.Minute, Window: 30 * time.Second, Delay: time.Second, Utilization: 0.5, Up: 4, Down: 3}
	q := &capacity.Question{}
	q.Bounds.Min, q.Bounds.IdleNanos = 1, 7
	if err := planBounds(&planOptions{changed: given("idle")}, q, &spec); err != nil {
		t.Fatal(err)
	}
	if b := q.Bounds; b.Min != 2 || b.Max != 6 || b.IdleNanos != 7 || b.WindowNanos != 30e9 || b.DelayNanos != 1e9 || b.Utilization != 0.5 || b.Up != 4 || b.Down != 3 {
		t.Errorf("of the model: %+v", b)
	}
	q = &capacity.Question{}
	q.Bounds.Max = 1
	if err := planBounds(&planOptions{changed: given("max")}, q, &spec); err == nil {
		t.Error("--max 1 with a model of at least 2 was accepted")
	}
	q = &capacity.Question{}
	q.Bounds.Min = 1
	spec.Min, spec.Max = 4, 4
	if err := planBounds(&planOptions{changed: given()}, q, &spec); err != nil || q.Bounds.Min != 1 || q.Bounds.Max != 0 {
		t.Errorf("of a model with a fixed number: %+v, %v", q.Bounds, err)
	}
}
