package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/answer"
	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/internal/server"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// serverProcess is a server under test.
type serverProcess struct {
	*server.Process
	addr    string
	gateway *gateway.Gateway // nil if the server is the floor
}

// env is the environment of both servers.
func (c *config) env() []string { return []string{fmt.Sprintf("GOMAXPROCS=%d", c.procs)} }

// noopManifest's objective is far above any latency here, so that the floor is not compared with default answers when the machine is slow for
// a moment. It changes nothing in the path.
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

const echoManifest = `kind: Model
name: echo
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [%q, "-mode", "echo"]}
cache: off
---
kind: Function
name: echo
models: [echo]
slo: 5s
`

const noopPython = `import xebec

xebec.serve(lambda batch: [0] * len(batch))
`

// startXebec runs a gateway with one no-op model.
func startXebec(ctx context.Context, cfg config, where setting) (*serverProcess, error) {
	runner.Logf("==> starting xebec with a %s", where)
	command, files := []string{cfg.worker, "-mode", "noop"}, map[string]string{}
	if where.worker == python {
		command = []string{"python", "model.py"}
		files["models/noop/model.py"] = noopPython
	}
	words, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	files["models/noop/xebec.yaml"] = fmt.Sprintf(noopManifest, words)
	files["models/echo/xebec.yaml"] = fmt.Sprintf(echoManifest, cfg.worker)
	g, err := gateway.Start(ctx, gateway.Options{
		Programs: cfg.Programs, Store: true, Files: files, Configs: []string{"models"}, Env: cfg.env(), Cores: cfg.serverCores, Ready: noopAnswers,
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checksBodies(g.Addr), keepsContents(g.Addr)); err != nil {
		g.Stop()
		return nil, err
	}
	return &serverProcess{g.Process, g.Addr, g}, nil
}

// noopAnswers queries the model, because a gateway whose model has failed is ready, too.
func noopAnswers(g *gateway.Gateway) error {
	got, err := small.of(&http.Client{Timeout: time.Second}, g.Addr)
	if err != nil {
		return err
	}
	if got.Status != 200 || !bytes.Contains(got.Body, []byte(`"output":0`)) || bytes.Contains(got.Body, []byte(`"default":true`)) {
		return fmt.Errorf("status %d, %.200s", got.Status, got.Body)
	}
	return nil
}

// checksBodies makes sure that the gateway reads request bodies. One that did not would be fast, and noop would not notice.
func checksBodies(addr string) error {
	client := &http.Client{Timeout: 10 * time.Second}
	for _, q := range misfits() {
		got, err := q.of(client, addr)
		if err != nil {
			return err
		}
		if got.Status != 400 {
			return fmt.Errorf("xebec answers %s with %.100q as %s with status %d (%.200s): expected 400, so its numbers would mean nothing", q.path, q.bodies[0], q.contentType, got.Status, got.Body)
		}
	}
	return nil
}

// keepsContents makes sure that large bodies of many clients at a time reach a model unchanged, batch after batch: the no-op's answer would
// not tell.
func keepsContents(addr string) error {
	const clients, each, size = 16, 8, 600 << 10
	var all sync.WaitGroup
	failures := make([]error, clients)
	for client := range clients {
		all.Go(func() {
			random := rand.NewChaCha8([32]byte{byte(client)})
			body := make([]byte, size)
			for k := range each {
				_, _ = random.Read(body) // it never fails
				got, err := answer.Of(&http.Client{Timeout: 10 * time.Second}, "http://"+addr+"/echo/predict", loadgen.Binary, body)
				if err != nil {
					failures[client] = err
					return
				}
				if want := base64.StdEncoding.EncodeToString(body); got.Status != 200 || !bytes.Contains(got.Body, []byte(want)) {
					failures[client] = fmt.Errorf("xebec answers body %d of client %d with status %d, and not with its content", k, client, got.Status)
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// startFloor runs the floor with the answer that xebec gives to the scenario's request.
func startFloor(ctx context.Context, cfg config, s scenario, xebec *serverProcess) (*serverProcess, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	model, err := s.ask.of(client, xebec.addr)
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
		got, err := s.ask.of(client, addr)
		if err == nil && !got.Equal(model) {
			err = fmt.Errorf("the floor answers %+v, xebec %+v", got, model)
		}
		return err
	}
	p, err := server.Start(ctx, server.Options{
		Name: "floor", Program: cfg.floor, Args: []string{"-listen", addr, "-answer", file, "-relay=" + strconv.FormatBool(cfg.relay)}, Folder: dir, Env: cfg.env(), Cores: cfg.serverCores, Ready: ready,
	})
	if err != nil {
		return nil, err
	}
	return &serverProcess{Process: p, addr: addr}, nil
}
