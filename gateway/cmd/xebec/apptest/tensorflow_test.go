package apptest

import (
	"encoding/json"
	"fmt"
	"testing"
)

const normalizing = `
import numpy as np
import xebec

def predict(batch):
    x, scale = batch["x"], batch["scale"]
    return {"scores": x / scale[:, None], "classes": np.array([["low", "high"]] * len(x), dtype=object)}

xebec.serve(predict)
`

// A model of two inputs and two outputs answers TensorFlow Serving's requests, by name and through a function, and feedback finds the query.
func TestTensorFlowServing(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t))
	dir := newDir(t)
	writeFile(t, dir, "model.py", normalizing)
	g.apply(fmt.Sprintf(`
kind: Model
name: norm
inputs:  [{name: x, dtype: float32, shape: [2]}, {name: scale, dtype: float32, shape: []}]
outputs: [{name: scores, dtype: float32, shape: [2]}, {name: classes, dtype: string, shape: [2]}]
dir: %s
run: {command: [python, model.py]}
`, dir), function("f", "norm", "slo: 60s\nlabel: classes"))
	g.awaitReplicas("norm", 1)
	for _, c := range []struct{ path, body, want string }{
		{"norm:predict", `{"instances":[{"x":[1,2],"scale":2},{"x":[NaN,4],"scale":4}]}`,
			`{"predictions":[{"scores":[0.5,1],"classes":["low","high"]},{"scores":[NaN,1],"classes":["low","high"]}]}`},
		{"f:predict", `{"inputs":{"x":[[1,2]],"scale":[2]}}`, `{"outputs":{"scores":[[0.5,1]],"classes":[["low","high"]]}}`},
		{"norm/versions/1:classify", `{"examples":[{"x":[1,2]}],"context":{"scale":4}}`, `{"result":[[["low",0.25],["high",0.5]]]}`},
	} {
		a, err := g.post(bounded(t), "/v1/models/"+c.path, "application/json", []byte(c.body), "Xebec-Slo-Ms", patient)
		if a.Status != 200 || string(a.Body) != c.want { // NaN in it is not JSON, which is an error of post
			t.Errorf("%s %s: %s (%v), want %s", c.path, c.body, a, err, c.want)
		}
		if id := a.Header.Get("Xebec-Query-Id"); c.path == "f:predict" {
			fed := g.json("/f/feedback", fmt.Sprintf(`{"query_id":%s,"correct":true}`, id))
			if !json.Valid([]byte(id)) || fed.Status != 200 {
				t.Errorf("feedback of query %q: %s", id, fed)
			}
		}
	}
	if a := g.json("/v1/models/none:predict", `{}`); a.Status != 404 {
		t.Errorf("an unknown model: %s", a)
	}
}
