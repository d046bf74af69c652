package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// rightAndWrong is a function with two candidates of which one is always right.
func rightAndWrong() string {
	return number("right", "echo") + number("wrong", "noop") + `
---
kind: Function
name: f
models: [right, wrong]
policy: {name: exp4, eta: 0.2}
slo: 10s
`
}

// What was learned goes into a file, and from there into a gateway that has never learned: it gives the same answers with the same confidence.
func TestLearnedIsExportedAndImported(t *testing.T) {
	t.Parallel()
	g := serve(t, "--data-dir", newDir(t))
	g.apply(rightAndWrong())
	g.teach("f", 1, 12, "", itself)
	g.teach("f", 1, 6, `,"context":"ann"`, zero) // for Ann the other model is right
	g.teach("f", 1, 1, `,"context":"bob"`, itself)
	file := filepath.Join(t.TempDir(), "learned.json")
	g.must("learn", "export", "f", "--all", "--file", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if again := g.must("learn", "export", "f", "--all"); again != string(text) {
		t.Errorf("the same state is two texts (-file +stdout):\n%s", cmp.Diff(string(text), again))
	}
	answer := func(g *gateway, context string) string {
		a := g.ask("f", 7, context)
		return fmt.Sprint(a.number(), a.Confidence)
	}
	contexts := []string{"", `,"context":"ann"`, `,"context":"bob"`, `,"context":"cid"`}
	var want []string
	for _, c := range contexts {
		want = append(want, answer(g, c))
	}
	if want[0] == want[1] {
		t.Fatalf("Ann is answered as everybody: %q", want)
	}
	before := g.learned("f").Candidates

	other := serve(t, "--data-dir", newDir(t)) // with an empty data directory
	other.apply(rightAndWrong())
	if out := other.must("learn", "import", "f", "-f", file, "--dry-run"); !strings.Contains(out, "it fits: 3 states would be replaced") {
		t.Errorf("the dry run says %q", out)
	}
	if n := row(t, other.learned("f").Candidates, "right").Count; n != 0 {
		t.Errorf("a dry run taught it %v losses", n)
	}
	if out := other.must("learn", "import", "f", "-f", file); !strings.Contains(out, "function f: 3 states replaced by ") {
		t.Errorf("the import says %q", out)
	}
	if diff := cmp.Diff(before, other.learned("f").Candidates); diff != "" {
		t.Errorf("candidates (-exported +imported):\n%s", diff)
	}
	for i, c := range contexts {
		other.await("the answers of "+c, func(ctx context.Context) (bool, string) { // a context is read in the background
			got := answer(other, c)
			return got == want[i], fmt.Sprintf("%s, want %s", got, want[i])
		})
	}
	if again := other.must("learn", "export", "f", "--all"); again != string(text) {
		t.Errorf("export of the import (-first +second):\n%s", cmp.Diff(string(text), again))
	}

	var history api.LearnedHistory
	if err := json.Unmarshal([]byte(other.must("learn", "history", "f", "-o", "json")), &history); err != nil {
		t.Fatal(err)
	}
	if n := len(history.Samples); n < 2 || history.Samples[n-1].Reason != api.LearnedNow || history.Samples[n-2].Reason != api.LearnedImport {
		t.Errorf("the history is %+v", history)
	}
	for _, c := range []struct{ args, want string }{
		{"learn export f --context cid", "nothing was learned about the context alone"},
		{"learn export f --context ann --all", "--context and --all exclude each other"},
		{"learn export nothing", `no function "nothing"`},
		{"learn import f", "import needs -f FILE"},
		{"learn forget f", `there is no command "forget"`},
	} {
		if r := other.xebec(strings.Fields(c.args)...); r.status == 0 || !strings.Contains(r.err, c.want) {
			t.Errorf("xebec %s: %+v: want %q", c.args, r, c.want)
		}
	}
	other.apply(strings.Replace(rightAndWrong(), "models: [right, wrong]", "models: [right]", 1))
	if r := other.xebec("learn", "import", "f", "-f", file); r.status == 0 || !strings.Contains(r.err, "its candidates are right, wrong, and those of function f right; the function does not have wrong") {
		t.Errorf("an import that does not fit: %+v", r)
	}
}

func TestLearnedIsReset(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	g := serve(t, "--data-dir", dir)
	g.apply(rightAndWrong())
	g.teach("f", 1, 6, `,"context":"ann"`, zero)
	g.teach("f", 1, 12, "", itself) // from then on the other model is right, but not for Ann
	g.must("learn", "reset", "f", "--context", "ann")
	global := g.learned("f").Candidates
	g.await("Ann to be as everybody", func(ctx context.Context) (bool, string) {
		f, err := g.described(ctx, "f")
		if err != nil {
			return false, err.Error()
		}
		for _, c := range f.Policy.Contexts {
			if c.Context == "ann" && row(t, c.Candidates, "right").Weight <= row(t, c.Candidates, "wrong").Weight {
				return false, fmt.Sprintf("%+v", c)
			}
		}
		return true, ""
	})
	if n := row(t, global, "right").Count; n < 12 {
		t.Errorf("over all contexts %v losses are left: Ann's reset is not theirs", n)
	}
	g.must("learn", "reset", "f", "--all")
	for _, c := range g.learned("f").Candidates {
		if c.Count != 0 || c.Weight != 0.5 {
			t.Errorf("after the reset: %+v", c)
		}
	}
	g.stop()
	g = serve(t, "--data-dir", dir)
	for _, c := range g.learned("f").Candidates {
		if c.Count != 0 || c.Weight != 0.5 {
			t.Errorf("after a restart: %+v", c)
		}
	}
	if out := g.must("learn", "history", "f", "--samples"); strings.Count(out, "reset") != 2 {
		t.Errorf("the history is\n%s", out)
	}
}

// A reset reaches the gateway that shares the store.
func TestLearnedIsResetForTwoGateways(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Config{})
	a, b := serve(t, "--store", s.URL()), serve(t, "--store", s.URL())
	a.apply(rightAndWrong())
	b.await("the function", func(ctx context.Context) (bool, string) {
		got, err := b.tryAsk(ctx, "f", 7, "")
		return err == nil && got.predicted(), fmt.Sprint(got, err)
	})
	b.teach("f", 1, 12, `,"context":"ann"`, itself)
	b.saved("f")
	exported := a.must("learn", "export", "f", "--all")
	if !strings.Contains(exported, `"context":"ann"`) {
		t.Errorf("one gateway does not export what the other has learned:\n%s", exported)
	}
	a.must("learn", "reset", "f", "--all")
	b.awaitLearned("f", "what was learned is gone", func(p api.PolicyStatus) bool {
		b.ask("f", 1, `,"context":"ann"`)
		all := append([]api.ContextStatus{{Candidates: p.Candidates}}, p.Contexts...)
		for _, c := range all {
			if row(t, c.Candidates, "right").Weight != 0.5 {
				return false
			}
		}
		return true
	})
	if out := b.must("learn", "export", "f", "--all"); strings.Contains(out, `"count":1`) {
		t.Errorf("after the reset:\n%s", out)
	}
}

