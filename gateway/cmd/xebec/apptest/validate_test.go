package apptest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// rejected waits until a version is rejected. It checks that describe says why, that promote refuses the version, and
// that it has no process.
func (g *gateway) rejected(ref string, says ...string) api.ModelStatus {
	g.t.Helper()
	m := g.awaitPhase(ref, api.PhaseRejected)
	text := g.must("describe", "model", m.Spec.Name)
	for _, s := range says {
		if !strings.Contains(m.Version.Reason, s) || !strings.Contains(text, s) {
			g.t.Errorf("%s has the reason %q: expected %q in it, and in\n%s", ref, m.Version.Reason, s, text)
		}
	}
	if v := m.Version.Validation; v == nil || v.Passed || v.Reason != m.Version.Reason || m.Serving || m.State != api.ModelFailed {
		g.t.Errorf("%s is %s, serving %v, validation %+v", ref, m.State, m.Serving, v)
	}
	g.xebec("promote", ref).wants(g.t, "promote a rejected version", 1, "", ref+" was rejected")
	g.awaitNoProcess(ref)
	return m
}

// queries returns a file of the numbers from 1 to n, each labelled with itself.
func queries(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, `{"input":%d,"label":%d}`+"\n", i, i)
	}
	return b.String()
}

// A new version has to answer recorded queries as labelled, or as the serving version does. Otherwise it is rejected with
// the first wrong lines, and the old version continues to serve. After a change of its declaration it is validated again.
func TestValidation(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "queries.jsonl", queries(20))
	in := "dir: " + dir
	const labels = "validate: {queries: queries.jsonl, min_accuracy: 0.9}"
	m := number("m", "echo", uncached, in)
	g := serve(t, "--config", manifest(t, m, function("f", "m", "slo: 60s")))

	g.apply(version(number("m", "echo", uncached, in, labels, "warmup: {queries: queries.jsonl, repeat: 2}"), "2"))
	two := g.awaitServing("m@2")
	if v := two.Version.Validation; v == nil || !v.Passed || v.WarmedUp != 40 || v.Queries != 20 || v.Matched != 20 || v.Failed != 0 || v.Expect != "labels" || v.Extremes == 0 {
		t.Errorf("version 2 serves, validation %+v", v)
	}
	g.xebec("describe", "model", "m").wants(t, "describe", 0, "40 warm-up queries; 20 of 20 queries (100%) as expected (labels)", "")
	serves := func(version string, input, output int) {
		t.Helper()
		if a := g.ask("f", input, ""); !a.predicted() || a.Models[0] != version || a.number() != output {
			t.Errorf("%d is answered by %v: expected %d from %s", input, a, output, version)
		}
	}
	serves("m@2", 5, 5)

	wrong := func(lines ...string) string {
		return version(number("m", "noop", append(lines, uncached, in)...), "3")
	}
	g.xebec("apply", "-f", manifest(t, wrong(labels)), "--wait").wants(t, "apply a wrong version", 1, "m@3 created", "m@3 cannot serve: answered 0 of 20 queries as labelled")
	three := g.rejected("m@3", "answered 0 of 20 queries as labelled (0)", "min_accuracy 0.9", "queries.jsonl:1: expected 1, got 0", "queries.jsonl:2: ", "queries.jsonl:3: ")
	if strings.Contains(three.Version.Reason, "queries.jsonl:4") {
		t.Errorf("the reason shows more than three lines: %s", three.Version.Reason)
	}
	serves("m@2", 6, 6)
	g.must("apply", "-f", manifest(t, wrong("validate: {queries: queries.jsonl, expect: serving, max_difference: 0.5}")))
	g.await("version 3 to be validated again", func(ctx context.Context) (bool, string) {
		m, err := g.versionStatus(ctx, "m@3")
		return err == nil && strings.Contains(m.Version.Reason, "differently from m@2 (1)"), m.Version.Reason
	})
	g.rejected("m@3", "answered 20 of 20 queries differently from m@2 (1)", "max_difference 0.5", "queries.jsonl:1: expected 1, got 0")
	serves("m@2", 7, 7)
	g.must("apply", "-f", manifest(t, wrong("validate: {queries: queries.jsonl, expect: serving, max_difference: 1}")))
	if v := g.awaitServing("m@3").Version; v.Validation == nil || v.Validation.Expect != "m@2" || v.Validation.Matched != 0 || v.Validation.Queries != 20 || v.Reason != "" {
		t.Errorf("version 3 serves, validation %+v, reason %q", v.Validation, v.Reason)
	}
	serves("m@3", 8, 0)

	// A roll-out of a version that fails its validation ends with the reason.
	four := version(number("m", "noop", uncached, in, labels), "4")
	g.must("apply", "-f", manifest(t, four, traffic("m", `rollout: {version: "4"}`)))
	st := g.awaitTraffic("m", "the retreat", func(t api.TrafficStatus) bool { return t.Spec.Rollback != nil })
	if b := st.Spec.Rollback; b.From != "4" || b.To != "3" || !strings.Contains(b.Reason, "answered 0 of 20") || st.Spec.Rollout != nil {
		t.Errorf("after the roll-out of a version that fails its validation the traffic is %s", toJSON(t, st))
	}
	if e := g.lastEvent("m", "retreated"); !strings.HasPrefix(e.By, "rollout") || e.Version != "4" || !strings.Contains(e.Detail, "answered 0 of 20") {
		t.Errorf("the retreat in the history is %+v", e)
	}
	serves("m@3", 9, 0)
	samples := g.metrics().samples
	for name, want := range map[string]float64{"validated": 2, "rejected": 3, "retreated": 1} {
		if got := outcomeOf(samples, name); got != want {
			t.Errorf("the metrics count %v versions with the outcome %s: expected %v", got, name, want)
		}
	}
}

