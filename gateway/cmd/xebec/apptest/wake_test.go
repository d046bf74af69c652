package apptest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// An ensemble whose members both sleep waits for both. If its cheap member is awake that one answers, and the query wakes
// the other member for later queries.
func TestEnsembleOfSleepers(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(newDir(t), "gate")
	const sleeps = "replicas: {min: 0, max: 1}"
	g := serve(t, "--config", manifest(t,
		testModel("a", nil, sleeps, uncached), testModel("b", nil, sleeps, uncached), testModel("up", nil, uncached),
		gated(testModel("slow", nil, sleeps, uncached), gate),
		function("both", "a, b", "slo: 1s", "cold_start: 60s", "policy: exp4"),
		function("mixed", "up, slow", "slo: 1s", "policy: exp4", theDefault)))
	g.awaitReplicas("up", 1)
	for _, name := range []string{"a", "b", "slow"} {
		g.awaitAsleep(name)
	}
	if a := g.raw("both", "hello"); !a.predicted() || a.text() != "hello" || len(a.Models) != 2 {
		t.Errorf("an ensemble of two sleeping members answers %v: expected both", a)
	}
	if a := g.raw("mixed", "hello", "Xebec-Slo-Ms", patient); !a.predicted() || fmt.Sprint(a.Models) != "[up@1]" {
		t.Errorf("an ensemble with one sleeping member answers %v: expected the other member", a)
	}
	g.awaitModel("slow", "the sleeping member to be woken", func(m api.ModelStatus) bool { return m.Capacity.Wanted == 1 && len(m.Replicas) == 1 })
	open(t, gate)
	g.await("both members to answer", func(ctx context.Context) (bool, string) {
		a, err := g.post(ctx, "/mixed/predict", "text/plain", []byte("hello"), "Xebec-Slo-Ms", patient)
		return err == nil && slices.Contains(a.Models, "slow@1") && slices.Contains(a.Models, "up@1"), a.String()
	})
}

// askWhileItWakes sends a query that waits for a gated model, and returns when a replica is being started for it.
func askWhileItWakes(g *gateway, function, model string) (answered <-chan answer) {
	g.t.Helper()
	got := make(chan answer, 1)
	ctx := bounded(g.t)
	go func() {
		a, err := g.post(ctx, "/"+function+"/predict", "text/plain", []byte("hello"), "Xebec-Slo-Ms", patient)
		if err != nil {
			a.Code = err.Error()
		}
		got <- a
	}()
	g.awaitModel(model, "a query waits for a replica that is being started", func(m api.ModelStatus) bool {
		return m.QueueDepth == 1 && len(m.Replicas) == 1 && m.Replicas[0].PID > 0
	})
	return got
}

// A gateway that is asked to end while a model wakes answers the queries that wait for the model, if it starts in time.
func TestTermWhileWaking(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(newDir(t), "gate")
	g := serve(t, "--drain-timeout", "60s", "--config", manifest(t, gated(testModel("m", nil, sleepy, uncached), gate), function("f", "m", "slo: 60s")))
	waits := askWhileItWakes(g, "f", "m")
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g.await("the gateway to drain", func(ctx context.Context) (bool, string) {
		status, body := g.fetch(ctx, "http://"+g.admin+"/readyz")
		return status == 503, body
	})
	open(t, gate)
	if a := <-waits; !a.predicted() || a.text() != "hello" {
		t.Errorf("the query that waited for the model is answered by %v", a)
	}
	g.gone(0)
}

// A model that is deleted while it wakes leaves nothing behind, and waiting queries get an error. A model that is scaled
// to a fixed number of replicas while it wakes serves.
func TestDeletedWhileWaking(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(newDir(t), "gate")
	m, f := gated(testModel("m", nil, sleepy, uncached), gate), function("f", "m", "slo: 60s")
	g := serve(t, "--drain-timeout", "1s", "--config", manifest(t, m, f))
	waits := askWhileItWakes(g, "f", "m")
	g.must("delete", "function", "f")
	g.must("delete", "model", "m")
	if a := <-waits; a.Status != 503 && a.Status != 404 || a.Code == "" {
		t.Errorf("the query that waited for the deleted model is answered by %v", a)
	}
	g.awaitNoProcess("m@1")
	g.apply(m, f)
	waits = askWhileItWakes(g, "f", "m")
	g.must("scale", "m", "--replicas", "2")
	open(t, gate)
	if a := <-waits; !a.predicted() {
		t.Errorf("the query that waited while the model was scaled is answered by %v", a)
	}
	g.awaitReplicas("m", 2)
}

