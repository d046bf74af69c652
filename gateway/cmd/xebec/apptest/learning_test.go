package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// number is a manifest of a model served by xebec-testworker, one integer in and one out. In mode echo it answers its
// input, in mode noop 0. extra are additional lines of the model.
func number(name, mode string, extra ...string) string {
	return fmt.Sprintf(`
---
kind: Model
name: %s
version: "1"
inputs:  [{name: input, dtype: int64, shape: []}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [%q, "-mode", %s]}
%s
`, name, programs.worker, mode, strings.Join(extra, "\n"))
}

// version changes a manifest of version 1 to another version.
func version(manifest, v string) string {
	return strings.Replace(manifest, `version: "1"`, fmt.Sprintf("version: %q", v), 1)
}

// stoppable are lines of a model whose worker the test stops: its timeout is so long that it is not killed as hanging.
const stoppable = "timeout: 10m"

// ask queries a function with a number. more are members beside the input, each preceded by a comma.
func (g *gateway) ask(function string, input int, more string, headers ...string) answer {
	g.t.Helper()
	a, err := g.tryAsk(bounded(g.t), function, input, more, headers...)
	if err != nil {
		g.t.Fatalf("%s: %v", function, err)
	}
	return a
}

// tryAsk is ask for conditions and for goroutines other than the test's.
func (g *gateway) tryAsk(ctx context.Context, function string, input int, more string, headers ...string) (answer, error) {
	return g.post(ctx, "/"+function+"/predict", "application/json", fmt.Appendf(nil, `{"input":%d%s}`, input, more), headers...)
}

// number returns the output.
func (p prediction) number() int {
	n, err := strconv.Atoi(string(p.Output))
	if err != nil {
		return -1 << 32
	}
	return n
}

// told is the answer to feedback.
type told struct {
	Status  string `json:"status"`
	Cause   string `json:"cause"`
	Code    string `json:"code"`
	Results []struct {
		QueryID uint64 `json:"query_id"`
		Status  string `json:"status"`
		Cause   string `json:"cause"`
	} `json:"feedback_results"`
}

// tell sends feedback to a function and returns the answer. body is a format with args.
func (g *gateway) tell(function, format string, values ...any) (status int, t told) {
	g.t.Helper()
	a := g.json("/"+function+"/feedback", fmt.Sprintf(format, values...))
	if err := json.Unmarshal(a.Body, &t); err != nil {
		g.t.Fatalf("feedback is answered by %v: %v", a, err)
	}
	return a.Status, t
}

// teach sends n queries with inputs from first on, and the right label for each. more is as for ask.
func (g *gateway) teach(function string, first, n int, more string, right func(input int) int) {
	g.t.Helper()
	for input := first; input < first+n; input++ {
		a := g.ask(function, input, more)
		if !a.predicted() {
			g.t.Fatalf("%s of %d is answered by %v", function, input, a)
		}
		if status, said := g.tell(function, `{"query_id":%d,"label":%d}`, *a.QueryID, right(input)); status != 200 || said.Status != "counted" {
			g.t.Fatalf("feedback for query %d is answered by %d %+v", *a.QueryID, status, said)
		}
	}
}

// itself and zero return the answers of the models in number.
func itself(input int) int { return input }
func zero(int) int         { return 0 }

// described returns a function as describe shows it.
func (g *gateway) described(ctx context.Context, function string) (f api.FunctionStatus, err error) {
	status, body := g.fetch(ctx, "http://"+g.admin+"/v1/describe/function/"+function)
	if status != 200 {
		return f, fmt.Errorf("%d %s", status, body)
	}
	var d api.FunctionDescription
	err = json.Unmarshal([]byte(body), &d)
	if err == nil && d.Function.Policy == nil {
		err = fmt.Errorf("no policy in %s", body)
	}
	return d.Function, err
}

// learned returns the present state of a function's policy.
func (g *gateway) learned(function string) api.PolicyStatus {
	g.t.Helper()
	f, err := g.described(bounded(g.t), function)
	if err != nil {
		g.t.Fatal(err)
	}
	return *f.Policy
}

// awaitLearned waits until the function's policy meets a condition.
func (g *gateway) awaitLearned(function, what string, condition func(api.PolicyStatus) bool) api.PolicyStatus {
	g.t.Helper()
	var last api.PolicyStatus
	g.await(fmt.Sprintf("function %s: %s", function, what), func(ctx context.Context) (bool, string) {
		f, err := g.described(ctx, function)
		if err != nil {
			return false, err.Error()
		}
		last = *f.Policy
		return condition(last), fmt.Sprintf("%+v, store %+v", last, last.Store)
	})
	return last
}

// saved waits until the store has everything that was learned.
func (g *gateway) saved(function string) api.PolicyStatus {
	g.t.Helper()
	return g.awaitLearned(function, "everything is in the store", func(p api.PolicyStatus) bool { return p.Store != nil && p.Store.Pending == 0 && !p.Store.Away })
}

