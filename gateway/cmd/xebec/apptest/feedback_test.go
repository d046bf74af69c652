package apptest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// For feedback by input the gateway queries an ensemble's members in the background, except for results that the cache
// has. A label, a verdict and a loss each count for the members that they concern.
func TestFeedbackByInputForEnsembles(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, threeModels("{name: exp4, eta: 0.5}")))
	counted := func(n uint64) api.PolicyStatus {
		t.Helper()
		return g.awaitLearned("f", fmt.Sprintf("%d feedbacks counted", n), func(p api.PolicyStatus) bool { return p.Feedback.Counted == n })
	}
	pending := func(body string, values ...any) {
		t.Helper()
		if status, said := g.tell("f", body, values...); status != 202 || said.Status != "pending" {
			t.Fatalf("feedback by input is answered by %d %+v: expected pending", status, said)
		}
	}
	pending(`{"input":5,"label":5}`)
	p := counted(1)
	if p.Feedback.Asked != 3 || row(t, p.Candidates, "right").MeanLoss != 0 || row(t, p.Candidates, "wrong").MeanLoss != 1 || row(t, p.Candidates, "worse").MeanLoss != 1 {
		t.Errorf("after a label for an input that was never queried describe says %+v", p)
	}
	g.ask("f", 6, "")
	pending(`{"input":6,"label":6}`)
	pending(`{"input":5,"label":5}`) // no query joins it to the first, so it is not a duplicate
	if p = counted(3); p.Feedback.Asked != 3 {
		t.Errorf("%d models were queried for cached results: expected none", p.Feedback.Asked-3)
	}
	for i := range 10 {
		pending(`{"input":%d,"label":%d}`, 100+i, 100+i)
	}
	p = counted(13)
	right, wrong := row(t, p.Candidates, "right"), row(t, p.Candidates, "wrong")
	if !(right.Weight > wrong.Weight) || right.Count < 12 || right.Count > 13 {
		t.Errorf("unexpected weights: %+v", p.Candidates)
	}
	// Now the right model outweighs the other two, and a verdict concerns only it.
	if a := g.ask("f", 7, ""); a.number() != 7 || a.Confidence > 0.99 {
		t.Errorf("7 is answered by %v", a)
	}
	pending(`{"input":7,"correct":true}`)
	p = counted(14)
	if r, w := row(t, p.Candidates, "right"), row(t, p.Candidates, "wrong"); r.MeanLoss != 0 || r.Count < right.Count || w.Count < wrong.Count {
		t.Errorf("after a verdict the candidates are %+v", p.Candidates)
	}
	pending(`{"input":8,"loss":0.25}`)
	p = counted(15)
	if r, w := row(t, p.Candidates, "right"), row(t, p.Candidates, "wrong"); math.Abs(r.MeanLoss*r.Count-0.25) > 0.01 || w.Count > 14 {
		t.Errorf("after a loss of 0.25 for the answer the candidates are %+v", p.Candidates)
	}
	m := g.metrics().samples
	if m[`xebec_feedback_total{function="f",outcome="counted"}`] != 15 || m[`xebec_feedback_loss_count{candidate="right",function="f"}`] != 15 || m[`xebec_feedback_loss_sum{candidate="right",function="f"}`] != 0.25 {
		t.Errorf("the metrics do not count 15 feedbacks and a loss of 0.25 for the right model: %v", m)
	}
}

