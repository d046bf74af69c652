package apptest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// wants fails unless the command ended with the status and printed the texts.
func (r result) wants(t *testing.T, what string, status int, out, err string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.out, out) || !strings.Contains(r.err, err) {
		t.Errorf("%s: status %d\nstdout: %s\nstderr: %s\nexpected status %d, %q on stdout and %q on stderr", what, r.status, r.out, r.err, status, out, err)
	}
}

// apply creates, changes nothing, updates, refuses a change as a whole, makes a dry run; delete deletes and refuses.
func TestApply(t *testing.T) {
	t.Parallel()
	g := serve(t)
	model := testModel("m", nil)
	file := manifest(t, model, function("f", "m", "slo: 60s"))
	put := func(parts ...string) {
		if err := os.WriteFile(file, []byte(strings.Join(parts, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	g.xebec("apply", "-f", file, "--dry-run").wants(t, "dry run", 0, "m@1 created (dry run)", "")
	g.xebec("get", "model", "m").wants(t, "get after a dry run", 1, "", "no model")
	g.xebec("apply", "-f", file, "--wait").wants(t, "apply", 0, "function f created", "")
	g.xebec("invoke", "f", "--input", `"hello"`).wants(t, "invoke", 0, `"aGVsbG8="`, "")
	pid := g.model("m").Replicas[0].PID
	g.xebec("apply", "-f", file).wants(t, "apply again", 0, "m@1 unchanged\n", "")

	put(model, function("f", "m", "slo: 59s", theDefault))
	g.xebec("apply", "-f", file).wants(t, "apply a new SLO", 0, "function f updated", "")
	put(strings.Replace(model, "command: [", `env: {A: "1"}, command: [`, 1), function("f", "m", "slo: 58s"))
	g.xebec("apply", "-f", file).wants(t, "apply another command", 1, "", "a version never changes")
	g.xebec("get", "function", "f", "-o", "json").wants(t, "after a refused apply", 0, `"59s"`, "")
	put(testModel("m", nil, "replicas: {min: 2}"))
	g.xebec("apply", "-f", file, "--wait").wants(t, "apply more replicas", 0, "m@1 updated", "")
	if m := g.awaitReplicas("m", 2); m.Replicas[0].PID != pid && m.Replicas[1].PID != pid {
		t.Errorf("the replicas are %+v: expected process %d among them", m.Replicas, pid)
	}
	put(testModel("m", nil, "replicas: {min: 1}"))
	g.must("apply", "-f", file)
	g.awaitModel("m", "one replica", func(m api.ModelStatus) bool { return len(m.Replicas) == 1 && m.ReadyReplicas() == 1 })

	second := strings.Replace(model, `version: "1"`, `version: "2"`, 1)
	g.xebecIn(g.dir, second, "apply", "-f", "-", "--wait").wants(t, "apply from stdin", 0, "m@2 created", "")
	g.await("version 2 to serve", versionServes(g, "f", "m@2"))
	g.xebec("delete", "model", "m@2").wants(t, "delete a version", 0, "m@2 deleted", "")
	g.await("version 1 to serve again", versionServes(g, "f", "m@1"))

	g.xebec("delete", "model", "m").wants(t, "delete a model in use", 1, "", "function f needs model m")
	g.xebec("delete", "function", "f").wants(t, "delete", 0, "f deleted", "")
	if a := g.raw("f", "hello"); a.Status != 404 {
		t.Errorf("a deleted function answers %v", a)
	}
	g.xebec("delete", "model", "m").wants(t, "delete", 0, "m@1 deleted", "")
	g.xebec("delete", "model", "m").wants(t, "delete again", 1, "", "no model")
}

// Errors in manifests name file, line and column, and what was expected. Nothing is declared.
func TestManifestErrors(t *testing.T) {
	t.Parallel()
	g := serve(t)
	good := testModel("m", nil)
	for _, c := range []struct{ what, text, says string }{
		{"unknown field", good + "\ncolour: red\n", ": colour: "},
		{"unknown kind", "kind: Modell\nname: m\n", ":1:7: "},
		{"not YAML", "kind: [\n", ":"},
		{"wrong type", strings.Replace(good, "dtype: bytes", "dtype: float128", 1), "dtype"},
		{"bad bounds", testModel("m", nil, "replicas: {min: 3, max: 2}"), "replicas.min"},
		{"reserved name", good + function("admin", "m"), "reserved"},
		{"unknown model", good + function("f", "nobody"), "no model nobody"},
		{"default of a wrong type", good + function("f", "m", "default: 7"), "default"},
		{"twice", good + good, "m@1"},
		{"no image's name", strings.Replace(good, "command: [", `image: "a b", command: [`, 1), "run.image"},
	} {
		file := manifest(t, c.text)
		r := g.xebec("apply", "-f", file)
		r.wants(t, c.what, 1, "", c.says)
		if c.what == "unknown field" || c.what == "unknown kind" || c.what == "bad bounds" {
			if !strings.Contains(r.err, file+":") {
				t.Errorf("%s: %q does not name the place in %s", c.what, r.err, file)
			}
		}
	}
	if list := g.must("get", "models", "-o", "json"); strings.TrimSpace(list) != "[]" {
		t.Errorf("refused manifests declared %s", list)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"apply"}, "-f"},
		{[]string{"frobnicate"}, "frobnicate"},
		{[]string{"get", "models", "-o", "xml"}, "xml"},
		{[]string{"invoke", "f", "--input", "hello"}, "not JSON"},
		{[]string{"delete", "model"}, "nothing to delete"},
	} {
		g.xebec(c.args...).wants(t, strings.Join(c.args, " "), 2, "", c.says)
	}
	g.xebec("invoke", "nobody", "--input", "1").wants(t, "invoke nobody", 1, "", "nobody")
	g.xebec("--admin", "127.0.0.1:1", "get", "models").wants(t, "no gateway", 1, "", "xebec serve")
}

// A model directory is deployed, called and shown, and its printed declaration can be applied. A relative --python is relative to the
// directory where the gateway was started, not to the model's.
func TestDeploy(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	interpreter, err := filepath.Rel(dir, python(t))
	if err != nil {
		t.Fatal(err)
	}
	g := serveIn(t, dir, "--python", interpreter)
	writeFile(t, dir, "double/model.py", "import sys, xebec\nprint('loaded', file=sys.stderr, flush=True)\nxebec.serve(lambda batch: batch * 2)\n")
	writeFile(t, dir, "double/xebec.yaml", `kind: Model
name: double
inputs:  [{name: input, dtype: float32, shape: [2]}]
outputs: [{name: output, dtype: float32, shape: [2]}]
run: {command: [python, model.py]}
`)
	g.xebecIn(dir, "", "deploy", "double").wants(t, "deploy", 0, "model double@1 created\nfunction double created", "")
	g.xebec("invoke", "double", "--input", "[1.5, -2]", "--slo", "60s").wants(t, "invoke", 0, "[3,-4]\n", "")
	g.xebecIn(dir, "[[1,2],[3,4]]", "invoke", "double", "--batch", "--input-file", "-", "--slo", "60s").wants(t, "invoke a batch", 0, "[2,4]\n[6,8]\n", "")
	g.xebec("invoke", "double", "--input", "[1]", "--slo", "60s").wants(t, "invoke with a wrong input", 1, "", "input")
	g.xebec("logs", "double").wants(t, "logs", 0, "loaded", "")
	g.xebec("get", "models").wants(t, "get", 0, "double", "")
	for _, kind := range []string{"model", "function", "gateway"} {
		args := []string{"describe", kind, "double"}
		if kind == "gateway" {
			args = args[:2]
		}
		for _, format := range []string{"table", "json", "yaml"} {
			g.xebec(append(args, "-o", format)...).wants(t, "describe "+kind, 0, "eady", "")
		}
	}
	var described api.ModelDescription
	if err := json.Unmarshal([]byte(g.must("describe", "model", "double", "-o", "json")), &described); err != nil {
		t.Fatal(err)
	}
	if len(described.Models) != 1 || described.Models[0].State != api.ModelReady || !described.Models[0].Serving || len(described.Functions) != 1 ||
		described.Models[0].Dir != filepath.Join(dir, "double") || !strings.HasPrefix(described.Models[0].Replicas[0].Binding, "xebec-python/") {
		t.Errorf("describe -o json: %+v", described)
	}

	// apply accepts what get prints, and it changes nothing.
	for _, format := range []string{"yaml", "json"} {
		printed := filepath.Join(dir, "double", "printed."+format)
		if err := os.WriteFile(printed, []byte(g.must("get", "models", "double", "-o", format)), 0o644); err != nil {
			t.Fatal(err)
		}
		r := g.xebec("apply", "-f", printed)
		r.wants(t, "apply what get printed as "+format, 0, "double@1 unchanged\n", "")
		functions := g.must("get", "functions", "-o", format)
		g.xebecIn(dir, functions, "apply", "-f", "-").wants(t, "apply functions as "+format, 0, "double unchanged\n", "")
	}
	g.xebecIn(dir, "", "deploy", "double").wants(t, "deploy again", 0, "double@1 unchanged\n", "")
	g.xebecIn(dir, "", "deploy", "single").wants(t, "deploy a missing directory", 1, "", "single")
}

// Models that cannot start fail, with the reason and their last output, and other models serve.
func TestModelsThatFail(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	bad := func(name, command, model string) {
		writeFile(t, dir, name+"/model.py", model)
		writeFile(t, dir, name+"/xebec.yaml", fmt.Sprintf(`kind: Model
name: %s
inputs:  [{name: input, dtype: float32, shape: [2]}]
outputs: [{name: output, dtype: float32, shape: [2]}]
run: {command: [%s, model.py]}
digest: none
`, name, command))
	}
	bad("no-command", "no-such-program", "")
	bad("no-import", "python", "import xebec\nimport no_such_module\n")
	bad("no-serve", "python", "print('that was all', flush=True)\n")
	bad("two-arguments", "python", "import xebec\ndef predict(batch, user):\n    return batch\nxebec.serve(predict)\n")
	bad("undeclared-stream", "python", "import xebec\n\ndef predict(batch):\n    yield batch\nxebec.serve(predict)\n")
	writeFile(t, dir, "good.yaml", testModel("good", nil)+function("good", "good", "slo: 60s"))
	// serve returns when readyz is 200: each model is ready, or has failed.
	g := serve(t, "--config", dir, "--python", python(t))
	for name, says := range map[string][]string{
		"no-command":        {"no-such-program", "not found"},
		"no-import":         {"exited with code 1", "No module named 'no_such_module'"},
		"no-serve":          {"exited with code 0", "that was all"},
		"two-arguments":     {"exited with code 1", "model.py:2) takes (batch, user), but it is called as predict(batch)"},
		"undeclared-stream": {"exited with code 1", "add stream: true to its manifest. predict (model.py:3) is a generator function"},
	} {
		m := g.model(name)
		if m.State != api.ModelFailed {
			t.Errorf("%s is %s: expected failed", name, m.State)
		}
		text := g.must("describe", "model", name)
		for _, s := range append(says, "failed") {
			if !strings.Contains(text, s) {
				t.Errorf("describe does not say %q of %s:\n%s", s, name, text)
			}
		}
		if a := g.json("/"+name+"/predict", `{"input":[1,2]}`, "Xebec-Slo-Ms", "1"); a.Code != "no_replica" && a.Code != "deadline_exceeded" {
			t.Errorf("%s answers %v: expected no_replica or deadline_exceeded", name, a)
		}
		if status, body := g.fetch(bounded(t), "http://"+g.functions+"/v2/models/"+name+"/ready"); status == 200 {
			t.Errorf("OIP says that %s is ready: %s", name, body)
		}
	}
	if a := g.raw("good", "hello"); !a.predicted() {
		t.Errorf("the good model answers %v beside failed ones", a)
	}
	r := g.xebec("deploy", filepath.Join(dir, "no-import"))
	r.wants(t, "deploy a model that fails", 1, "", "model no-import@1 has failed: exited with code 1")
	if !strings.Contains(r.err, "ModuleNotFoundError") {
		t.Errorf("deploy does not show the last output of the model:\n%s", r.err)
	}
	// What a model prints can be read while it still loads.
	bad("loads", "python", "import os\nprint('reading weights')\nos.open('weights', os.O_RDONLY)\n")
	if err := syscall.Mkfifo(filepath.Join(dir, "loads", "weights"), 0o644); err != nil { // opening it waits for a writer
		t.Fatal(err)
	}
	g.must("apply", "-f", filepath.Join(dir, "loads", "xebec.yaml"))
	g.awaitLog("loads", "reading weights")
	// After its file is repaired the model starts without a command.
	writeFile(t, dir, "no-import/model.py", "import xebec\nxebec.serve(lambda batch: batch)\n")
	g.awaitReplicas("no-import", 1)
}