// A new version of a sleeping model is woken for its validation, takes over and sleeps again, without a query. A version
// without a validation takes over asleep.
func TestVersionsTakeOverAsleep(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "queries.jsonl", queries(20))
	const validated = "validate: {queries: queries.jsonl, min_accuracy: 0.9}"
	m := number("m", "echo", uncached, "dir: "+dir, sleepy)
	g := serve(t, "--config", manifest(t, m, function("f", "m", "slo: 60s")))
	g.awaitServing("m@1")
	g.apply(version(number("m", "echo", uncached, "dir: "+dir, sleepy, validated), "2"))
	two := g.awaitServing("m@2")
	if v := two.Version.Validation; v == nil || !v.Passed || v.Queries != 20 {
		t.Errorf("version 2 serves, validation %+v", v)
	}
	asleep := func(ref string) {
		t.Helper()
		g.awaitVersion(ref, "it sleeps", func(m api.ModelStatus) bool { return len(m.Replicas) == 0 && m.Capacity.Wanted == 0 })
		g.awaitNoProcess(ref)
	}
	asleep("m@2")
	g.apply(version(m, "3"))
	three := g.awaitServing("m@3")
	if three.Capacity.StartMS != 0 {
		t.Errorf("version 3 was started to take over: %s", toJSON(t, three.Capacity))
	}
	asleep("m@3")
	if a := g.ask("f", 7, ""); !a.predicted() || a.number() != 7 || fmt.Sprint(a.Models) != "[m@3]" {
		t.Errorf("asleep, the new version answers %v", a)
	}
	// A version that fails its validation is rejected, and has no process.
	g.must("apply", "-f", manifest(t, version(number("m", "noop", uncached, "dir: "+dir, sleepy, validated), "4")))
	four := g.rejected("m@4", "answered 0 of 20 queries as labelled")
	if !strings.Contains(four.Version.Reason, "min_accuracy") {
		t.Errorf("version 4 is rejected with the reason %q", four.Version.Reason)
	}
	if a := g.ask("f", 8, ""); !a.predicted() || a.number() != 8 || fmt.Sprint(a.Models) != "[m@3]" {
		t.Errorf("beside a rejected version the model answers %v", a)
	}
}

// A version that may sleep replaces one that is awake only when it is awake itself. While it starts, however long that
// takes, the old one answers, also if the new one never becomes ready.
func TestVersionsTakeOverAwake(t *testing.T) {
	t.Parallel()
	const awake = "replicas: {min: 0, max: 1, idle: 1h}"
	gate := filepath.Join(newDir(t), "gate")
	m := number("m", "echo", uncached, awake)
	g := serve(t, "--config", manifest(t, m, function("f", "m", "slo: 60s")))
	answeredBy := func(version string) {
		t.Helper()
		for i := range 5 {
			if a := g.ask("f", i, ""); !a.predicted() || fmt.Sprint(a.Models) != "["+version+"]" {
				t.Fatalf("a query is answered by %v: expected %s", a, version)
			}
		}
	}
	answeredBy("m@1")
	g.must("apply", "-f", manifest(t, gated(version(m, "2"), gate)))
	g.awaitVersion("m@2", "a replica that is not ready", func(m api.ModelStatus) bool { return len(m.Replicas) == 1 })
	answeredBy("m@1")
	open(t, gate)
	g.awaitServing("m@2")
	answeredBy("m@2")
	broken := strings.Replace(version(m, "3"), fmt.Sprintf("%q", programs.worker), `"/bin/false"`, 1)
	g.xebec("apply", "-f", manifest(t, broken), "--wait").wants(t, "apply a version that cannot start", 1, "m@3 created", "model m@3 has failed")
	answeredBy("m@2")
}