// A bandit learns from feedback by input only if that input was queried, in that context. No model is queried for it. A
// query joined once makes later feedback a duplicate.
func TestFeedbackByInputForBandits(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, threeModels("exp3")))
	wants := func(status int, word, body string) {
		t.Helper()
		if got, said := g.tell("f", "%s", body); got != status || said.Status != word && said.Code != word {
			t.Errorf("%s is answered by %d %+v: expected %d %s", body, got, said, status, word)
		}
	}
	wants(404, "not_found", `{"input":5,"label":5}`)
	g.ask("f", 5, "")
	wants(404, "not_found", `{"input":5,"label":5,"context":"ann"}`)
	wants(200, "counted", `{"input":5,"label":5}`)
	wants(200, "duplicate", `{"input":5,"label":5}`)
	g.ask("f", 5, "", "Xebec-Context", "ann")
	wants(200, "counted", `{"input":5,"label":5,"context":"ann"}`)
	g.ask("f", 5, "")
	wants(200, "counted", `{"input":5,"correct":false}`) // another query with the same input
	p := g.learned("f")
	if p.Feedback.Counted != 3 || p.Feedback.Duplicate != 1 || p.Feedback.Unknown != 2 || p.Feedback.Asked != 0 || total(p.Candidates) < 2.9 {
		t.Errorf("describe says %+v", p)
	}
	evaluated := 0.0
	for _, name := range []string{"right", "wrong", "worse"} {
		evaluated += g.metrics().of("model_queries_total", name, "ok")
	}
	if evaluated > 3 {
		t.Errorf("%v queries were evaluated: expected at most the 3 queries of the test", evaluated)
	}
}

// Feedback that cannot be counted is answered with the reason: a wrong type, no subject, too late, or a duplicate. A
// batch has an answer for each entry, and a malformed batch is refused as a whole.
func TestFeedbackThatIsNotCounted(t *testing.T) {
	t.Parallel()
	g := serve(t, "--feedback-window", "2", "--config", manifest(t, threeModels("exp3"), number("only", "echo"), function("g", "only", "slo: 60s", "policy: exp3")))
	id := *g.ask("f", 1, "").QueryID
	for _, c := range []struct {
		what, function, body string
		status               int
		says                 string
	}{
		{"label of a wrong type", "f", fmt.Sprintf(`{"query_id":%d,"label":"one"}`, id), 400, "label"},
		{"label of a wrong shape", "f", fmt.Sprintf(`{"query_id":%d,"label":[1]}`, id), 400, "label"},
		{"no verdict", "f", fmt.Sprintf(`{"query_id":%d}`, id), 400, "label"},
		{"two verdicts", "f", fmt.Sprintf(`{"query_id":%d,"label":1,"correct":true}`, id), 400, "correct"},
		{"a loss beyond 1", "f", fmt.Sprintf(`{"query_id":%d,"loss":1.5}`, id), 400, "loss"},
		{"about nothing", "f", `{"label":1}`, 400, "query_id"},
		{"input of a wrong type", "f", `{"input":"x","label":1}`, 400, "input"},
		{"no JSON", "f", `{"query_id":`, 400, "Json error"},
		{"unknown member", "f", fmt.Sprintf(`{"query_id":%d,"label":1,"feedback_batch":[]}`, id), 400, "feedback_batch"},
		{"long context", "f", fmt.Sprintf(`{"query_id":%d,"label":1,"context":%q}`, id, strings.Repeat("x", 300)), 400, "context"},
		{"an unknown id", "f", `{"query_id":12345,"label":1}`, 404, "query_id"},
		{"an id of another function's", "g", fmt.Sprintf(`{"query_id":%d,"label":1}`, id), 404, "function"},
		{"an unknown function", "nobody", `{"query_id":1,"label":1}`, 404, "nobody"},
		{"one of a batch", "f", fmt.Sprintf(`{"feedback_batch":[{"query_id":%d,"label":1},{"query_id":2,"label":"two"}]}`, id), 400, "feedback_batch[1]"},
	} {
		if a := g.json("/"+c.function+"/feedback", c.body); a.Status != c.status || !strings.Contains(string(a.Body), c.says) {
			t.Errorf("%s: answered by %v: expected %d and %q", c.what, a, c.status, c.says)
		}
	}
	if n := g.learned("f").Feedback.Counted; n != 0 {
		t.Fatalf("%d of the refused feedbacks were counted", n)
	}
	if status, said := g.tell("f", `{"query_id":%d,"label":1}`, id); status != 200 || said.Status != "counted" {
		t.Errorf("a valid feedback after refused ones is answered by %d %+v", status, said)
	}
	if status, said := g.tell("f", `{"query_id":%d,"label":1}`, id); status != 200 || said.Status != "duplicate" || said.Cause == "" {
		t.Errorf("the same feedback again is answered by %d %+v", status, said)
	}
	g.ask("f", 2, "")
	g.ask("f", 3, "")
	if status, said := g.tell("f", `{"query_id":%d,"label":1}`, id); status != 410 || said.Code != "gone" || !strings.Contains(said.Cause, "--feedback-window") {
		t.Errorf("feedback for an expired query is answered by %d %+v", status, said)
	}
	first, second := *g.ask("f", 4, "").QueryID, *g.ask("f", 5, "").QueryID
	a := g.json("/f/update", fmt.Sprintf(`{"feedback_batch":[{"query_id":%d,"label":4},{"query_id":%d,"correct":true},{"query_id":%d,"loss":0},{"query_id":%d,"label":1},{"query_id":7,"label":1}]}`, first, second, first, id))
	var said told
	if err := json.Unmarshal(a.Body, &said); err != nil || a.Status != 200 || len(said.Results) != 5 {
		t.Fatalf("a batch is answered by %v", a)
	}
	for i, want := range []string{"counted", "counted", "duplicate", "late", "unknown"} {
		if r := said.Results[i]; r.Status != want || (r.Cause == "") != (want == "counted") {
			t.Errorf("feedback %d of a batch is answered by %+v: expected %s", i, r, want)
		}
	}
	p := g.learned("f")
	if f := p.Feedback; f.Counted != 3 || f.Duplicate != 2 || f.Late != 2 || f.Unknown != 2 {
		t.Errorf("describe says %+v: expected 3 counted, 2 duplicates, 2 late and 2 unknown", f)
	}
}

