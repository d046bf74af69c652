package apptest

import (
	"fmt"
	"strings"
	"testing"
)

// Errors in a function's policy, default or models are refused by apply and by serve, with the file, the line and the
// reason. Nothing is declared.
func TestPolicyErrors(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("a", "echo"), number("b", "noop"), testModel("text", nil)))
	for _, c := range []struct{ what, field, text, says string }{
		{"unknown policy", "policy:", "kind: Function\nname: f\nmodels: [a, b]\npolicy: exp33\n", `there is no policy "exp33": did you mean "exp3"?`},
		{"unknown parameter", "policy:", "kind: Function\nname: f\nmodels: [a, b]\npolicy: {name: exp3, etta: 0.1}\n", `exp3 has no such parameter: did you mean "eta"?`},
		{"parameter of a wrong type", "policy:", "kind: Function\nname: f\nmodels: [a, b]\npolicy: {name: exp3, eta: fast}\n", `"fast" is a string: expected a number`},
		{"parameter out of range", "policy:", "kind: Function\nname: f\nmodels: [a, b]\npolicy:\n  name: exp3\n  eta: -1\n", "expected a number from"},
		{"a weight for an unknown model", "policy:", "kind: Function\nname: f\nmodels: [a, b]\npolicy: {name: split, weights: {a: 1, c: 2}}\n", "is not among the function's models"},
		{"several models of single", "models:", "kind: Function\nname: f\nmodels: [a, b]\n", `the policy "single" takes one`},
		{"default of a wrong type", "default:", "kind: Function\nname: f\nmodels: [a, b]\npolicy: exp4\ndefault: none\n", "default"},
		{"doubt without a default", "min_confidence:", "kind: Function\nname: f\nmodels: [a, b]\npolicy: exp4\nmin_confidence: 0.6\n", "needs a default output"},
		{"models of different signatures", "models:", "kind: Function\nname: f\nmodels: [a, text]\npolicy: exp4\n", "model text@1 takes other inputs than a@1"},
		{"shadow of another signature", "shadow:", "kind: Function\nname: f\nmodels: [a]\nshadow: {text: 0.1}\n", "model text@1 takes other inputs than a@1"},
		{"shadow that is a candidate", "shadow:", "kind: Function\nname: f\nmodels: [a]\nshadow: {a: 0.1}\n", "is a candidate too"},
		{"loss of what is no number", "loss:", "kind: Function\nname: f\nmodels: [text]\nloss: absolute\n", "loss"},
		{"unknown loss", "loss:", "kind: Function\nname: f\nmodels: [a]\nloss: cubic\n", "expected"},
		{"a model that is not there", "models:", "kind: Function\nname: f\nmodels: [a, nobody]\npolicy: exp3\n", "nobody"},
	} {
		// A good document comes first, so the reported lines must be those of the whole file.
		file := manifest(t, number("new", "echo"), "---\n", c.text)
		r := g.xebec("apply", "-f", file)
		r.wants(t, c.what, 1, "", c.says)
		line := strings.Count(strings.SplitAfter(number("new", "echo")+"---\n"+c.text, "\n"+c.field)[0], "\n") + 1
		if place := fmt.Sprintf("%s:%d", file, line); !strings.Contains(r.err, place) && !strings.Contains(r.err, fmt.Sprintf("%s:%d", file, line+2)) {
			t.Errorf("%s: the message does not name %s:\n%s", c.what, place, r.err)
		}
	}
	g.xebec("get", "model", "new").wants(t, "after refused manifests", 1, "", "no model")
	g.xebec("get", "function", "f").wants(t, "after refused manifests", 1, "", "no function")

	file := manifest(t, number("a", "echo"), number("b", "echo"), function("f", "a, b", "policy: exp33"))
	failed := launch(t, newDir(t), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", file)
	failed.gone(1)
	if text := failed.logText(); !strings.Contains(text, file+":") || !strings.Contains(text, `did you mean "exp3"?`) {
		t.Errorf("serve with an unknown policy says\n%s", text)
	}
	g.apply(function("f", "a, b", "slo: 60s", "policy: {name: exp3, eta: 0.2}", "loss: zero-one"))
	g.xebec("apply", "-f", manifest(t, version(strings.Replace(number("b", "noop"), "int64", "float32", 1), "2"))).wants(t, "a version of another signature", 1, "", "b@2")
	g.xebec("get", "function", "f", "-o", "yaml").wants(t, "get", 0, "eta: 0.2", "")
}

// Every policy serves, learns from labels or at least counts them, and shows that in describe.
func TestEveryPolicyServes(t *testing.T) {
	t.Parallel()
	all := []string{"split", "exp3", "exp4", "epsilon-greedy", "ucb1", "thompson"}
	parts := []string{number("right", "echo"), number("wrong", "noop")}
	for _, name := range all {
		policy := "policy: " + name
		if name == "split" {
			policy = "policy: {name: split, weights: {right: 0.9, wrong: 0.1}}"
		}
		parts = append(parts, function("by-"+name, "wrong, right", "slo: 60s", policy))
	}
	g := serve(t, "--config", manifest(t, parts...), "--data-dir", newDir(t))
	for _, name := range all {
		g.teach("by-"+name, 1, 150, "", itself)
		p := g.learned("by-" + name)
		if right := row(t, p.Candidates, "right"); p.Name != name || right.Weight < 0.55 || right.MeanLoss != 0 || right.Count == 0 {
			t.Errorf("%s has learned %+v", name, p)
		}
		right := 0
		for input := range 60 {
			if a := g.ask("by-"+name, 1000+input, ""); a.number() == 1000+input {
				right++
			}
		}
		if right < 40 {
			t.Errorf("%s is right in %d of 60 queries", name, right)
		}
	}
	// Queries of one context stay with one candidate.
	first := g.ask("by-split", 1, `,"context":"ann"`)
	for input := range 20 {
		if a := g.ask("by-split", input, `,"context":"ann"`); fmt.Sprint(a.Models) != fmt.Sprint(first.Models) {
			t.Errorf("a query of ann is answered by %v, an earlier one by %v", a.Models, first.Models)
		}
	}
}