// outcomeOf returns the number of versions with this outcome.
func outcomeOf(samples map[string]float64, what string) float64 {
	n := 0.0
	for name, v := range samples {
		if strings.HasPrefix(name, "xebec_") && strings.Contains(name, fmt.Sprintf("outcome=%q", what)) {
			n += v
		}
	}
	return n
}

// Missing or broken files, workers that end, hang or fail during a query, and models that fail on extreme inputs: each
// rejection says what to fix, and serving is not affected.
func TestRejections(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	file := func(name, text string) string {
		writeFile(t, dir, name, text)
		return name
	}
	in := "dir: " + dir
	// The directory changes below: a replica of version 1 that was lost would not be started again.
	m := testModel("m", nil, uncached, in, "timeout: 10m")
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "m", "slo: 60s")))
	clients := g.startCrowd("f", 2)
	fine := `{"input":"hello"}` + "\n"
	for i, c := range []struct {
		what, lines string
		says        []string
	}{
		{"no warm-up file", "warmup: {queries: nowhere.jsonl}", []string{"warm-up", "nowhere.jsonl", "no such file"}},
		{"a broken line", "warmup: {queries: " + file("broken.jsonl", fine+fine+`{"input":`+"\n") + "}", []string{"warm-up", "broken.jsonl:3"}},
		{"a misspelt member", "validate: {queries: " + file("misspelt.jsonl", fine+`{"input":"hello","lable":"aGVsbG8="}`+"\n") + "}", []string{"validation", "misspelt.jsonl:2", "lable"}},
		{"no queries", "validate: {queries: " + file("empty.jsonl", "") + "}", []string{"empty.jsonl", "no queries"}},
		{"no labels", "validate: {queries: " + file("unlabelled.jsonl", fine) + "}", []string{"unlabelled.jsonl", "none of its 1 queries has a label"}},
		{"a worker that ends", "retry: false\nwarmup: {queries: " + file("die.jsonl", fine+`{"input":"die"}`+"\n") + "}", []string{"warm-up: die.jsonl:"}},
		{"a worker that hangs", "retry: false\ntimeout: 1s\nwarmup: {queries: " + file("hang.jsonl", `{"input":"hang"}`+"\n") + "}", []string{"warm-up: hang.jsonl:1"}},
		{"a model that fails", "warmup: {queries: " + file("error.jsonl", `{"input":"error"}`+"\n") + "}", []string{"warm-up: error.jsonl:1", "the marker error"}},
	} {
		v := fmt.Sprint(i + 2)
		g.must("apply", "-f", manifest(t, version(testModel("m", nil, uncached, in, c.lines), v)))
		g.rejected("m@"+v, c.says...)
		clients.served(10)
	}
	// The file is repaired, and the version is declared again with a change in its declaration.
	file("broken.jsonl", fine+fine)
	clients.served(10)
	g.apply(version(testModel("m", nil, uncached, in, "warmup: {queries: broken.jsonl, repeat: 3}"), "3"))
	if v := g.awaitServing("m@3").Version.Validation; v == nil || !v.Passed || v.WarmedUp != 6 {
		t.Errorf("after the repair version 3 serves, validation %+v", v)
	}
	clients.served(10)
	clients.judge(t, "m@1", "m@3")

	file("numbers.jsonl", `{"input":1.5,"label":1.5}`+"\n")
	crashes := func(more string) string {
		return fmt.Sprintf(`
---
kind: Model
name: x
version: "1"
dir: %s
inputs:  [{name: input, dtype: float32, shape: []}]
outputs: [{name: output, dtype: float32, shape: []}]
run: {command: [python, %q, nan]}
validate: {queries: numbers.jsonl, min_accuracy: 1%s}
`, dir, rolloutFile(t, "misbehave.py"), more)
	}
	g.must("apply", "-f", manifest(t, crashes("")))
	g.rejected("x@1", `the extreme input "NaN" ended or stopped a replica`, "extremes: false")
	g.must("apply", "-f", manifest(t, crashes(", extremes: false")))
	if v := g.awaitServing("x@1").Version.Validation; v == nil || !v.Passed || v.Extremes != 0 || v.Matched != 1 {
		t.Errorf("without extremes x@1 serves, validation %+v", v)
	}
}

