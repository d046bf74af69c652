package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// infer queries a model's or a version's Open Inference Protocol path with a number, and returns the answering version
// and its output.
func (g *gateway) infer(path string, input int) (version string, output int) {
	g.t.Helper()
	a := g.json("/v2/models/"+path+"/infer", fmt.Sprintf(`{"inputs":[{"name":"input","datatype":"INT64","shape":[1],"data":[%d]}]}`, input))
	var said struct {
		Version string `json:"model_version"`
		Outputs []struct{ Data []int }
	}
	if err := json.Unmarshal(a.Body, &said); err != nil || a.Status != 200 || len(said.Outputs) != 1 || len(said.Outputs[0].Data) != 1 {
		g.t.Fatalf("%s is answered by %v (%v)", path, a, err)
	}
	return said.Version, said.Outputs[0].Data[0]
}

// splitters are a test's contexts by the version of m that answers them. Each context is queried twice and must get the
// same version.
func (g *gateway) splitters(function string, contexts int) map[string]string {
	g.t.Helper()
	of := map[string]string{}
	for round := range 2 {
		for i := range contexts {
			who := fmt.Sprintf("user %d", i)
			a := g.ask(function, 7, "", "Xebec-Context", who)
			if !a.predicted() || len(a.Models) != 1 || (a.Models[0] == "m@1") != (a.number() == 7) {
				g.t.Fatalf("%s is answered by %v", who, a)
			}
			if before := of[who]; round > 0 && before != a.Models[0] {
				g.t.Errorf("context %s was answered by %s, and then by %s", who, before, a.Models[0])
			}
			of[who] = a.Models[0]
		}
	}
	return of
}

func countOf(of map[string]string, version string) (n int) {
	for v := range maps.Values(of) {
		if v == version {
			n++
		}
	}
	return n
}

// A split sends part of the contexts to the other version, always the same ones, also after a restart. A larger part adds
// contexts and moves none back. A request that names a version or a label gets it.
func TestSplit(t *testing.T) {
	t.Parallel()
	m := number("m", "echo", uncached)
	two := version(number("m", "noop", uncached), "2")
	rule := func(percent int) string {
		return traffic("m", `serving: "1"`, fmt.Sprintf(`split: {version: "2", percent: %d}`, percent), `labels: {stable: "1", canary: "2"}`)
	}
	functions := []string{
		function("f", "m", "slo: 60s"), function("canary", "m@canary", "slo: 60s"), function("one", "m@1", "slo: 60s"),
	}
	config := strings.Join(append(functions, m, two, rule(30)), "")
	data := newDir(t)
	g := serve(t, "--data-dir", data)
	g.apply(config)
	g.awaitTraffic("m", "the split to be in force", func(t api.TrafficStatus) bool { return len(t.Arms) == 2 })
	const contexts = 300
	at30 := g.splitters("f", contexts)
	if n := countOf(at30, "m@2"); n < contexts*20/100 || n > contexts*40/100 {
		t.Errorf("of %d contexts %d get the new version: expected about 30 %%", contexts, n)
	}
	st := g.awaitTraffic("m", "all queries to be counted", func(t api.TrafficStatus) bool { return t.Arms[0].Queries+t.Arms[1].Queries == 2*contexts })
	for _, arm := range st.Arms {
		if want := uint64(2 * countOf(at30, "m@"+arm.Version)); arm.Queries != want || arm.Failed != 0 || (arm.Rule == "split") != (arm.Version == "2") {
			t.Errorf("an arm is %+v: expected %d queries", arm, want)
		}
	}
	direct := map[string]int{}
	for range 200 {
		v, out := g.infer("m", 7)
		if (v == "1") != (out == 7) {
			t.Fatalf("version %s answers %d", v, out)
		}
		direct[v]++
	}
	if direct["2"] < 20 || direct["2"] > 120 {
		t.Errorf("the versions of 200 requests that address the model are %v: expected about 30 %% for version 2", direct)
	}
	for path, want := range map[string]string{"m/versions/canary": "2", "m/versions/stable": "1", "m/versions/1": "1", "m/versions/2": "2"} {
		for range 10 {
			if v, _ := g.infer(path, 7); v != want {
				t.Fatalf("%s is answered by version %s", path, v)
			}
		}
	}
	for i := range 20 {
		who := fmt.Sprintf("user %d", i)
		for version, more := range map[string]string{"m@1": `,"models":["m@1"]`, "m@2": `,"models":["m@2"]`} {
			if a := g.ask("f", 7, more, "Xebec-Context", who); a.Models[0] != version || (a.number() == 7) != (version == "m@1") {
				t.Errorf("a request that names %s is answered by %v", version, a)
			}
		}
		if a := g.ask("canary", 7, "", "Xebec-Context", who); a.Models[0] != "m@2" {
			t.Errorf("the function that names the label is answered by %v", a)
		}
		if a := g.ask("one", 7, "", "Xebec-Context", who); a.Models[0] != "m@1" {
			t.Errorf("the function that names version 1 is answered by %v", a)
		}
	}
	if a := g.ask("f", 7, `,"models":["m@3"]`); a.Status != 400 || !strings.Contains(a.Cause, "m@3") {
		t.Errorf("a request that names an unknown version is answered by %v", a)
	}

	g.stop()
	g = serve(t, "--data-dir", data)
	g.awaitTraffic("m", "the split to be in force again", func(t api.TrafficStatus) bool { return len(t.Arms) == 2 })
	if again := g.splitters("f", contexts); !maps.Equal(at30, again) {
		t.Error("after a restart other contexts get the new version")
	}
	g.must("traffic", "m", "--split", "2=60")
	g.awaitTraffic("m", "the split to grow", func(t api.TrafficStatus) bool { return t.Spec.Split != nil && t.Spec.Split.Percent == 60 })
	at60 := g.splitters("f", contexts)
	if n := countOf(at60, "m@2"); n < contexts*50/100 || n > contexts*70/100 {
		t.Errorf("of %d contexts %d get the new version: expected about 60 %%", contexts, n)
	}
	for who, v := range at30 {
		if v == "m@2" && at60[who] != "m@2" {
			t.Errorf("context %s had the new version and lost it when the split grew", who)
		}
	}
	g.xebec("apply", "-f", manifest(t, traffic("m", `serving: "1"`, `labels: {stable: "1"}`))).wants(t, "remove a label in use", 1, "", "function canary names m@canary")
	// The label moves, and so do the functions that name it.
	g.apply(traffic("m", `serving: "1"`, `labels: {canary: "1"}`))
	g.await("the label to resolve to version 1", func(ctx context.Context) (bool, string) {
		a, err := g.tryAsk(ctx, "canary", 7, "")
		return err == nil && len(a.Models) == 1 && a.Models[0] == "m@1" && a.number() == 7, a.String()
	})
	if all := g.splitters("f", 50); countOf(all, "m@2") > 0 {
		t.Error("after the split was removed the new version still answers")
	}
}

