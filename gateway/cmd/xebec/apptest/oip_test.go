package apptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Triton's HTTP client uses functions as models, and the protocol's extensions.
func TestOpenInferenceProtocol(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeFile(t, dir, "model.py", "import xebec\n\nxebec.serve(lambda batch: batch)\n")
	const token = "a-token-of-the-test-that-is-long-enough"
	file := filepath.Join(newDir(t), "tokens")
	if err := os.WriteFile(file, []byte("tester:"+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range []string{"scores", "hidden"} {
		all.WriteString("---\nkind: Model\nname: " + name + "\ndir: " + dir + `
inputs:  [{name: x, dtype: float32, shape: [3]}]
outputs: [{name: y, dtype: float32, shape: [3]}]
run: {command: [python, model.py]}
`)
	}
	all.WriteString("---\nkind: Function\nname: digit\nmodels: [scores]\nslo: 60s\ndefault: [-1, -1, -1]\n---\nkind: Function\nname: hidden\nmodels: [hidden]\nslo: 60s\n")
	g := serve(t, "--python", python(t), "--admin-token-file", file, "--model-control", "--config", manifest(t, all.String()))
	if out, err := exec.CommandContext(bounded(t), python(t), "testdata/oip_functions.py", g.functions, token).CombinedOutput(); err != nil {
		t.Fatalf("oip_functions.py: %v\n%s", err, out)
	}
}
