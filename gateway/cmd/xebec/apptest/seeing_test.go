package apptest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// restarted stops the gateway, and starts another one with the same data.
func (g *gateway) restarted(args ...string) *gateway {
	g.t.Helper()
	g.stop()
	return serve(g.t, args...)
}

// linucb sends each input to the model that is right for such inputs. What it has learned survives a restart.
func TestLinUCBRoutesByInput(t *testing.T) {
	t.Parallel()
	args := []string{"--data-dir", filepath.Join(newDir(t), "data"), "--config", manifest(t, number("echoes", "echo"), number("zeroes", "noop"),
		function("f", "echoes, zeroes", "slo: 60s", "policy: {name: linucb, features: 1, alpha: 0.5}"))}
	g := serve(t, args...)
	right := func(input int) int { return max(input, 0) } // of negative inputs the other model's answer
	wrong := func(g *gateway) (n int) {
		for input := 1; input <= 20; input++ {
			for _, x := range []int{input, -input} {
				if a := g.ask("f", x, ""); !a.predicted() || a.number() != right(x) {
					n++
				}
			}
		}
		return n
	}
	if n := wrong(g); n != 20 {
		t.Fatalf("before any feedback one model is asked, and %d of 40 answers are wrong", n)
	}
	for input := 1; input <= 150; input++ {
		g.teach("f", input, 1, "", right)
		g.teach("f", -input, 1, "", right)
	}
	if n := wrong(g); n > 0 {
		t.Errorf("after 300 labels %d of 40 answers are wrong", n)
	}
	g.saved("f")
	g = g.restarted(args...)
	if n := wrong(g); n > 0 {
		t.Errorf("after a restart %d of 40 answers are wrong", n)
	}
	file := filepath.Join(newDir(t), "learned.json")
	g.must("learn", "export", "f", "--file", file)
	g.must("learn", "reset", "f", "--all")
	if n := wrong(g); n == 0 {
		t.Error("after a reset it routes as before")
	}
	g.must("learn", "import", "f", "-f", file)
	if n := wrong(g); n > 0 {
		t.Errorf("after an import of what it had learned %d of 40 answers are wrong", n)
	}
}

// stacking begins with the vote, and learns that the minority is right. What it has learned survives a restart.
func TestStackingLearnsFromLabels(t *testing.T) {
	t.Parallel()
	args := []string{"--data-dir", filepath.Join(newDir(t), "data"), "--config", manifest(t, number("right", "echo"), number("a", "noop"), number("b", "noop"),
		function("f", "right, a, b", "slo: 60s", "policy: {name: stacking, classes: 8}"))}
	g := serve(t, args...)
	if a := g.ask("f", 2, ""); !a.predicted() || a.number() != 0 {
		t.Fatalf("two of three models say 0, and untrained the function answers %v", a)
	}
	for range 60 {
		g.teach("f", 1, 3, "", itself)
	}
	check := func(when string, g *gateway) {
		t.Helper()
		for input := 1; input <= 3; input++ {
			if a := g.ask("f", input, ""); !a.predicted() || a.number() != input || a.Confidence < 0.5 {
				t.Errorf("%s: %d is answered by %v", when, input, a)
			}
		}
	}
	check("trained", g)
	g.saved("f")
	check("after a restart", g.restarted(args...))
}

// rank-fusion answers with a list that no model has given, and weighs models by where they rank the right item.
func TestRankFusionOfLists(t *testing.T) {
	t.Parallel()
	ranking := func(name, list string) string {
		m := pythonModel(t, newDir(t), name, "import numpy, xebec\nxebec.serve(lambda batch: numpy.tile(numpy.array(["+list+"], numpy.int32), (len(batch), 1)))\n")
		return strings.Replace(m, "outputs: [{name: output, dtype: bytes, shape: []}]", "outputs: [{name: output, dtype: int32, shape: [3]}]", 1)
	}
	args := []string{"--data-dir", filepath.Join(newDir(t), "data"), "--python", python(t), "--config", manifest(t,
		ranking("a", "1, 2, 3"), ranking("b", "2, 1, 3"), ranking("c", "3, 2, 1"),
		function("f", "a, b, c", "slo: 60s", "cold_start: 60s", "policy: {name: rank-fusion, k: 1}"))}
	g := serve(t, args...)
	answer := func(g *gateway) answer {
		t.Helper()
		a := g.json("/f/predict", `{"input":{"b64":"eA=="}}`)
		if !a.predicted() || len(a.Models) != 3 {
			t.Fatalf("the answer is %v", a)
		}
		return a
	}
	if got := string(answer(g).Output); got != "[2,1,3]" {
		t.Errorf("the fused list is %s", got)
	}
	for range 50 { // item 1 is right: model a is always right, b half
		a := answer(g)
		if status, said := g.tell("f", `{"query_id":%d,"label":[1,3,2]}`, *a.QueryID); status != 200 || said.Status != "counted" {
			t.Fatalf("%d %+v", status, said)
		}
	}
	check := func(when string, g *gateway) {
		t.Helper()
		if got := string(answer(g).Output); got != "[1,2,3]" {
			t.Errorf("%s the fused list is %s, and item 1 was right each time", when, got)
		}
		if p := g.learned("f"); row(t, p.Candidates, "a").MeanLoss > 0.01 || row(t, p.Candidates, "c").MeanLoss < 0.6 {
			t.Errorf("%s the losses are not 1 less the reciprocal ranks: %+v", when, p.Candidates)
		}
	}
	check("after feedback", g)
	g.saved("f")
	check("after a restart", g.restarted(args...))
}

// Inputs are kept for feedback within --feedback-memory. An input that has made room is said to be missing, in the answer and in a metric.
func TestEvictedInputsAreSaid(t *testing.T) {
	t.Parallel()
	g := serve(t, "--feedback-memory", "64", "--config", manifest(t, number("echoes", "echo"), number("zeroes", "noop"),
		function("f", "echoes, zeroes", "slo: 60s", "policy: linucb")))
	var ids []uint64
	for input := range 20 {
		ids = append(ids, *g.ask("f", input, "").QueryID)
	}
	for i, want := range map[int]string{0: "counted_in_part", 1: "counted_in_part", 19: "counted"} {
		status, said := g.tell("f", `{"query_id":%d,"label":%d}`, ids[i], i)
		if status != 200 || said.Status != want || strings.Contains(said.Cause, "--feedback-memory") != (want != "counted") {
			t.Errorf("query %d of 20: %d %+v, want %s", i, status, said, want)
		}
	}
	if text := g.must("describe", "function", "f"); !strings.Contains(text, "2 counted without its input") {
		t.Errorf("describe says\n%s", text)
	}
	_, body := g.fetch(bounded(t), "http://"+g.admin+"/metrics")
	if want := fmt.Sprintf("xebec_feedback_total{function=%q,outcome=%q} 2", "f", "counted_in_part"); !strings.Contains(body, want) {
		t.Errorf("the metrics do not have %s", want)
	}
}

// Parameters are judged when they are declared.
func TestParametersOfSeeingPolicies(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, number("a", "echo"), number("b", "noop")))
	for policy, says := range map[string]string{
		"{name: linucb, features: 100}":         "from 1 to 32",
		"{name: stacking, clases: 3}":           `did you mean "classes"`,
		"{name: rank-fusion, learn: sometimes}": "true or false",
	} {
		r := g.xebec("apply", "-f", manifest(t, function("f", "a, b", "slo: 60s", "policy: "+policy)))
		if r.status == 0 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d, %s: want %q", policy, r.status, r.err, says)
		}
	}
}