// A shadow gets the serving version's queries, is compared, and its answers reach no caller. A shadow that hangs, fails
// or is gone delays no caller.
func TestTrafficShadow(t *testing.T) {
	t.Parallel()
	m := number("m", "echo", uncached, stoppable)
	two := version(number("m", "noop", uncached, stoppable), "2")
	three := strings.Replace(version(m, "3"), fmt.Sprintf(`[%q, "-mode", echo]`, programs.worker), fmt.Sprintf("[python, %q, fails]", rolloutFile(t, "misbehave.py")), 1)
	g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "m", "slo: 60s")))
	g.apply(two, traffic("m", `shadow: {version: "2", percent: 100}`))
	in := func(version string) func(api.TrafficStatus) bool {
		return func(t api.TrafficStatus) bool {
			return t.Shadow != nil && t.Shadow.Version == version && t.Serving == "1"
		}
	}
	compared := func(same, different, failed uint64) {
		t.Helper()
		g.awaitTraffic("m", fmt.Sprintf("%d same, %d different, %d failed", same, different, failed), func(t api.TrafficStatus) bool {
			return t.Shadow != nil && t.Shadow.Same == same && t.Shadow.Different == different && t.Shadow.Failed == failed
		})
	}
	wants := func(input int) {
		t.Helper()
		if a := g.ask("f", input, ""); !a.predicted() || a.number() != input || a.Models[0] != "m@1" || len(a.Models) != 1 {
			t.Fatalf("beside a shadow %d is answered by %v", input, a)
		}
	}
	g.awaitTraffic("m", "the shadow to be in force", in("2"))
	for i := range 20 {
		wants(i % 2) // version 2 answers 0
	}
	compared(10, 10, 0)
	if v, out := g.infer("m", 5); v != "1" || out != 5 {
		t.Errorf("a request that addresses the model is answered %d by version %s", out, v)
	}
	compared(10, 11, 0)
	g.xebec("describe", "model", "m").wants(t, "describe", 0, "10 agreed with the answer, 11 did not, 0 failed", "")

	pid := g.version("m@2").Replicas[0].PID
	release := freeze(t, pid)
	for i := range 20 {
		wants(i % 2)
	}
	release()
	compared(20, 21, 0)
	freeze(t, pid)
	wants(1)
	kill(t, pid)
	for i := range 20 {
		wants(i % 2)
	}
	g.awaitVersion("m@2", "a new replica", func(m api.ModelStatus) bool { return restarts(m) == 1 && m.ReadyReplicas() == 1 })

	g.apply(three, traffic("m", `shadow: {version: "3", percent: 100}`, `serving: "1"`))
	g.awaitTraffic("m", "the failing shadow to be in force", in("3"))
	for i := range 10 {
		wants(i)
	}
	compared(0, 0, 10)
	if one := g.version("m@1"); one.Queries["model_error"] > 0 || one.Queries["overloaded"] > 0 {
		t.Errorf("beside the failing shadow version 1 has counted %v", one.Queries)
	}
	g.must("traffic", "m", "--clear", "shadow")
	g.awaitTraffic("m", "the shadow to be removed", func(t api.TrafficStatus) bool { return t.Shadow == nil })
	wants(3)
}

