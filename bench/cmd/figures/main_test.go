package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/containers/process"
)

func TestMain(m *testing.M) {
	process.MaybeReaper()
	// netpoll's pollers live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"))
}

// python returns the interpreter with the binding.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("XEBEC_TEST_PYTHON")
	if path == "" {
		path = "../../../build/venv/bin/python"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), path, "-c", "import numpy, xebec").CombinedOutput(); err != nil {
		t.Fatalf("%s is not a Python with the worker binding and numpy (%v: %s): `make demo` at the repository's root makes build/venv, and XEBEC_TEST_PYTHON names another one",
			path, err, bytes.TrimSpace(out))
	}
	return path
}

// noopModel returns the no-op model with the trainer's files: three images and an answer to each.
func noopModel(t *testing.T, program string, answers [24]byte) model {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"data/queries.f32": make([]byte, 3*rowBytes), "data/noop.i64": answers[:], "data/noop.sizes": []byte("answers zeros\n"), "noop/model.py": []byte(program),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := loadModel(dir, "noop", "no-op")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func noop(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile("../../models/noop/model.py")
	if err != nil {
		t.Fatal(err)
	}
	return string(program)
}

func open(t *testing.T) *rig {
	t.Helper()
	r, err := openRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

var smoke = config{duration: 15 * time.Millisecond, rounds: 2, statics: 2, settle: 50 * time.Millisecond, repetitions: 3, batches: 20}

// All three figures on a real container. The test does not depend on the numbers.
func TestFiguresOnARealContainer(t *testing.T) {
	cfg := smoke
	cfg.python, cfg.figures = python(t), []string{"3", "4", "5"}
	r := open(t)
	c, err := r.start(t.Context(), cfg.python, noopModel(t, noop(t), [24]byte{}))
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := measureContainer(t.Context(), cfg, c, true, &report); err != nil {
		t.Fatal(err)
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Profiles[0].Points {
		if p.MeanMillis <= 0 || p.P99Millis < p.P50Millis || p.Batches < cfg.repetitions {
			t.Errorf("profile: %+v", p)
		}
	}
	names := ""
	for _, s := range report.Comparisons[0].Strategies {
		names += s.Name + " "
		if len(s.Rounds) != cfg.rounds || s.Rounds[1].QPS <= 0 || s.Rounds[1].MeanBatch < 1 || s.Static > 0 && s.Rounds[1].MeanBatch > float64(s.Static) {
			t.Errorf("strategy: %+v", s)
		}
	}
	if !strings.HasPrefix(names, "aimd quantile none static ") {
		t.Errorf("strategies: %s", names)
	}
	for _, d := range report.Delays[0].Delays {
		if len(d.Rounds) != cfg.rounds || d.Rounds[0].QPS <= 0 || d.Rounds[0].MeanBatch < 1 || d.Rounds[0].P99Millis < d.Rounds[0].P50Millis {
			t.Errorf("delay: %+v", d)
		}
	}
	if text := report.Markdown(); strings.Contains(text, "NaN") {
		t.Error(text)
	}
}

func TestAWrongAnswerFailsTheRun(t *testing.T) {
	r, interpreter := open(t), python(t)
	c, err := r.start(t.Context(), interpreter, noopModel(t, noop(t), [24]byte{8: 7}))
	if err != nil {
		t.Fatal(err)
	}
	const want = "noop: image 1 is 0, expected 7"
	if _, err := measureProfile(t.Context(), smoke, c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("profile: got %v", err)
	}
	if _, err := measureStrategies(t.Context(), smoke, c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("strategies: got %v", err)
	}
	if err := c.end(false); err != nil {
		t.Error(err)
	}
}

func TestAContainerThatFailsSaysWhy(t *testing.T) {
	r, interpreter := open(t), python(t)
	_, err := r.start(t.Context(), interpreter, noopModel(t, "raise SystemExit('no model here')", [24]byte{}))
	if err == nil || !strings.Contains(err.Error(), "exited with code 1 before it was ready") || !strings.Contains(err.Error(), "no model here") {
		t.Errorf("at its start: got %v", err)
	}
	c, err := r.start(t.Context(), interpreter, noopModel(t, "import os, xebec\nxebec.serve(lambda batch: os._exit(3))", [24]byte{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := measureStrategies(t.Context(), smoke, c); err == nil || !strings.Contains(err.Error(), "container noop is gone") {
		t.Errorf("under load: got %v", err)
	}
	if err := c.end(false); err != nil {
		t.Error(err)
	}
}

func TestLoadModelSaysWhatIsWrong(t *testing.T) {
	dir := filepath.Dir(noopModel(t, "", [24]byte{}).dir)
	if err := os.WriteFile(filepath.Join(dir, "data", "noop.i64"), make([]byte, 8), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loadModel(dir, "noop", "no-op"); err == nil || !strings.Contains(err.Error(), "expected as many answers as rows") {
		t.Errorf("got %v", err)
	}
}
