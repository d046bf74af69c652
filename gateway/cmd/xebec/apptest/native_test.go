package apptest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// learner is a Python model that learns by itself. For each user it answers the last label that it was taught, and how
// often it was taught that label before.
const learner = `
import base64

import xebec

last = {}
right = told = 0

def predict(batch, contexts):
    return [last.get(user, "nothing yet") for user in contexts]

def feedback(batch, labels, contexts):
    global right, told
    for text, label, user in zip(batch, (base64.b64decode(label["b64"]).decode() for label in labels), contexts):
        right += last.get(user) == label
        told += 1
        last[user] = f"{label} for {text}" if label == "show the input" else label

def accuracy():
    return right / told

xebec.serve(predict, feedback=feedback, accuracy=accuracy, contexts=True, text=True)
`

const learnerManifest = `
kind: Model
name: learner
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [python, model.py]}
---
kind: Function
name: f
models: [learner]
slo: 60s
`

// A model with its own feedback function gets labels with their inputs and contexts, whatever its function's policy. Its
// predictions are not cached, because they change. describe shows the accuracy that it reports.
func TestModelsThatLearn(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "model.py", learner)
	writeFile(t, dir, "xebec.yaml", learnerManifest)
	g := serve(t, "--config", dir, "--python", python(t))
	if a := g.raw("f", "hello", "Xebec-Context", "ann"); a.text() != "nothing yet" {
		t.Fatalf("before any label the model answers %v", a)
	}
	// Labels have the JSON form of outputs, which is {"b64": …} for bytes.
	label := func(text string) string { return `{"b64":` + toJSON(t, []byte(text)) + `}` }
	tell := func(user, input, text string) {
		t.Helper()
		a := g.raw("f", input, "Xebec-Context", user)
		if status, said := g.tell("f", `{"query_id":%d,"label":%s}`, *a.QueryID, label(text)); status != 200 || said.Status != "counted" {
			t.Fatalf("a label is answered by %d %+v", status, said)
		}
	}
	answers := func(user, want string) {
		t.Helper()
		g.await(fmt.Sprintf("%s to be answered %q", user, want), func(context.Context) (bool, string) {
			a := g.raw("f", "hello", "Xebec-Context", user)
			return a.text() == want, a.String()
		})
	}
	tell("ann", "hello", "tea")
	tell("bob", "hello", "coffee")
	answers("ann", "tea")
	answers("bob", "coffee")
	answers("cid", "nothing yet")
	tell("bob", "good morning", "show the input")
	answers("bob", "show the input for good morning")
	tell("ann", "hello", "tea") // the first label that equals the prediction
	g.await("describe to show how accurate the model is", func(ctx context.Context) (bool, string) {
		m, err := g.describedModel(ctx, "learner")
		return err == nil && m.Accuracy != nil && *m.Accuracy == 0.25, fmt.Sprintf("%+v %v", m.Accuracy, err)
	})
	g.xebec("describe", "model", "learner").wants(t, "describe the model", 0, "25%, as the model reports", "")
	if hits, misses, coalesced := g.cacheMetrics("learner"); hits+misses+coalesced != 0 {
		t.Errorf("for a model that learns the cache counts %v hits, %v misses, %v coalesced", hits, misses, coalesced)
	}
	if p := g.learned("f"); p.Feedback.Counted != 4 || p.Feedback.Taught != 4 || p.Learns {
		t.Errorf("describe says %+v: expected 4 labels counted and passed to the model", p)
	}
	// Labels by input reach the model too. Nothing is counted twice, and a verdict is not a label.
	if status, said := g.tell("f", `{"input":"hello","label":%s,"context":"cid"}`, label("water")); status != 202 || said.Status != "pending" {
		t.Errorf("a label by input is answered by %d %+v", status, said)
	}
	answers("cid", "water")
	a := g.raw("f", "hello", "Xebec-Context", "cid")
	g.tell("f", `{"query_id":%d,"correct":false}`, *a.QueryID)
	g.awaitLearned("f", "6 feedbacks", func(p api.PolicyStatus) bool { return p.Feedback.Counted == 6 && p.Feedback.Taught == 5 })
}

// describedModel returns a model as describe shows it.
func (g *gateway) describedModel(ctx context.Context, name string) (m api.ModelStatus, err error) {
	status, body := g.fetch(ctx, "http://"+g.admin+"/v1/describe/model/"+name)
	if status != 200 {
		return m, fmt.Errorf("%d %s", status, body)
	}
	d, err := decode[api.ModelDescription](body)
	if err != nil || len(d.Models) != 1 {
		return m, fmt.Errorf("%s: %w", body, err)
	}
	return d.Models[0], nil
}

