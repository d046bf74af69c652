package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/answer"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

// serverProcess is a server under test.
type serverProcess struct {
	*server.Process
	addr  string
	admin string // of a gateway
	dir   string // its folder
}

// start runs a program in dir, which belongs to it from then on, also when it fails, and waits until it is ready.
func start(ctx context.Context, cfg config, name, addr, dir string, ready func() error, program string, args ...string) (*serverProcess, error) {
	p, err := server.Start(ctx, server.Options{
		Name: name, Program: program, Args: args, Folder: dir, Env: []string{fmt.Sprintf("GOMAXPROCS=%d", cfg.procs)}, Cores: cfg.serverCores, Ready: ready,
	})
	if err != nil {
		return nil, err
	}
	return &serverProcess{Process: p, addr: addr, dir: dir}, nil
}

// The function's objective is far above any latency here, so that the floor is not compared with default answers of a machine
// that hiccups; it changes nothing of the path.
const noopManifest = `kind: Model
name: noop
version: "1"
inputs:  [{name: input, dtype: float32, shape: [-1]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: %s}
cache: off
---
kind: Function
name: noop
models: [noop]
slo: 5s
`

const noopPython = `import xebec

xebec.serve(lambda batch: [0] * len(batch))
`

// startXebec runs a gateway with one no-op model.
func startXebec(ctx context.Context, cfg config, where setting) (*serverProcess, error) {
	fmt.Printf("==> starting xebec with a %s\n", where)
	dir, err := os.MkdirTemp("", "xebec-bench-")
	if err != nil {
		return nil, err
	}
	models := filepath.Join(dir, "models", "noop")
	data := filepath.Join(dir, "data")
	command := []string{cfg.worker, "-mode", "noop"}
	files := map[string]string{}
	if where.worker == python {
		command = []string{"python", "model.py"}
		files["model.py"] = noopPython
	}
	words, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	files["xebec.yaml"] = fmt.Sprintf(noopManifest, words)
	err = errors.Join(os.MkdirAll(models, 0o755), os.MkdirAll(data, 0o700))
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(models, name), []byte(text), 0o644))
	}
	addr, err1 := server.FreeAddr()
	admin, err2 := server.FreeAddr()
	if err := errors.Join(err, err1, err2); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	args := []string{"serve", "--config", filepath.Join(dir, "models"), "--listen", addr, "--admin", admin, "--data-dir", data}
	if cfg.python != "" {
		args = append(args, "--python", cfg.python)
	}
	// Readiness alone is no proof: a model that has failed is "ready" too. An answer is.
	ready := func() error {
		got, err := answer.Of(&http.Client{Timeout: time.Second}, "http://"+addr+"/noop/predict", jsonType, smallJSON)
		if err != nil {
			return err
		}
		if got.Status != 200 || !bytes.Contains(got.Body, []byte(`"output":0`)) || bytes.Contains(got.Body, []byte(`"default":true`)) {
			return fmt.Errorf("status %d, %.200s", got.Status, got.Body)
		}
		return nil
	}
	s, err := start(ctx, cfg, "xebec", addr, dir, ready, cfg.xebec, args...)
	if err != nil {
		return nil, err
	}
	s.admin = admin
	if err := looksAtBodies(addr); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// looksAtBodies makes sure that the gateway reads what it is sent: one that did not would be fast, and noop would not tell.
func looksAtBodies(addr string) error {
	for _, c := range []struct {
		contentType, body, what string
	}{{jsonType, `{"input": ["one"]}`, "text in a float32 input"}, {rawType, "abc", "a raw body of 3 bytes for float32[-1]"}} {
		got, err := answer.Of(&http.Client{Timeout: 10 * time.Second}, "http://"+addr+"/noop/predict", c.contentType, []byte(c.body))
		if err != nil {
			return err
		}
		if got.Status != 400 {
			return fmt.Errorf("xebec answers %s with status %d (%.200s): expected 400, so its numbers would mean nothing", c.what, got.Status, got.Body)
		}
	}
	return nil
}

// startFloor runs the floor with the answer that xebec gives to the scenario's request.
func startFloor(ctx context.Context, cfg config, s scenario, xebec *serverProcess) (*serverProcess, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	model, err := answer.Of(client, "http://"+xebec.addr+"/noop/predict", s.contentType, s.body)
	if err != nil {
		return nil, err
	}
	if model.Status != 200 {
		return nil, fmt.Errorf("xebec answers with status %d: %.200s", model.Status, model.Body)
	}
	dir, err := os.MkdirTemp("", "xebec-floor-")
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(model)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "answer.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	addr, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	ready := func() error {
		got, err := answer.Of(client, "http://"+addr+"/noop/predict", s.contentType, s.body)
		if err == nil && !got.Equal(model) {
			err = fmt.Errorf("the floor answers %+v, xebec %+v", got, model)
		}
		return err
	}
	return start(ctx, cfg, "floor", addr, dir, ready, cfg.floor, "-listen", addr, "-answer", file)
}
