package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/containerstest"
	"github.com/xebec-serving/xebec/containers/venv"
)

// Copies of files that no version has are collected; those of versions that are declared stay.
func TestUnusedSnapshotsAreCollected(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s, _, _ := started(t, Config{DataDir: data})
	t.Cleanup(func() { _, _ = s.snapshots.Collect(nil, time.Now().Add(time.Hour)) }) // its directories are read-only
	content := ""
	deploy := func(text string) {
		t.Helper()
		dir := t.TempDir()
		manifest := "kind: Model\nname: m\nversion: \"" + text + "\"\ninputs: [{name: input, dtype: int64, shape: []}]\noutputs: [{name: output, dtype: int64, shape: []}]\nreplicas: {min: 0}\nrun: {command: [sleep, \"1\"]}\n"
		for name, content := range map[string]string{"xebec.yaml": manifest, "data": text + content} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.declared.Deploy(t.Context(), api.Deployment{Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() int {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(data, modelsDir, "[0-9a-f]*", "files"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	deploy("1")
	deploy("2")
	s.collectUnused(time.Now().Add(time.Hour))
	if n := kept(); n != 2 {
		t.Fatalf("there are %d copies of 2 versions", n)
	}
	if _, err := s.Delete(t.Context(), api.KindModel, api.ModelID{Name: "m", Version: "1"}); err != nil {
		t.Fatal(err)
	}
	s.collectUnused(time.Now().Add(-time.Hour))
	if n := kept(); n != 2 {
		t.Errorf("a copy that was used just now is gone: %d are left", n)
	}
	s.collectUnused(time.Now().Add(time.Hour))
	if n := kept(); n != 1 {
		t.Errorf("%d copies are left of one version", n)
	}
	content = "mended"
	deploy("2")
	if n := kept(); n != 2 {
		t.Fatalf("there are %d copies of what has never served and of what replaced it", n)
	}
	s.collectUnused(time.Now().Add(time.Hour))
	if n := kept(); n != 1 {
		t.Errorf("%d copies are left of a version that has never served and was replaced", n)
	}
}

// Environments in the data directory that no version asks for are collected. Those in the cache of a user, which other programs use, are not.
func TestUnusedEnvironmentsAreCollected(t *testing.T) {
	for name, shared := range map[string]bool{"data directory": false, "cache of the user": true} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{DataDir: filepath.Join(t.TempDir(), "data")}
			if shared {
				cfg.DataDir = ""
			}
			s, _, _ := started(t, cfg)
			mustApply(t, s, model)
			environments := t.TempDir()
			s.environments = venv.New(venv.Config{Dir: environments}, containerstest.Idle{})
			t.Cleanup(func() { _ = s.environments.Close() })
			old := filepath.Join(environments, "00")
			if err := os.Mkdir(old, 0o755); err != nil {
				t.Fatal(err)
			}
			s.collectEnvironments(t.Context(), time.Now().Add(time.Hour))
			if _, err := os.Stat(old); shared != (err == nil) || !shared && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("shared %v: %v", shared, err)
			}
		})
	}
}