// The command line sends feedback by id, by input, and from a file. It prints the status of each, and fails if any was
// not taken.
func TestFeedbackCommand(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, threeModels("exp4")))
	id := func(input int) string { return fmt.Sprint(*g.ask("f", input, "").QueryID) }
	first := id(1)
	g.xebec("feedback", "f", "--query-id", first, "--label", "1").wants(t, "by id", 0, "counted\n", "")
	g.xebec("feedback", "f", "--query-id", first, "--label", "1").wants(t, "again", 0, "duplicate: ", "")
	g.xebec("feedback", "f", "--query-id", id(2), "--correct", "false", "-o", "json").wants(t, "verdict", 0, `"status": "counted"`, "")
	g.xebec("feedback", "f", "--query-id", id(3), "--loss", "0.5", "--context", "ann", "-o", "yaml").wants(t, "loss", 0, "status: counted", "")
	g.xebec("feedback", "f", "--input", "9", "--label", "9").wants(t, "by input", 0, "pending\n", "")
	g.xebec("feedback", "f", "--query-id", "12345", "--label", "1").wants(t, "unknown", 1, "", "no such query")
	g.xebec("feedback", "f", "--query-id", first, "--label", `"x"`).wants(t, "wrong type", 1, "", "label")
	g.xebec("feedback", "f", "--query-id", first, "--label", "x").wants(t, "label not JSON", 2, "", "not JSON")
	g.xebec("feedback", "f", "--query-id", first).wants(t, "no verdict", 2, "", "--label")
	g.xebec("feedback", "nobody", "--query-id", first, "--label", "1").wants(t, "unknown function", 1, "", "nobody")

	lines := fmt.Sprintf("{\"query_id\":%s,\"label\":4}\n{\"query_id\":%s,\"correct\":true}\n{\"query_id\":%s,\"label\":1}\n", id(4), id(5), first)
	writeFile(t, g.dir, "labels.jsonl", lines)
	g.xebec("feedback", "f", "-f", "labels.jsonl").wants(t, "a file", 0, "2 counted, 1 duplicate\n", "")
	r := g.xebecIn(g.dir, `{"feedback_batch":[{"query_id":1,"label":1},{"input":4,"label":4}]}`, "feedback", "f", "-f", "-", "-o", "json")
	r.wants(t, "stdin", 1, `"unknown"`, "1 of 2 items of feedback were not accepted")
	var said told
	if err := json.Unmarshal([]byte(r.out), &said); err != nil || len(said.Results) != 2 || said.Results[1].Status != "pending" {
		t.Errorf("-o json prints %s (%v)", r.out, err)
	}
	g.awaitLearned("f", "seven feedbacks counted", func(p api.PolicyStatus) bool { return p.Feedback.Counted == 7 })
}
