package server

import (
	"path/filepath"
	"testing"
)

// A path to an interpreter is relative to the gateway's directory: replicas start in those of their models. A name without a slash is
// looked up in PATH.
func TestRelativePython(t *testing.T) {
	here, err := filepath.Abs("venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"":                     "",
		"python3.12":           "python3.12",
		"/srv/venv/bin/python": "/srv/venv/bin/python",
		"venv/bin/python":      here,
		"./venv/bin/python":    here,
	} {
		if got := (Config{Python: given}).withDefaults().Python; got != want {
			t.Errorf("--python %q is %q, want %q", given, got, want)
		}
	}
}
