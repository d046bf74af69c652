package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write creates files in a new directory and returns the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadFile(t *testing.T) {
	dir := write(t, map[string]string{"models.yaml": example})
	set, err := Load(filepath.Join(dir, "models.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Models[0].Dir; got != dir {
		t.Errorf("models lie in %q, want %q", got, dir)
	}
}

func TestLoadDirectory(t *testing.T) {
	dir := write(t, map[string]string{
		"a.yaml": modelWith(""), "b.yml": functionWith(""), "c.json": `{"kind": "Function", "name": "g", "models": ["m"]}`,
		"README.md": "not a manifest", ".hidden.yaml": "not: a manifest", "below/d.yaml": "not: read",
	})
	set, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Models) != 1 || len(set.Functions) != 2 || set.Models[0].Dir != dir {
		t.Errorf("got %+v", set)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := write(t, map[string]string{
		"twice/a.yaml": modelWith(""), "twice/b.yaml": modelWith(""),
		"bad/a.yaml": "kind: X", "bad/b.yaml": "kind: Y",
		"empty/README": "",
		"dir/x.py":     "", "two/xebec.yaml": modelWith("---\n") + strings.Replace(modelWith(""), "name: m", "name: n", 1),
	})
	model := func(path string) error { _, err := LoadModelDir(filepath.Join(dir, path)); return err }
	load := func(path string) error { _, err := Load(filepath.Join(dir, path)); return err }
	for _, c := range []struct {
		name string
		err  error
		want []string
	}{
		{"twice", load("twice"), []string{"b.yaml: model m@1 is declared twice: first in ", "a.yaml"}},
		{"all files' errors", load("bad"), []string{"a.yaml:1:7: kind:", "b.yaml:1:7: kind:"}},
		{"no manifests", load("empty"), []string{"has no manifest: expected files named"}},
		{"no such file", load("nothing"), []string{"nothing: no such file or directory"}},
		{"no model directory", model("dir"), []string{"dir: is not a model directory: it has no file xebec.yaml"}},
		{"a file", model("dir/x.py"), []string{"x.py: is a file: expected a model directory"}},
		{"no directory", model("nothing"), []string{"nothing: no such file or directory"}},
		{"two models", model("two"), []string{"xebec.yaml: declares 2 models: expected one"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, want := range c.want {
				if c.err == nil || !strings.Contains(c.err.Error(), want) {
					t.Errorf("got %v, want %q in it", c.err, want)
				}
			}
		})
	}
}

func TestLoadModelDir(t *testing.T) {
	dir := write(t, map[string]string{"xebec.yaml": strings.TrimPrefix(modelWith("---\n")+functionWith(""), "kind: Model\n")})
	set, err := LoadModelDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Models) != 1 || len(set.Functions) != 1 || set.Models[0].Dir != dir {
		t.Errorf("got %+v", set)
	}
}
