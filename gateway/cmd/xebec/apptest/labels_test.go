package apptest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
)

// classifying answers with a class, which is wrong for each of WRONG of ten inputs, and with a score that no two models share.
const classifying = `
import os
import xebec

wrong, score = int(os.environ["WRONG"]), float(os.environ["SCORE"])

def predict(batch):
    return {"score": [score] * len(batch), "label": ["odd" if (x % 2 == 1) != (x % 10 < wrong) else "even" for x in batch]}

xebec.serve(predict)
`

func classifier(dir, name string, wrong int, score float64) string {
	return fmt.Sprintf(`
---
kind: Model
name: %s
inputs:  [{name: x, dtype: int64, shape: []}]
outputs: [{name: score, dtype: float64, shape: []}, {name: label, dtype: string, shape: []}]
dir: %s
run: {command: [python, model.py], env: {WRONG: "%d", SCORE: "%g"}}
`, name, dir, wrong, score)
}

// A function of models with several outputs learns from one of them: its label is enough as feedback, and an ensemble votes on it.
// Without the field all outputs count, so that scores make every answer a class of its own.
func TestLabelOfSeveralOutputs(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t))
	dir := newDir(t)
	writeFile(t, dir, "model.py", classifying)
	const models = "models: [good, fair, bad]\nslo: 60s\n"
	g.apply(classifier(dir, "good", 0, 0.5), classifier(dir, "fair", 3, 0.75), classifier(dir, "bad", 10, 1),
		"\n---\nkind: Function\nname: vote\n"+models+"policy: exp4\nlabel: label\n",
		"\n---\nkind: Function\nname: whole\n"+models+"policy: exp4\n",
		"\n---\nkind: Function\nname: scores\n"+models+"policy: exp3\nlabel: score\nloss: {kind: absolute, scale: 1}\n")
	for _, name := range []string{"good", "fair", "bad"} {
		g.awaitReplicas(name, 1)
	}
	right := func(x int) string { return [2]string{"even", "odd"}[x%2] }
	for x := range 40 {
		a := g.json("/vote/predict", fmt.Sprintf(`{"input":%d}`, x))
		if a.Status != 200 || a.QueryID == nil {
			t.Fatal(a)
		}
		if x == 5 { // two of three agree on the label, with other scores
			if !strings.Contains(string(a.Output), `"label":"odd"`) || math.Abs(a.Confidence-2.0/3) > 0.3 || a.Confidence < 0.5 {
				t.Errorf("the vote is %s", a)
			}
		}
		if status, said := g.tell("vote", `{"query_id":%d,"label":{"label":%q}}`, *a.QueryID, right(x)); status != 200 || said.Status != "counted" {
			t.Fatalf("feedback with a part of the outputs is answered by %d %+v", status, said)
		}
		b := g.json("/scores/predict", fmt.Sprintf(`{"input":%d}`, x))
		if status, said := g.tell("scores", `{"query_id":%d,"label":{"score":0.5}}`, *b.QueryID); status != 200 || said.Status != "counted" {
			t.Fatalf("feedback with a number is answered by %d %+v", status, said)
		}
	}
	losses := func(function string) map[string]float64 {
		all := map[string]float64{}
		for sample, n := range g.metrics().samples {
			for _, model := range []string{"good", "fair", "bad"} {
				if n > 0 && sample == fmt.Sprintf(`xebec_feedback_loss_count{candidate=%q,function=%q}`, model, function) {
					all[model] = g.metrics().samples[fmt.Sprintf(`xebec_feedback_loss_sum{candidate=%q,function=%q}`, model, function)] / n
				}
			}
		}
		return all
	}
	g.await("all losses", func(context.Context) (bool, string) {
		l := losses("vote")
		return len(l) == 3, fmt.Sprint(l)
	})
	for model, want := range map[string]float64{"good": 0, "fair": 0.3, "bad": 1} {
		if got, ok := losses("vote")[model]; !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("the mean loss of %s is %v: expected %v", model, losses("vote"), want)
		}
	}
	for model, got := range losses("scores") {
		if want := map[string]float64{"good": 0, "fair": 0.25, "bad": 0.5}[model]; math.Abs(got-want) > 1e-9 {
			t.Errorf("by its score, the mean loss of %s is %v: expected %v", model, got, want)
		}
	}
	a := g.json("/whole/predict", `{"input":5}`)
	if a.Status != 200 || a.Confidence > 0.5 {
		t.Errorf("without the field two models agree: %s", a)
	}
	if status, said := g.tell("whole", `{"query_id":%d,"label":{"label":"odd"}}`, *a.QueryID); status != 400 || !strings.Contains(fmt.Sprint(said), "score") {
		t.Errorf("without the field, feedback with a part of the outputs is answered by %d %+v", status, said)
	}
	if status, said := g.tell("vote", `{"query_id":%d,"label":{"score":1}}`, *a.QueryID); status != 400 {
		t.Errorf("feedback without the named output is answered by %d %+v", status, said)
	}
	if r := g.xebecIn(dir, "kind: Function\nname: other\nmodels: [good]\nlabel: class\n", "apply", "-f", "-"); r.status != 1 || !strings.Contains(r.err, `has no output "class": expected one of score, label`) {
		t.Errorf("a label that is no output: %d %s", r.status, r.err)
	}
	if spec, err := g.functionSpec("vote"); err != nil || spec.Label != "label" {
		t.Errorf("the function is shown as %+v (%v)", spec, err)
	}
}
