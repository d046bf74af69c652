package apptest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// misbehaving is a Python model whose only input selects its fault.
const misbehaving = `
import sys
import numpy
import xebec

def predict(batch):
    what = int(batch[0])
    if what == 1:
        raise ValueError("a secret of the model's author")
    if what == 2:
        return numpy.zeros((len(batch) + 1, 2), numpy.float32)
    if what == 3:
        return [["not", "numbers"]] * len(batch)
    if what == 4:
        return numpy.zeros((len(batch), 3), numpy.float32)
    if what == 5:
        return None
    print("all is well", file=sys.stderr, flush=True)
    return numpy.full((len(batch), 2), what, numpy.float32)

xebec.serve(predict)
`

const misbehavingManifest = `
kind: Model
name: odd
inputs:  [{name: input, dtype: int64, shape: []}]
outputs: [{name: output, dtype: float32, shape: [2]}]
run: {command: [python, model.py]}
---
kind: Function
name: odd
models: [odd]
slo: 60s
---
kind: Function
name: odd-default
models: [odd]
slo: 60s
default: [0, -1]
`

// A worker's fault with one batch costs only that batch. Callers get a code without the worker's text, operators get the
// text, and the worker keeps running.
func TestWrongOutputs(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "model.py", misbehaving)
	writeFile(t, dir, "xebec.yaml", misbehavingManifest)
	g := serve(t, "--config", dir, "--python", python(t))
	before := g.awaitReplicas("odd", 1)
	for _, c := range []struct {
		what, name string
		code       api.Code
		operator   string // what the operator reads
	}{
		{"1", "raises", api.ModelError, "a secret of the model's author"},
		{"2", "wrong number", api.BadOutput, "bad_output"},
		{"3", "wrong type", api.BadOutput, "bad_output"},
		{"4", "wrong shape", api.BadOutput, "bad_output"},
		{"5", "nothing", api.BadOutput, "bad_output"},
	} {
		a := g.json("/odd/predict", `{"input":`+c.what+`}`)
		if a.Status != 502 || a.Code != c.code.String() || a.Cause != c.code.Reason() {
			t.Errorf("%s: answered by %v: expected 502 %s", c.name, a, c.code)
		}
		withDefault := g.json("/odd-default/predict", `{"input":`+c.what+`}`)
		if withDefault.Status != 200 || !withDefault.Default || withDefault.DefaultExplanation != c.code.Reason() || string(withDefault.Output) != "[0,-1]" {
			t.Errorf("%s: answered by %v: expected the default", c.name, withDefault)
		}
		direct := g.json("/v2/models/odd/infer", `{"inputs":[{"name":"input","datatype":"INT64","shape":[1],"data":[`+c.what+`]}]}`)
		if direct.Status != 502 {
			t.Errorf("%s: OIP answered by %v: expected 502", c.name, direct)
		}
		for _, body := range [][]byte{a.Body, withDefault.Body, direct.Body} {
			for _, leak := range []string{"secret", "ValueError", "Traceback", "model.py"} {
				if strings.Contains(string(body), leak) {
					t.Errorf("%s: the answer shows callers the worker's text: %s", c.name, body)
				}
			}
		}
		if said := g.model("odd").Replicas[0].LastError; !strings.Contains(said, c.operator) {
			t.Errorf("%s: the replica's last error is %q: expected %q", c.name, said, c.operator)
		}
		if text := g.must("describe", "model", "odd"); !strings.Contains(text, c.operator) {
			t.Errorf("%s: describe does not say %q:\n%s", c.name, c.operator, text)
		}
	}
	if !strings.Contains(g.logText(), "a secret of the model's author") {
		t.Error("the gateway's log does not have the worker's text")
	}
	if a := g.json("/odd/predict", `{"input":9}`); !a.predicted() || string(a.Output) != "[9,9]" {
		t.Errorf("after the faults the model answers %v: expected [9,9]", a)
	}
	if logs := g.must("logs", "odd"); !strings.Contains(logs, "all is well") {
		t.Errorf("logs does not have what the model wrote to stderr:\n%s", logs)
	}
	if after := g.model("odd"); after.Replicas[0].PID != before.Replicas[0].PID || restarts(after) != 0 {
		t.Errorf("the worker was restarted: process %d, then %d", before.Replicas[0].PID, after.Replicas[0].PID)
	}
}

// The same with a compiled worker: panics, errors and missing outputs. Also outputs that do not fit the block that was
// granted first.
func TestBadAndBigOutputs(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s")))
	pid := g.awaitReplicas("m", 1).Replicas[0].PID
	for input, code := range map[string]string{"panic": "model_error", "error": "model_error", "bad": "bad_output"} {
		if a := g.raw("f", input); a.Status != 502 || a.Code != code || strings.Contains(string(a.Body), "marker") {
			t.Errorf("%s was answered by %v: expected 502 %s", input, a, code)
		}
	}
	for _, n := range []int{0, 1, 100_000, 3 << 20, 9 << 20, 7} {
		a := g.raw("f", fmt.Sprintf("big:%d", n))
		if !a.predicted() || len(a.text()) != n {
			t.Errorf("an output of %d bytes came as %d (status %d)", n, len(a.text()), a.Status)
		}
	}
	if a := g.raw("f", "still there"); a.text() != "still there" {
		t.Errorf("after the faults the model answers %v", a)
	}
	if m := g.model("m"); m.Replicas[0].PID != pid || restarts(m) != 0 {
		t.Errorf("the worker was restarted: process %d, then %d", pid, m.Replicas[0].PID)
	}
}
