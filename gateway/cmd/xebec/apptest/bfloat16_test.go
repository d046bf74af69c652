package apptest

import (
	"fmt"
	"strings"
	"testing"
)

const doubling = `
import ml_dtypes
import xebec

def predict(batch):
    assert batch.dtype == ml_dtypes.bfloat16
    return batch + batch

xebec.serve(predict)
`

// bfloat16 reaches a Python model and comes back as JSON numbers, little-endian bytes and BF16 of the Open Inference Protocol.
func TestBFloat16(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t))
	dir := newDir(t)
	writeFile(t, dir, "model.py", doubling)
	g.apply(fmt.Sprintf(`
kind: Model
name: double
inputs:  [{name: x, dtype: bfloat16, shape: [3]}]
outputs: [{name: y, dtype: bfloat16, shape: [3]}]
dir: %s
run: {command: [python, model.py]}
`, dir), function("double", "double", "slo: 60s"))
	g.awaitReplicas("double", 1)
	if a := g.json("/double/predict", `{"input":[0.1,-1e38,null]}`); !a.predicted() || string(a.Output) != "[0.2,-2e+38,null]" {
		t.Errorf("JSON: %s", a)
	}
	a, err := g.post(bounded(t), "/double/predict", "application/octet-stream", []byte("\x80\x3f\x00\x40\x00\x00"), "Accept", "application/octet-stream")
	if err != nil || a.Status != 200 || string(a.Body) != "\x00\x40\x80\x40\x00\x00" {
		t.Errorf("bytes: %d %q (%v)", a.Status, a.Body, err)
	}
	a = g.json("/v2/models/double/infer", `{"inputs":[{"name":"x","shape":[1,3],"datatype":"BF16","data":[1,2,3]}]}`)
	if a.Status != 200 || !strings.Contains(string(a.Body), `"datatype":"BF16"`) || !strings.Contains(string(a.Body), `"data":[2,4,6]`) {
		t.Errorf("the Open Inference Protocol: %s", a)
	}
	if a := g.json("/double/predict", `{"input":[3.4e38,0,0]}`); a.Status != 400 || !strings.Contains(a.Cause, "out of range for bfloat16") {
		t.Errorf("a number beyond its range: %s", a)
	}
}