// rolloutFile returns the absolute path of a file that the models here run.
func rolloutFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata/rollout", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// digitsVersion is a manifest of a digits version that train.py has written to a folder.
func digitsVersion(t *testing.T, folder, version string) string {
	return fmt.Sprintf(`
---
kind: Model
name: digits
version: %q
dir: %s
inputs:  [{name: input, dtype: float32, shape: [64]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, %q], env: {OMP_NUM_THREADS: "1"}}
`, version, filepath.Join(folder, version), rolloutFile(t, "model.py"))
}

// trained runs train.py.
func trained(t *testing.T, folder string) (d digits) {
	t.Helper()
	out, err := exec.CommandContext(bounded(t), python(t), "testdata/rollout/train.py", folder).Output()
	if err != nil {
		t.Fatalf("train.py: %v%s", err, stderrOf(err))
	}
	if err := json.Unmarshal(out, &d); err != nil || len(d.Labels) < 300 {
		t.Fatalf("%d digits (%v)", len(d.Labels), err)
	}
	return d
}

// users are simulated users that send queries, and feedback if they have labels, until stop is called.
type users struct {
	stopped atomic.Bool
	wg      sync.WaitGroup
}

func (u *users) stop() { u.stopped.Store(true); u.wg.Wait() }

// startUsers starts n users that query a function with digits and send the right labels. Every answer must be a
// prediction.
func (g *gateway) startUsers(n int, function string, d digits) *users {
	u := &users{}
	ctx := bounded(g.t)
	var next atomic.Int64
	for range n {
		u.wg.Go(func() {
			for !u.stopped.Load() {
				i := int(next.Add(1)) % len(d.Labels)
				a, err := g.post(ctx, "/"+function+"/predict", "application/json", fmt.Appendf(nil, `{"input":%s}`, toJSON(g.t, d.Pixels[i])))
				if err != nil || !a.predicted() || a.QueryID == nil {
					g.t.Errorf("a digit is answered by %v %v", a, err)
					return
				}
				told, err := g.post(ctx, "/"+function+"/feedback", "application/json", fmt.Appendf(nil, `{"query_id":%d,"label":%d}`, *a.QueryID, d.Labels[i]))
				if err != nil || told.Status != 200 {
					g.t.Errorf("feedback is answered by %v %v", told, err)
					return
				}
			}
		})
	}
	g.t.Cleanup(u.stop)
	return u
}

// lastEvent returns the newest event with this action in a model's history.
func (g *gateway) lastEvent(model, action string) api.HistoryEvent {
	g.t.Helper()
	h, err := decode[api.History](g.must("history", model, "-o", "json"))
	if err != nil {
		g.t.Fatal(err)
	}
	for _, e := range h.Events {
		if e.Action == action {
			return e
		}
	}
	g.t.Fatalf("the history of %s has no event %s: %+v", model, action, h.Events)
	return api.HistoryEvent{}
}

