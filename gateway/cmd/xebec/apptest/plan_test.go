package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// plan returns what describe scheduler shows.
func (g *gateway) plan() (st api.SchedulerStatus) {
	g.t.Helper()
	if err := json.Unmarshal([]byte(g.must("describe", "scheduler", "-o", "json")), &st); err != nil {
		g.t.Fatal(err)
	}
	return st
}

// The budget affords only part of the queries on a ladder's first candidate. The second answers the others, and describe
// says why. Without the budget the first answers all again, and while it has no replica the second does.
func TestLadder(t *testing.T) {
	t.Parallel()
	ladder := func(extra ...string) string {
		return function("f", "dear, cheap", append(extra, "policy: prefer", "slo: 60s")...)
	}
	g := serve(t, "--config", manifest(t, testModel("dear", nil, "cost: 1"), testModel("cheap", nil), ladder("budget: 5")))
	g.awaitReplicas("dear", 1)
	g.awaitReplicas("cheap", 1)
	l := g.startLoad("f", 4, 1<<30)
	by := func(model string) func(context.Context) (bool, string) {
		return func(context.Context) (bool, string) {
			a := g.raw("f", "whose answer is this?")
			return a.predicted() && len(a.Models) == 1 && a.Models[0] == model, a.String()
		}
	}
	g.await("an answer of the cheap model", by("cheap@1"))
	g.await("the plan to show the budget", func(context.Context) (bool, string) {
		for _, f := range g.plan().Functions {
			if f.Name != "f" || len(f.Candidates) != 2 {
				continue
			}
			dear, cheap := f.Candidates[0], f.Candidates[1]
			if f.CostPerSecond > f.BudgetPerSecond*1.000001 {
				t.Errorf("the plan's cost is %v of a budget of %v", f.CostPerSecond, f.BudgetPerSecond)
			}
			return strings.Contains(dear.Why, "budget") && dear.Evaluated < 1 && cheap.Evaluated > 0, fmt.Sprintf("%+v", f)
		}
		return false, "the function is not in it"
	})
	g.await("describe to say so", func(context.Context) (bool, string) { // a load that falters fits into the budget for a while
		text := g.must("describe", "scheduler")
		return strings.Contains(text, "dear@1") && strings.Contains(text, "budget"), text
	})
	judge(t, l.stop(), "ok")

	file := filepath.Join(newDir(t), "f.yaml")
	if err := os.WriteFile(file, []byte(ladder()), 0o600); err != nil {
		t.Fatal(err)
	}
	g.must("apply", "-f", file)
	g.await("an answer of the expensive model", by("dear@1"))
	if err := os.WriteFile(file, []byte(testModel("dear", nil, "cost: 1", "replicas: {min: 0, max: 1, idle: 100ms, window: 1s}")), 0o600); err != nil {
		t.Fatal(err)
	}
	g.must("apply", "-f", file)
	g.awaitAsleep("dear")
	if ok, last := by("cheap@1")(t.Context()); !ok {
		t.Errorf("while the expensive model sleeps the function is answered by %s: expected the cheap one", last)
	}
	g.await("an answer of the expensive model, which the query has woken", by("dear@1"))
}

// A budget without a second candidate refuses the queries that it does not afford, and no others.
func TestBudget(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil, "cost: 2"), function("f", "m", "slo: 60s", "budget: 20"), function("g", "m", "slo: 60s", "budget: 20", theDefault)))
	l := g.startLoad("f", 4, 1<<30)
	g.await("a query that the budget does not afford", func(context.Context) (bool, string) {
		a := g.raw("f", "is this one afforded?")
		return a.Status == 503 && a.Code == "overloaded" && a.Header.Get("Retry-After") != "", a.String()
	})
	ends := judge(t, l.stop(), "ok", "overloaded")
	if ends["ok"] == 0 {
		t.Errorf("the outcomes are %v: expected some predictions", ends)
	}
	l = g.startLoad("g", 4, 1<<30)
	g.await("a default for what the budget does not afford", func(context.Context) (bool, string) {
		a := g.raw("g", "is this one afforded?")
		return a.Default && a.text() == defaultText, a.String()
	})
	l.stop()
}

// The profile of a sleeping model is still used for plans. A model that was never queried has none, and the message says
// how to get one.
func TestPlanOfAModelThatSleeps(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", nil, uncached, "replicas: {min: 0, max: 2, idle: 1s}"), function("f", "m", "slo: 60s"), testModel("never", nil, "replicas: {min: 0, max: 2}"), function("n", "never")))
	for range 20 {
		if a := g.json("/f/predict", `{"input_batch":["a","b","c"]}`); len(a.Batch) != 3 {
			t.Fatalf("a batch is answered by %v", a)
		}
	}
	awake := g.xebec("plan", "f", "--rate", "10", "--over", "1m")
	awake.wants(t, "plan for a model that is awake", 0, "which function f asks", "")
	g.awaitAsleep("m")
	for _, of := range []string{"f", "m"} {
		g.xebec("plan", of, "--rate", "10", "--over", "1m").wants(t, "plan for a model that sleeps", 0, "the profile is that of earlier ones", "")
	}
	g.xebec("plan", "n", "--rate", "10").wants(t, "plan for a model that was never queried", 1, "", "model never@1: it has no profile yet: a replica must evaluate 16 batches")
}

// Two models that take turns on one device answer all queries. A manifest with an unknown device is refused.
func TestSharedDevice(t *testing.T) {
	t.Parallel()
	g := serve(t, "--device", "gpu0,gpu1", "--config", manifest(t,
		testModel("a", nil, "device: gpu0"), testModel("b", []string{"-spin", "1ms"}, "device: gpu0"), function("a", "a", "slo: 60s"), function("b", "b", "slo: 60s")))
	la, lb := g.startLoad("a", 4, 1<<30), g.startLoad("b", 4, 1<<30)
	la.served(200)
	lb.served(200)
	g.await("both models in the plan, on their device", func(context.Context) (bool, string) {
		st := g.plan()
		for _, d := range st.Devices {
			if d.Name == "gpu0" && len(d.Tenants) == 2 {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", st.Devices)
	})
	judge(t, la.stop(), "ok")
	judge(t, lb.stop(), "ok")

	file := filepath.Join(newDir(t), "c.yaml")
	if err := os.WriteFile(file, []byte(testModel("c", nil, "device: gpu7")), 0o600); err != nil {
		t.Fatal(err)
	}
	g.xebec("apply", "-f", file).wants(t, "a device that does not exist", 1, "", `model c@1: device: there is no device "gpu7" here: expected one of gpu0, gpu1`)
	g.must("delete", "function", "a")
	g.must("delete", "model", "a")
	lb = g.startLoad("b", 4, 1<<30)
	lb.served(50)
	judge(t, lb.stop(), "ok")
}

// With planning off every query is served, and describe says that it is off.
func TestPlanningOff(t *testing.T) {
	t.Parallel()
	g := serve(t, "--epoch", "0", "--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s")))
	l := g.startLoad("f", 4, 200)
	l.wg.Wait()
	if ends := judge(t, l.stop(), "ok"); ends["ok"] != 200 {
		t.Errorf("the outcomes are %v", ends)
	}
	if st := g.plan(); st.State != api.SchedulerOff || st.Epochs != 0 {
		t.Errorf("describe scheduler says %+v", st)
	}
}