// A model's own confidence is the answer's if it answers alone, scales its weight in an ensemble, and makes an answer of
// low confidence the default.
func TestModelsThatSayHowSureTheyAre(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("unsure", []string{"-confidences"}), testModel("plain", nil), // 0.5
		function("f", "unsure", "slo: 60s", theDefault), function("doubtful", "unsure", "slo: 60s", "min_confidence: 0.6", theDefault),
		function("both", "unsure, plain", "slo: 60s", "policy: exp4")))
	for range 2 { // also from the cache
		if a := g.raw("f", "hello"); !a.predicted() || a.Confidence != 0.5 {
			t.Errorf("a model with confidence 0.5 answers %v", a)
		}
		if a := g.raw("doubtful", "hello"); !a.Default || a.DefaultExplanation != "confidence 0.50 below 0.60" || a.Confidence != 0.5 {
			t.Errorf("with a higher min_confidence the answer is %v", a)
		}
	}
	if hits, _, _ := g.cacheMetrics("unsure"); hits != 3 {
		t.Errorf("the cache counts %v hits of 4 queries: expected 3", hits)
	}
	if a := g.raw("both", "hello"); !a.predicted() || len(a.Models) != 2 || math.Abs(a.Confidence-0.75) > 1e-9 {
		t.Errorf("with a model that reports no confidence the answer is %v: expected a confidence of 0.75", a)
	}
}

// A model that gets contexts is evaluated once for each context of an input, and its answers are cached per context.
func TestModelsThatSeeContexts(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", []string{"-contexts"}), function("f", "m", "slo: 60s")))
	for range 2 {
		for _, user := range []string{"ann", "bob", ""} {
			if a := g.raw("f", "context", "Xebec-Context", user); !a.predicted() || a.text() != user {
				t.Errorf("for %q the model answers %v", user, a)
			}
		}
		if a := g.json("/f/predict", `{"input":"context","context":"cid","salt":"x"}`); a.text() != "cid" {
			t.Errorf("with a context in the body the model answers %v", a)
		}
	}
	if hits, misses, _ := g.cacheMetrics("m"); hits != 4 || misses != 4 {
		t.Errorf("the cache counts %v hits and %v misses: expected 4 and 4", hits, misses)
	}
}

// When every model of a function is down the default is given at once, with the reason. It comes long before the
// deadline, which is longer than patience. Without a default the caller gets the same reason.
func TestAllModelsDown(t *testing.T) {
	t.Parallel()
	broken := func(name string) string {
		return strings.Replace(number(name, "echo"), programs.worker, "/bin/false", 1)
	}
	slo := "slo: 10m"
	g := serve(t, "--config", manifest(t, broken("a"), broken("b"), number("up", "echo"),
		function("single", "a", slo, "default: -1"), function("bandit", "a, b", slo, "default: -1", "policy: exp3"),
		function("ensemble", "a, b", slo, "default: -1", "policy: exp4"), function("mixed", "a, up", slo, "default: -1", "policy: exp4"),
		function("prefer", "a, up", slo, "default: -1", "policy: prefer")))
	for _, name := range []string{"a@1", "b@1"} { // until then a query that arrives while a process starts waits for it
		g.awaitVersion(name, "it has failed again and again", func(m api.ModelStatus) bool { return len(m.Replicas) > 0 && m.Replicas[0].Restarts >= 3 })
	}
	for _, name := range []string{"single", "bandit", "ensemble"} {
		if a := g.ask(name, 5, ""); !a.Default || a.number() != -1 || a.DefaultExplanation != api.NoReplica.Reason() || len(a.Models) != 0 {
			t.Errorf("%s: with its models down it answers %v: expected the default with the reason %q", name, a, api.NoReplica.Reason())
		}
	}
	for _, name := range []string{"mixed", "prefer"} {
		if a := g.ask(name, 5, ""); !a.predicted() || a.number() != 5 || fmt.Sprint(a.Models) != "[up@1]" {
			t.Errorf("%s: with one of its models down it answers %v", name, a)
		}
	}
	// The function recovers by itself.
	g.must("delete", "function", "single")
	g.apply(version(number("a", "echo"), "2"))
	g.await("the ensemble to answer by the working version", func(ctx context.Context) (bool, string) {
		a, err := g.tryAsk(ctx, "ensemble", 6, "")
		return err == nil && a.predicted() && a.number() == 6 && fmt.Sprint(a.Models) == "[a@2]", a.String()
	})
}