// While a version is warmed up it answers no query on any path, although its replica is ready, and reports that it is not
// ready.
func TestVersionAnswersNobodyBeforeItIsWarm(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	gate := filepath.Join(dir, "gate")
	writeFile(t, dir, "queries.jsonl", queries(1))
	waits := strings.Replace(number("m", "echo", uncached, "timeout: 10m", "dir: "+dir, "warmup: {queries: queries.jsonl}"),
		fmt.Sprintf(`[%q, "-mode", echo]`, programs.worker), fmt.Sprintf("[python, %q, waits, %q]", rolloutFile(t, "misbehave.py"), gate), 1)
	g := serve(t, "--python", python(t))
	g.must("apply", "-f", manifest(t, waits, function("f", "m", "slo: 60s"), function("one", "m@1", "slo: 60s")))
	g.awaitVersion("m@1", "the version to be warmed up", func(m api.ModelStatus) bool {
		return m.Version.Phase == api.PhaseValidating && m.ReadyReplicas() == 1
	})
	for _, f := range []string{"f", "one"} {
		if a := g.ask(f, 3, ""); a.Status != 503 || a.Code != api.NoReplica.String() {
			t.Errorf("function %s is answered by %v: expected 503 no_replica during the warm-up", f, a)
		}
	}
	for _, path := range []string{"m", "m/versions/1"} {
		if status, body := g.fetch(bounded(t), "http://"+g.functions+"/v2/models/"+path+"/ready"); status == 200 {
			t.Errorf("during the warm-up %s is ready: %s", path, body)
		}
		if a := g.json("/v2/models/"+path+"/infer", `{"inputs":[{"name":"input","datatype":"INT64","shape":[1],"data":[5]}]}`); a.Status != 503 {
			t.Errorf("during the warm-up %s is answered by %v", path, a)
		}
	}
	if status, body := g.fetch(bounded(t), "http://"+g.functions+"/readyz"); status != 200 {
		t.Errorf("a version that warms up makes the gateway unready: %d %s", status, body)
	}
	writeFile(t, dir, "gate", "")
	g.awaitServing("m@1")
	for _, f := range []string{"f", "one"} {
		if a := g.ask(f, 3, ""); !a.predicted() || a.number() != 3 {
			t.Errorf("after the warm-up function %s is answered by %v", f, a)
		}
	}
	if status, body := g.fetch(bounded(t), "http://"+g.functions+"/v2/models/m/versions/1/ready"); status != 200 {
		t.Errorf("after the warm-up the version is not ready: %d %s", status, body)
	}
}

// A version that is rolled back during its warm-up has not passed, even if it is promoted again before its replicas have
// ended.
func TestVersionIsNotResumedUnproven(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	gate := filepath.Join(dir, "gate")
	writeFile(t, dir, "queries.jsonl", queries(1))
	m := number("m", "echo", uncached, stoppable)
	waits := strings.Replace(version(number("m", "echo", uncached, stoppable, "dir: "+dir, "warmup: {queries: queries.jsonl}"), "2"),
		fmt.Sprintf(`[%q, "-mode", echo]`, programs.worker), fmt.Sprintf("[python, %q, waits, %q]", rolloutFile(t, "misbehave.py"), gate), 1)
	// A worker that is busy when it is asked to end is killed after the drain timeout.
	g := serve(t, "--drain-timeout", "1s", "--python", python(t), "--config", manifest(t, m, function("f", "m", "slo: 60s")))
	g.must("apply", "-f", manifest(t, waits))
	g.awaitPhase("m@2", api.PhaseValidating)
	// No replica ends as long as this query is unanswered.
	release := freeze(t, g.version("m@1").Replicas[0].PID)
	ctx := bounded(t)
	asked := make(chan answer, 1)
	go func() {
		a, err := g.tryAsk(ctx, "f", 5, "")
		if err != nil {
			t.Error(err)
		}
		asked <- a
	}()
	g.await("a query to be in flight", func(ctx context.Context) (bool, string) {
		status, body := g.fetch(ctx, "http://"+g.admin+"/v1/describe/gateway")
		d, err := decode[api.GatewayStatus](body)
		return err == nil && d.Inflight == 1, fmt.Sprint(status, d.Inflight, err)
	})
	g.must("rollback", "m", "--to", "1")
	g.awaitPhase("m@2", api.PhaseDraining)
	g.must("promote", "m@2")
	if two := g.version("m@2"); two.Version.Phase != api.PhaseDraining || two.Serving {
		t.Errorf("a version without a complete warm-up that is promoted while it drains is %s, serving %v", two.Version.Phase, two.Serving)
	}
	release()
	if a := <-asked; !a.predicted() || a.Models[0] != "m@1" {
		t.Errorf("the query in flight is answered by %v", a)
	}
	g.awaitPhase("m@2", api.PhaseValidating)
	if a := g.ask("f", 6, ""); !a.predicted() || a.Models[0] != "m@1" {
		t.Errorf("during the warm-up a query is answered by %v", a)
	}
	writeFile(t, dir, "gate", "")
	if v := g.awaitServing("m@2").Version.Validation; v == nil || !v.Passed || v.WarmedUp != 1 {
		t.Errorf("version 2 serves, validation %+v", v)
	}
}
