package apptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// weighted is a manifest of the guide's policy in Python over the models right and wrong.
func weighted(t *testing.T, dir string, edits ...string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(programs.repo, "deploy/guide/python-policies.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```python\n")
	program, _, _ = strings.Cut(program, "```\n")
	edited := strings.NewReplacer(append([]string{`["small", "large"]`, `["right", "wrong"]`}, edits...)...).Replace(program)
	if strings.Count(edited, `["right", "wrong"]`) != 1 || len(edits) > 0 && !strings.Contains(edited, edits[1]) {
		t.Fatalf("the program of the guide is not what this test changes:\n%s", program)
	}
	return strings.ReplaceAll(pythonModel(t, dir, "weighted", edited, "calls: [right, wrong]"), "dtype: bytes", "dtype: int64") + number("right", "echo") + number("wrong", "noop")
}

// A policy in Python chooses among models by what it has learned in each context.
func TestAPolicyInPython(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t), "--config", manifest(t, weighted(t, newDir(t)), function("f", "weighted", "slo: 60s")))
	right := map[string]func(int) int{"ann": itself, "ben": zero}
	next := 0
	for user, label := range right {
		more := fmt.Sprintf(`,"context":%q`, user)
		g.await("what "+user+" has taught", func(context.Context) (bool, string) {
			next++
			a := g.ask("f", next, more)
			if !a.predicted() {
				t.Fatalf("%s: %v", user, a)
			}
			if status, said := g.tell("f", `{"query_id":%d,"label":%d}`, *a.QueryID, label(next)); status != 200 || said.Status != "counted" {
				t.Fatalf("feedback is answered by %d %+v", status, said)
			}
			return a.number() == label(next) && a.Confidence > 0.9, a.String()
		})
	}
	for user, label := range right {
		if a := g.ask("f", 1000, fmt.Sprintf(`,"context":%q`, user)); a.number() != label(1000) {
			t.Errorf("%s, whose labels are %d, gets %v", user, label(1000), a)
		}
	}
	if a := g.ask("f", 1001, `,"context":"new"`); a.Confidence != 0.5 {
		t.Errorf("a new context: %v, expected one of two equal votes", a)
	}
}

// A function with a policy of the gateway over one in Python and its models answers without the Python policy when that is late, fails
// or has died. Answers and describe say so.
func TestAPolicyInPythonThatIsLateDeadOrWrong(t *testing.T) {
	t.Parallel()
	const fails = "        votes = Counter()\n        if x == 13:\n            raise ValueError('thirteen')\n        if x == 14:\n            return 'fourteen', 1\n"
	dir := newDir(t)
	g := serve(t, "--python", python(t), "--config", manifest(t, weighted(t, dir, "        votes = Counter()\n", fails),
		function("f", "weighted, right, wrong", "slo: 60s", "policy: exp4", "default: -1")))
	g.await("the policy and its models", func(context.Context) (bool, string) {
		a := g.ask("f", 1, "")
		return len(a.Models) == 3, a.String()
	})
	g.teach("f", 100, 20, "", itself)
	for _, bad := range []int{13, 14} {
		if a := g.ask("f", bad, ""); !a.predicted() || a.number() != bad || fmt.Sprint(a.Failed) != "[weighted@1]" {
			t.Errorf("the policy fails for %d, and the answer is %v", bad, a)
		}
	}
	g.describes("weighted", "Last error, ", "does not cast to int64")
	before := g.learned("f").Late // those that failed
	release := freeze(t, g.awaitReplicas("weighted", 1).Replicas[0].PID)
	a := g.ask("f", 200, "", "Xebec-Slo-Ms", "2500") // enough for the models on a busy machine
	if !a.predicted() || a.number() != 200 || fmt.Sprint(a.Late) != "[weighted@1]" {
		t.Errorf("the policy does not answer, and the answer is %v", a)
	}
	if p := g.learned("f"); p.Late != before+1 {
		t.Errorf("describe counts %d late predictions: expected %d", p.Late, before+1)
	}
	if n := g.metrics().samples[`xebec_ensemble_late_total{function="f"}`]; n != float64(before)+1 {
		t.Errorf("xebec_ensemble_late_total is %v: expected %d", n, before+1)
	}
	release()
	program, next := filepath.Join(dir, "weighted.py"), 300
	if err := os.Rename(program, program+".away"); err != nil { // it does not start again
		t.Fatal(err)
	}
	if err := syscall.Kill(g.awaitReplicas("weighted", 1).Replicas[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.await("an answer without the policy", func(context.Context) (bool, string) {
		next++
		a := g.ask("f", next, "")
		return a.predicted() && a.number() == next && fmt.Sprint(a.Models) == "[right@1 wrong@1]", a.String()
	})
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	g.await("the policy in an answer again", func(context.Context) (bool, string) {
		next++
		a := g.ask("f", next, "")
		return len(a.Models) == 3, a.String()
	})
}
