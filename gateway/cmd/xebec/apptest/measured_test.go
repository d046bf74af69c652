package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// measured is what describe shows of a version.
func (g *gateway) measured(ref string) *api.MeasuredStatus {
	g.t.Helper()
	var d api.ModelDescription
	if err := json.Unmarshal([]byte(g.must("describe", "model", ref, "-o", "json")), &d); err != nil || len(d.Models) != 1 {
		g.t.Fatalf("describe model %s: %v, %d models", ref, err, len(d.Models))
	}
	return d.Models[0].Measured
}

// measure sends batches of several sizes to a function until describe has the times of the version.
func (g *gateway) measure(function, ref string) *api.MeasuredStatus {
	g.t.Helper()
	var m *api.MeasuredStatus
	next := 1000 // no input is asked twice: the cache would answer it
	g.await("the times of batches to be known", func(context.Context) (bool, string) {
		for n := 1; n <= 8; n++ {
			inputs := make([]string, n)
			for i := range inputs {
				inputs[i] = fmt.Sprint(next)
				next++
			}
			if a := g.json("/"+function+"/predict", `{"input_batch":[`+strings.Join(inputs, ",")+`]}`, "Xebec-Slo-Ms", patient); a.Status != 200 {
				g.t.Fatalf("a batch is answered by %v", a)
			}
		}
		m = g.measured(ref)
		return m != nil && m.Latency != nil && !m.Latency.Kept, fmt.Sprintf("%+v", m)
	})
	return m
}

// What was measured of a version is in describe, history and plan, and still is after a restart. It goes with the version.
func TestMeasuredPerformanceOutlivesTheGateway(t *testing.T) {
	t.Parallel()
	fixed := "batching: {policy: fixed, max: 8}"
	args := []string{"--config", manifest(t, number("right", "echo", fixed), number("wrong", "noop", fixed), function("f", "right", "slo: 60s"), function("g", "wrong", "slo: 60s")), "--data-dir", newDir(t)}
	g := serve(t, args...)
	g.measure("f", "right@1")
	g.teach("f", 1, 8, "", itself)
	g.teach("f", 1, 2, "", zero)
	if m := g.measured("right@1"); m.Accuracy == nil || m.Accuracy.Labels != 10 || m.Accuracy.Accuracy != 0.8 || m.Accuracy.Kept || m.Hardware == "" {
		t.Fatalf("before the restart: %+v", m)
	}
	before := g.measured("right@1")
	g.stop()

	again := serve(t, args...)
	check := func(where string, m *api.MeasuredStatus) {
		t.Helper()
		switch {
		case m == nil || m.Model != "right@1" || m.Latency == nil || m.Accuracy == nil:
			t.Errorf("after the restart %s has %+v", where, m)
		case !m.Latency.Kept || m.Latency.Batches < 16 || m.Latency.InterceptMicros+m.Latency.SlopeMicros <= 0 || m.Latency.P99Micros <= 0 || len(m.Latency.Sizes) == 0 || m.Latency.At.Before(before.Latency.At.Add(-1)):
			t.Errorf("after the restart the times in %s are %+v; before it they were %+v", where, m.Latency, before.Latency)
		case m.Accuracy.Labels != 10 || m.Accuracy.Accuracy != 0.8 || !m.Accuracy.Kept || m.Accuracy.At.IsZero():
			t.Errorf("after the restart the accuracy in %s is %+v", where, m.Accuracy)
		}
	}
	check("describe", again.measured("right@1"))
	if m := again.measured("wrong@1"); m != nil {
		t.Errorf("a version that was never measured has %+v", m)
	}
	var h api.History
	if err := json.Unmarshal([]byte(again.must("history", "right", "-o", "json")), &h); err != nil || len(h.Measured) != 1 || len(h.Events) == 0 {
		t.Fatalf("history: %v, %+v", err, h)
	}
	check("history", &h.Measured[0])
	var p struct {
		Measured *api.MeasuredStatus `json:"measured"`
		Notes    []string            `json:"notes"`
	}
	if err := json.Unmarshal([]byte(again.must("plan", "f", "--rate", "5", "--shape", "steady", "--over", "2m", "-o", "json")), &p); err != nil {
		t.Fatal(err)
	}
	check("plan", p.Measured)
	notes := strings.Join(p.Notes, "\n")
	for _, want := range []string{"the profile is that of earlier ones", "before the gateway started", "by feedback it is right in 80% of its answers (10 labels"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the plan does not say %q:\n%s", want, notes)
		}
	}
	text := again.must("describe", "model", "right@1")
	for _, want := range []string{"Measured:", "Batch of n:", "kept from before the gateway started", "80% by feedback (10 labels"} {
		if !strings.Contains(text, want) {
			t.Errorf("describe does not say %q:\n%s", want, text)
		}
	}
	if text := again.must("history", "right"); !strings.Contains(text, "BATCH OF N") || !strings.Contains(text, "right@1") {
		t.Errorf("history says\n%s", text)
	}

	// New times replace the old ones, and new labels are added to the old ones.
	again.measure("f", "right@1")
	again.teach("f", 1, 10, "", itself)
	if m := again.measured("right@1"); m.Latency.Kept || m.Accuracy.Labels != 20 || m.Accuracy.Accuracy != 0.9 || m.Accuracy.Kept {
		t.Errorf("after new figures: %+v, %+v", m.Latency, m.Accuracy)
	}

	// A version that was deleted and is declared again starts from nothing.
	again.must("delete", "function", "f")
	again.must("delete", "model", "right")
	again.stop()
	third := serve(t, args...)
	if m := third.measured("right@1"); m != nil {
		t.Errorf("a version that was deleted before the restart has %+v", m)
	}
}

// What was measured passes to a process that takes over.
func TestMeasuredPerformanceOutlivesAnUpgrade(t *testing.T) {
	t.Parallel()
	u := serveUpgradable(t)
	u.measure("g", "right@1")
	u.teach("g", 1, 5, "", itself)
	if r := u.upgrade()(); r.status != 0 {
		t.Fatalf("the upgrade fails: %+v", r)
	}
	u.oldEnds()
	m := u.measured("right@1")
	if m == nil || m.Latency == nil || !m.Latency.Kept || m.Accuracy == nil || m.Accuracy.Labels != 5 || m.Accuracy.Accuracy != 1 || !m.Accuracy.Kept {
		t.Errorf("the new process knows %+v", m)
	}
}

// A query names a loaded version that the function does not.
func TestQueriesNameAnyLoadedVersion(t *testing.T) {
	t.Parallel()
	two := version(number("m", "noop"), "2")
	g := serve(t, "--config", manifest(t, number("m", "echo"), two, function("f", "m@1", "slo: 60s")))
	g.must("wait", "model", "m@2")
	if a := g.ask("f", 7, ""); a.number() != 7 || fmt.Sprint(a.Models) != "[m@1]" {
		t.Errorf("a query without a version is answered by %v", a)
	}
	if a := g.ask("f", 7, `,"models":["m@2"]`); a.number() != 0 || fmt.Sprint(a.Models) != "[m@2]" {
		t.Errorf("a query for m@2 is answered by %v", a)
	}
	a := g.json("/f/predict", `{"input":1,"models":["m@3"]}`)
	if a.Status != 400 || !strings.Contains(a.String(), "expected one of m@1, m@2") {
		t.Errorf("a query for a version that there is not is answered by %v", a)
	}
}
