package apptest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// clipperAdmin sends a call as clipper_admin does, and returns the status and the text.
func (g *gateway) clipperAdmin(operation, body string) (status int, text string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(bounded(g.t), http.MethodPost, "http://"+g.admin+"/admin/"+operation, bytes.NewReader([]byte(body)))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-type", "application/json")
	res, err := g.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSuffix(string(out), "\n")
}

// An application of Clipper is registered, answers its default, gets a model, loses it, is described, and survives a restart.
func TestClipper(t *testing.T) {
	t.Parallel()
	dir, data := newDir(t), newDir(t)
	g := serveIn(t, dir, "--data-dir", data)
	if status, text := g.fetch(bounded(t), "http://"+g.admin+"/admin/ping"); status != 200 || text != "PONG" {
		t.Errorf("ping: %d %q", status, text)
	}
	want := func(operation, body string, status int, want string) {
		t.Helper()
		if got, text := g.clipperAdmin(operation, body); got != status || !strings.Contains(text, want) {
			t.Errorf("%s %s: got %d %s, want %d %s", operation, body, got, text, status, want)
		}
	}
	predicts := func(body, part string) {
		t.Helper()
		a, err := g.post(bounded(t), "/hello/predict", "application/json", []byte(body), "Xebec-Slo-Ms", patient)
		if err != nil || a.Status != 200 || !strings.Contains(string(a.Body), part) {
			t.Errorf("predict %s: %s (%v), want %s", body, a, err, part)
		}
	}
	const byDefault = `"output":-1,"default":true,"default_explanation":"No connected models found for query"`
	want("add_app", `{"name": "hello", "input_type": "integers", "default_output": "-1", "latency_slo_micros": 5000000}`, 200, "Successfully added application with name 'hello'")
	want("add_app", `{"name": "hello", "input_type": "integers", "default_output": "-1", "latency_slo_micros": 5000000}`, 400, "application 'hello' already exists")
	predicts(`{"input": 7}`, byDefault)
	predicts(`{"input_batch": [7, 8]}`, `},{"query_id":`)
	want("add_model_links", `{"app_name": "hello", "model_names": ["m"]}`, 400, "No model with name 'm' exists.")
	g.apply(number("m", "echo"), testModel("words", nil))
	g.awaitReplicas("m", 1)
	want("add_model_links", `{"app_name": "hello", "model_names": ["words"]}`, 400, "Model with name 'words' has incompatible input_type 'bytes'")
	want("add_model_links", `{"app_name": "hello", "model_names": ["m"]}`, 200, "Successfully linked model with name 'm' to application 'hello'")
	predicts(`{"input": 7}`, `"output":7,"default":false`)
	predicts(`{"input_batch": [7, 8]}`, `"output":8,"default":false`)
	want("get_linked_models", `{"app_name": "hello"}`, 200, `["m"]`)
	want("get_all_models", `{"verbose": false}`, 200, `["m:1","words:1"]`)
	want("get_model", `{"model_name": "m", "model_version": "1"}`, 200, `"is_current_version":true`)
	want("get_all_containers", `{"verbose": true}`, 200, `"model_id":"m:1"`)
	want("set_model_version", `{"model_name": "m", "model_version": "1"}`, 200, "Successfully set model with name 'm' to version '1'")
	want("set_model_version", `{"model_name": "m", "model_version": "2"}`, 400, "Cannot set non-existent version '2' for model with name 'm'")
	want("delete_versioned_model", `{"model_name": "m", "model_version": "1"}`, 400, "hello")
	want("get_state/", `{"app_name": "hello", "uid": 0}`, 200, `"reason":"the policy single does not learn"`)
	want("delete_model_links", `{"app_name": "hello", "model_names": ["m"]}`, 200, "Success!")
	predicts(`{"input": 7}`, byDefault)
	g.must("get", "functions")
	g.must("describe", "function", "hello")
	if events := g.history("hello"); len(events) != 3 {
		t.Errorf("the history of the application has %d events: expected 3: %+v", len(events), events)
	}
	g.stop()

	g = serveIn(t, dir, "--data-dir", data)
	predicts(`{"input": 7}`, byDefault)
	want("get_application", `{"name": "hello"}`, 200, `{"name":"hello","input_type":"integers","default_output":"-1","latency_slo_micros":5000000,"linked_models":[]}`)
	want("delete_versioned_model", `{"model_name": "m", "model_version": "1"}`, 200, "Successfully deleted model with name 'm' and version '1'")
	want("delete_app/", `{"name": "hello"}`, 200, "Successfully deleted application with name 'hello'")
	want("get_all_applications", `{"verbose": true}`, 200, `[]`)
}