// A learned roll-out of digit classifiers. Label feedback moves queries to a better version, which is then promoted, and
// away from one trained with wrong labels, which is rolled back, unloaded and not loaded again.
func TestLearnedRollout(t *testing.T) {
	t.Parallel()
	folder := newDir(t)
	d := trained(t, folder)
	g := serve(t, "--python", python(t), "--config", manifest(t, digitsVersion(t, folder, "1"), function("f", "digits", "slo: 60s")))
	// The limit on latency is so high that a busy machine does not decide the roll-out.
	guard := "guard: {min_feedback: 60, max_error_increase: 0.15, max_p99_increase: 900}"
	rollout := func(v string) string {
		return traffic("digits", fmt.Sprintf("rollout: {version: %q, policy: exp3, %s}", v, guard))
	}
	// No user sends queries while a version loads: loading has the lowest priority.
	begin := func(v, serving string) *users {
		t.Helper()
		g.apply(digitsVersion(t, folder, v), rollout(v))
		st := g.awaitTraffic("digits", "the roll-out to begin", func(t api.TrafficStatus) bool { return t.Rollout != nil })
		if st.Rollout.Version != v || st.Rollout.Cap != 0.05 || st.Rollout.Verdict != "undecided" || st.Serving != serving {
			t.Errorf("the new roll-out is %+v, serving %s", st.Rollout, st.Serving)
		}
		return g.startUsers(4, "f", d)
	}
	u := begin("2", "1")
	g.awaitServing("digits@2")
	g.awaitTraffic("digits", "the roll-out to end", func(t api.TrafficStatus) bool { return t.Spec.Rollout == nil && t.Spec.Rollback == nil })
	if e := g.lastEvent("digits", "promoted"); !strings.HasPrefix(e.By, "rollout") || e.Version != "2" || !strings.Contains(e.Detail, "mean loss") {
		t.Errorf("the promotion in the history is %+v", e)
	}

	u.stop()
	u = begin("3", "2")
	st := g.awaitTraffic("digits", "the retreat", func(t api.TrafficStatus) bool { return t.Spec.Rollback != nil })
	u.stop()
	if b := st.Spec.Rollback; b.From != "3" || b.To != "2" || st.Spec.Rollout != nil || st.Serving != "2" || !strings.Contains(b.Reason, "mean loss") {
		t.Errorf("after the retreat the traffic is %s", toJSON(t, st))
	}
	if e := g.lastEvent("digits", "retreated"); !strings.HasPrefix(e.By, "rollout") || e.Version != "3" || !strings.Contains(e.Detail, "mean loss") {
		t.Errorf("the retreat in the history is %+v", e)
	}
	g.awaitPhase("digits@3", api.PhaseDeclared)
	g.awaitNoProcess("digits@3")
	g.apply(digitsVersion(t, folder, "1"), digitsVersion(t, folder, "2"))
	g.must("apply", "-f", manifest(t, digitsVersion(t, folder, "3")))
	g.must("traffic", "digits", "--latest", "1")
	g.awaitPhase("digits@1", api.PhaseDeclared) // by now the gateway has decided which version is the latest
	if three := g.version("digits@3"); three.Version.Phase != api.PhaseDeclared || three.Version.Aspired {
		t.Errorf("the bad version is %+v", three.Version)
	}
	a := g.json("/f/predict", fmt.Sprintf(`{"input":%s}`, toJSON(t, d.Pixels[0])))
	if !a.predicted() || a.Models[0] != "digits@2" {
		t.Errorf("after the retreat a digit is answered by %v", a)
	}
}

// A roll-out retreats from a slow version, and from a failing one, without feedback.
func TestRolloutRetreats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ how, guard, reason string }{
		{"slow", "{min_feedback: 100000, max_p99_increase: 0.1}", "p99"},
		{"fails", "{min_feedback: 100000, max_error_increase: 0.1}", "failure rate"},
	} {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			m := number("m", "echo", uncached)
			two := strings.Replace(version(m, "2"), fmt.Sprintf(`[%q, "-mode", echo]`, programs.worker), fmt.Sprintf("[python, %q, %s]", rolloutFile(t, "misbehave.py"), c.how), 1)
			g := serve(t, "--python", python(t), "--config", manifest(t, m, function("f", "m", "slo: 60s")))
			g.apply(two, traffic("m", fmt.Sprintf(`rollout: {version: "2", policy: exp3, guard: %s}`, c.guard)))
			var stopped atomic.Bool
			var wg sync.WaitGroup
			ctx := bounded(t)
			for client := range 64 {
				wg.Go(func() {
					for i := 0; !stopped.Load(); i++ {
						a, err := g.tryAsk(ctx, "f", client*maxLoad+i, "")
						switch {
						case err != nil:
							t.Error(err)
							return
						case a.predicted() && a.number() == client*maxLoad+i:
						case c.how == "fails" && a.Code == api.ModelError.String():
						default:
							t.Errorf("a query is answered by %v", a)
						}
					}
				})
			}
			defer func() { stopped.Store(true); wg.Wait() }()
			st := g.awaitTraffic("m", "the retreat", func(t api.TrafficStatus) bool { return t.Spec.Rollback != nil })
			if b := st.Spec.Rollback; b.From != "2" || b.To != "1" || st.Spec.Rollout != nil || !strings.Contains(b.Reason, c.reason) {
				t.Errorf("after the retreat the traffic is %s", toJSON(t, st))
			}
			if e := g.lastEvent("m", "retreated"); !strings.HasPrefix(e.By, "rollout") || !strings.Contains(e.Detail, c.reason) {
				t.Errorf("the retreat in the history is %+v", e)
			}
			g.awaitPhase("m@2", api.PhaseDeclared)
			g.awaitNoProcess("m@2")
			g.await("version 1 to answer", func(ctx context.Context) (bool, string) {
				a, err := g.tryAsk(ctx, "f", 5, "")
				return err == nil && a.predicted() && a.Models[0] == "m@1", a.String()
			})
		})
	}
}