// row returns a candidate by its name in the declaration.
func row(t *testing.T, all []api.CandidateLearning, ref string) api.CandidateLearning {
	t.Helper()
	for _, c := range all {
		if c.Ref == ref {
			return c
		}
	}
	t.Fatalf("there is no candidate %s in %+v", ref, all)
	return api.CandidateLearning{}
}

// ofContext returns the candidates of one context.
func ofContext(t *testing.T, p api.PolicyStatus, context string) []api.CandidateLearning {
	t.Helper()
	for _, c := range p.Contexts {
		if c.Context == context {
			return c.Candidates
		}
	}
	t.Fatalf("there is no context %s in %+v", context, p.Contexts)
	return nil
}

// stall stops a model's only worker until release is called.
func stall(g *gateway, model string) (release func()) {
	g.t.Helper()
	return freeze(g.t, g.awaitReplicas(model, 1).Replicas[0].PID)
}

// apply applies the manifests and fails if they are refused.
func (g *gateway) apply(parts ...string) string {
	g.t.Helper()
	return g.must("apply", "-f", manifest(g.t, parts...), "--wait")
}

// threeModels is a function over three models, one of which answers its input and the others 0.
func threeModels(policy string, extra ...string) string {
	return number("right", "echo") + number("wrong", "noop") + number("worse", "noop") +
		function("f", "wrong, right, worse", append(extra, "slo: 60s", "policy: "+policy)...)
}

// A bandit over three models sends nearly all queries to the right one after some feedback, and describe shows that. A
// gateway that is killed and restarted still has what it learned, except for the last moment.
func TestBanditLearnsAndRemembers(t *testing.T) {
	t.Parallel()
	const feedbacks, more = 120, 20
	args := []string{"--config", manifest(t, threeModels("{name: exp3, eta: 0.3}")), "--data-dir", newDir(t)}
	g := serve(t, args...)
	if p := g.learned("f"); p.Name != "exp3" || p.Mode != api.PolicyAsksOne || !p.Learns || len(p.Candidates) != 3 || p.Candidates[0].Share > 0.4 {
		t.Errorf("before any feedback describe says %+v", p)
	}
	g.teach("f", 1, feedbacks, "", itself)
	right := 0
	for input := range 100 {
		a := g.ask("f", 1000+input, "")
		if len(a.Models) != 1 || a.Confidence != 1 || a.number() != 0 && a.Models[0] != "right@1" {
			t.Fatalf("a bandit answers %v", a)
		}
		if a.Models[0] == "right@1" {
			right++
		}
	}
	if right < 80 {
		t.Errorf("after %d labels %d of 100 queries go to the right model: expected nearly all", feedbacks, right)
	}
	before := g.saved("f")
	best := row(t, before.Candidates, "right")
	if best.Share < 0.8 || best.Model != "right@1" || best.MeanLoss != 0 || best.Count < 20 || before.Feedback.Counted != feedbacks || row(t, before.Candidates, "wrong").MeanLoss != 1 {
		t.Errorf("describe says %+v", before)
	}
	if text := g.must("describe", "function", "f"); !strings.Contains(text, "exp3 (eta 0.3)") || !strings.Contains(text, fmt.Sprintf("%d counted", feedbacks)) || !strings.Contains(text, "MEAN LOSS") {
		t.Errorf("describe says\n%s", text)
	}
	g.teach("f", 2000, more, "", itself)
	kill(t, g.cmd.Process.Pid)
	g.gone(-1)

	again := serve(t, args...)
	after := again.awaitLearned("f", "the learned state", func(p api.PolicyStatus) bool { return total(p.Candidates) >= total(before.Candidates)-1e-9 })
	// Counts decay with each loss, so they are a little less than the number of losses.
	if n := total(after.Candidates); n > feedbacks+more || row(t, after.Candidates, "right").Share < 0.8 {
		t.Errorf("before the kill %+v, and after it %+v", before.Candidates, after.Candidates)
	}
}

// total returns the number of losses counted for the candidates.
func total(all []api.CandidateLearning) float64 {
	n := 0.0
	for _, c := range all {
		n += c.Count
	}
	return n
}

