package declarations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheSameModelInTwoPlacesIsRefused(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"a.yaml", "b.yaml"} {
		paths = append(paths, filepath.Join(dir, name))
		if err := os.WriteFile(paths[len(paths)-1], []byte(model), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Load(paths); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("Load: %v", err)
	}
}

func TestConfigDirectories(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("functions.yaml", strings.Replace(fn, "name: f\n", "name: m\n", 1))
	write("models/m/xebec.yaml", model)
	write("models/n/xebec.yaml", strings.Replace(model, "name: m", "name: n", 1))
	write("models/.old/xebec.yaml", "not: read")
	set, warnings, err := Load([]string{dir})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	names := ""
	for _, f := range set.Functions {
		names += f.Name + " "
	}
	if len(set.Models) != 2 || names != "m n " || set.Models[0].Dir != filepath.Join(dir, "models", "m") {
		t.Errorf("models %v, functions %s", set.Models, names)
	}
	if set.Functions[0].SLO != 20*time.Millisecond {
		t.Errorf("the declared function was replaced by the implied one: %v", set.Functions[0])
	}
	empty := t.TempDir()
	set, warnings, err = Load([]string{empty, dir})
	if err != nil || len(set.Models) != 2 || len(warnings) != 1 || !strings.Contains(warnings[0], empty) || !strings.Contains(warnings[0], "neither manifests") {
		t.Errorf("with an empty directory: %d models, %q, %v", len(set.Models), warnings, err)
	}
}
