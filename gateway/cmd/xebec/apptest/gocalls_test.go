package apptest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// goCalling is a manifest of a model in Go that calls others: xebec-testworker, whose input says what.
const goCalling = `
kind: Model
name: asks
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
calls: [told, fails, nothing]
cache: off
run: {command: [%q, -mode, markers, -functions], isolation: none}
---
kind: Function
name: asks
models: [asks]
slo: 60s
---
`

// Calls of a model in Go carry the identity, the context and the deadline of their query, and their errors have codes.
func TestGoCalls(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	fails := "import xebec\ndef predict(batch):\n    raise ValueError('private')\nxebec.serve(predict)\n"
	g := serve(t, "--python", python(t), "--config", manifest(t, fmt.Sprintf(goCalling, programs.worker),
		pythonModel(t, dir, "told", toldProgram, uncached)+function("told", "told", "slo: 300s"),
		pythonModel(t, dir, "fails", fails)+function("fails", "fails", "slo: 60s")))
	g.describes("asks", "Calls:      told, fails, nothing")
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var seen struct {
		ID, Trace, Context string
		Left               float64
	}
	a := g.raw("asks", "ask:told:x", "X-Request-Id", "r-17", "Traceparent", trace, "Xebec-Context", "ann", "Xebec-Slo-Ms", "60000")
	if !a.predicted() || json.Unmarshal([]byte(a.text()), &seen) != nil || seen.ID != "r-17" || seen.Trace != trace || seen.Context != "ann" || seen.Left <= 0 || seen.Left > 60 {
		t.Errorf("%v: the callee sees %+v", a, seen)
	}
	for ask, want := range map[string]string{
		"ask:fails:x":   "model_error|the model failed on this input",
		"ask:nothing:x": `not_found|no function or model "nothing"`,
		"ask:asks:x":    `forbidden|asks calls "asks", which its manifest does not declare: add it to calls`,
		"ask:a b:x":     `forbidden|asks calls "a b", which its manifest does not declare: add it to calls`,
	} {
		if a := g.raw("asks", ask); !a.predicted() || a.text() != want {
			t.Errorf("%s: %v %q, expected %q", ask, a, a.text(), want)
		}
	}
}

// The example of the Go binding, as the guide shows it.
func TestGoPipelineExample(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	manifestOf, err := os.ReadFile(filepath.Join(programs.repo, "worker/bindings/go/examples/pipeline/xebec.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "xebec.yaml", string(manifestOf))
	if err := compile(filepath.Join(dir, "pipeline"), "./worker/bindings/go/examples/pipeline", nil); err != nil {
		t.Fatal(err)
	}
	g := serve(t, "--python", python(t), "--config", manifest(t, strings.ReplaceAll(stages(t, newDir(t)), "name: vector", "name: pixels")))
	g.must("deploy", dir)
	g.awaitReplicas("pipeline-go", 1)
	if a := g.raw("pipeline-go", "1,2,3.5", "Xebec-Slo-Ms", patient); !a.predicted() || string(a.Output) != `"small"` {
		t.Errorf("%v", a)
	}
	a := g.json("/pipeline-go/predict", `{"input_batch":[{"b64":"MSwyLDM="},{"b64":"NCw1LDY="}]}`, "Xebec-Slo-Ms", patient)
	if len(a.Batch) != 2 || string(a.Batch[0].Output) != `"small"` || string(a.Batch[1].Output) != `"large"` {
		t.Errorf("a batch: %v", a)
	}
	if a := g.raw("pipeline-go", "1,x,3", "Xebec-Slo-Ms", patient); a.Status != http.StatusBadRequest || a.Code != "invalid_input" || a.Cause != `call of "decode": not numbers: 1,x,3 (invalid_input)` {
		t.Errorf("an input that a callee refuses: %v", a)
	}
}
