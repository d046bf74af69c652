package server

import (
	"path/filepath"
	"strings"
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

// An interpreter that no replica could run is an error of the start, not of the first model that is deployed.
func TestAnInterpreterThatDoesNotExist(t *testing.T) {
	for python, want := range map[string]string{
		"/nonexistent/python": "no such file or directory", "no-such-python": "not found in $PATH", "/usr": "is a directory",
	} {
		s := New(Config{Python: python, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0"})
		err := s.Start(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "--python "+python+": ") || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "expected an interpreter") {
			t.Errorf("%s: %v", python, err)
		}
	}
}