// The admin port's token protects what was learned, and changes are audited.
func TestLearnedNeedsTheToken(t *testing.T) {
	t.Parallel()
	dir, secret := newDir(t), token(t)
	file, own := filepath.Join(dir, "tokens"), filepath.Join(dir, "own")
	tokens(t, file, 0o600, "ann:"+secret)
	tokens(t, own, 0o600, secret)
	g := serve(t, "--admin-token-file", file)
	for _, r := range []struct{ method, path string }{
		{"GET", "/v1/learned/f"}, {"PUT", "/v1/learned/f"}, {"DELETE", "/v1/learned/f?all"}, {"GET", "/v1/learned/f/history"},
	} {
		req, err := http.NewRequestWithContext(bounded(t), r.method, "http://"+g.admin+r.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("%s %s without a token: %d", r.method, r.path, resp.StatusCode)
		}
	}
	if r := g.xebec("learn", "reset", "f", "--all", "--token-file", own); r.status == 0 || !strings.Contains(r.err, `no function "f"`) {
		t.Errorf("with the token: %+v", r)
	}
	g.audit("ann", "reset learned", "Function f, what it has learned in all contexts", "not_found")
}

// With `prefer`, the planner values candidates by their labels once there are enough of both: here the one that is declared last is right. The budget
// lets both answer.
func TestPreferIsValuedByLabels(t *testing.T) {
	t.Parallel()
	g := serve(t)
	g.apply(number("wrong", "noop", "cost: 1"), number("right", "echo"), function("f", "wrong, right", "policy: prefer", "budget: 5", "slo: 10s"))
	n := 0
	g.await("the right model is worth most", func(ctx context.Context) (bool, string) {
		for range 20 {
			n++
			if a, err := g.tryAsk(ctx, "f", n, ""); err == nil && a.predicted() {
				g.tell("f", `{"query_id":%d,"label":%d}`, *a.QueryID, n)
			}
		}
		status, body := g.fetch(ctx, "http://"+g.admin+"/v1/describe/scheduler")
		var s api.SchedulerStatus
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			return false, fmt.Sprint(status, err)
		}
		gains := map[string]float64{}
		for _, f := range s.Functions {
			for _, c := range f.Candidates {
				gains[c.Model] = c.Gain
			}
		}
		labels := map[string]float64{}
		for _, c := range g.learned("f").Candidates {
			labels[c.Model] = c.Count
		}
		if (labels["wrong@1"] < 50 || labels["right@1"] < 50) && gains["wrong@1"] != 0 && (gains["wrong@1"] != 1 || gains["right@1"] != 0.9) {
			t.Fatalf("with %v labels the gains are %v: want those of the order", labels, gains)
		}
		return gains["right@1"] == 1 && gains["wrong@1"] == 0.1, fmt.Sprintf("gains %v, labels %v", gains, labels)
	})
}