// Two users of one function learn different models, with the context in the header or in the body. A third user starts
// from what all users have taught.
func TestContextsLearnApart(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("echoes", "echo")+number("zeros", "noop")+function("f", "echoes, zeros", "slo: 60s", "policy: {name: exp3, eta: 0.3}")), "--data-dir", newDir(t))
	const feedbacks = 60
	for input := 1; input <= feedbacks; input++ {
		ann := g.ask("f", input, "", "Xebec-Context", "ann")
		bob := g.ask("f", input, `,"context":"bob"`)
		for _, told := range []struct{ id, label int }{{int(*ann.QueryID), input}, {int(*bob.QueryID), 0}} {
			if status, said := g.tell("f", `{"query_id":%d,"label":%d}`, told.id, told.label); status != 200 || said.Status != "counted" {
				t.Fatalf("feedback is answered by %d %+v", status, said)
			}
		}
	}
	answers := map[string]int{}
	for input := 1; input <= 50; input++ {
		if a := g.ask("f", 500+input, `,"context":"bob"`, "Xebec-Context", "ann"); a.number() == 500+input { // the header takes precedence
			answers["ann"]++
		}
		if a := g.ask("f", 500+input, `,"context":"bob"`); a.number() == 0 {
			answers["bob"]++
		}
	}
	if answers["ann"] < 40 || answers["bob"] < 40 {
		t.Errorf("of 50 queries per user the right model answered %v: expected nearly all", answers)
	}
	p := g.learned("f")
	ann, bob := ofContext(t, p, "ann"), ofContext(t, p, "bob")
	if row(t, ann, "echoes").Share < 0.8 || row(t, bob, "zeros").Share < 0.8 || p.ContextsInMemory < 2 {
		t.Errorf("ann's candidates are %+v, bob's %+v", ann, bob)
	}
	if n := total(p.Candidates); n < 2*feedbacks*0.9 || n > 2*feedbacks {
		t.Errorf("over all contexts %v losses are counted: expected about %d", n, 2*feedbacks)
	}
	if text := g.must("describe", "function", "f"); !strings.Contains(text, "ann") || !strings.Contains(text, "(all)") {
		t.Errorf("describe does not show contexts:\n%s", text)
	}
	if a := g.ask("f", 7, "", "Xebec-Context", strings.Repeat("x", 300)); a.Status != 400 || !strings.Contains(a.Cause, "context") {
		t.Errorf("a context of 300 bytes is answered by %v", a)
	}
}

// A function that names a model without a version keeps what it has learned when a new version serves. An added candidate
// starts at the mean of the others, and a removed one is dropped. Neither changes what is known of the rest.
func TestCandidatesComeAndGo(t *testing.T) {
	t.Parallel()
	over := func(models string) string {
		return function("f", models, "slo: 60s", "policy: {name: exp3, eta: 0.3}")
	}
	right := number("right", "echo")
	g := serve(t, "--config", manifest(t, right, number("wrong", "noop"), number("new", "noop"), over("wrong, right")), "--data-dir", newDir(t))
	g.teach("f", 1, 60, "", itself)
	before := g.learned("f").Candidates
	same := func(what string, all []api.CandidateLearning, refs ...string) {
		t.Helper()
		for _, ref := range refs {
			if was, is := row(t, before, ref), row(t, all, ref); !equalNearly(is.Count, was.Count) || is.MeanLoss != was.MeanLoss {
				t.Errorf("%s, %s has %v losses of %v: expected %v of %v", what, ref, is.Count, is.MeanLoss, was.Count, was.MeanLoss)
			}
		}
		// Weights are relative to each other.
		was, is := row(t, before, "right").Weight/row(t, before, refs[0]).Weight, row(t, all, "right").Weight/row(t, all, refs[0]).Weight
		if is < 0.99*was || is > 1.01*was {
			t.Errorf("%s, the weight of right is %v times that of %s: expected %v", what, is, refs[0], was)
		}
	}

	g.apply(version(right, "2"))
	g.awaitLearned("f", "the new version to serve", func(p api.PolicyStatus) bool { return row(t, p.Candidates, "right").Model == "right@2" })
	same("with a new version", g.learned("f").Candidates, "wrong", "right")
	g.await("the new version to answer", func(ctx context.Context) (bool, string) {
		a, err := g.tryAsk(ctx, "f", 5, "")
		return err == nil && len(a.Models) == 1 && a.Models[0] == "right@2" && a.number() == 5, a.String()
	})

	g.apply(over("wrong, right, new"))
	p := g.learned("f")
	same("with another candidate", p.Candidates, "wrong", "right")
	if n := row(t, p.Candidates, "new"); !(n.Share > row(t, p.Candidates, "wrong").Share) || !(n.Share < row(t, p.Candidates, "right").Share) {
		t.Errorf("the new candidate has %+v of %+v: expected a value between the others", n, p.Candidates)
	}

	g.apply(over("right, new"))
	p = g.learned("f")
	if len(p.Candidates) != 2 || !equalNearly(row(t, p.Candidates, "right").Count, row(t, before, "right").Count) {
		t.Errorf("after the removal of one the candidates are %+v", p.Candidates)
	}
	g.must("delete", "model", "wrong")
	if a := g.ask("f", 9, ""); !a.predicted() {
		t.Errorf("after the changes the function answers %v", a)
	}
}

// equalNearly allows for the rounding of sums that fade with time.
func equalNearly(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
