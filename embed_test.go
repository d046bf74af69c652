package xebec_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/server"
)

// TestEmbeddingFromAnotherModule: the program on the guide's page about embedding prints what the page shows, in a module of its own.
func TestEmbeddingFromAnotherModule(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("deploy/guide/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	code, want := block(t, string(page), "go"), block(t, string(page), "text")
	dir := t.TempDir()
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	mod := fmt.Sprintf("module example.com/embed\n\ngo 1.26\n\nrequire github.com/xebec-serving/xebec v0.0.0\n\nreplace github.com/xebec-serving/xebec => %s\n", root)
	for name, text := range map[string]string{"main.go": code, "go.mod": mod, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", "embed", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := exec.Command(filepath.Join(dir, "embed"))
	run.Dir = dir
	out, err := run.CombinedOutput()
	if err != nil || string(out) != want {
		t.Errorf("the program prints %q, %v: expected %q", out, err, want)
	}
}

// block returns the text of a page's first block of a language.
func block(t *testing.T, page, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n```"+language+"\n")
	text, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatalf("the page has no block of %s", language)
	}
	return text
}

// TestTwoGatewaysInOneProcess: two gateways serve side by side, each with its own store, and do not change settings of the process.
func TestTwoGatewaysInOneProcess(t *testing.T) {
	worker := filepath.Join(t.TempDir(), "echo")
	if out, err := exec.Command("go", "build", "-o", worker, "./worker/bindings/go/examples/echo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	procs := runtime.GOMAXPROCS(0)
	ctx := t.Context()
	var gateways []*server.Server
	for i := range 2 {
		dir, err := os.MkdirTemp("", "xebec") // t.TempDir's path may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		g := server.New(server.Config{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", DataDir: dir})
		if err := g.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			drain, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := g.Shutdown(drain); err != nil {
				t.Error(err)
			}
		})
		info, err := os.Stat(filepath.Join(dir, "worker.sock"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the workers' socket has mode %v, %v: expected 0600", info.Mode(), err)
		}
		set, err := manifest.Decode("test", fmt.Appendf(nil, `
kind: Model
name: upper
version: "%d"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [%q]}
---
kind: Function
name: shout
models: [upper]
slo: 30s
`, i+1, worker))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Apply(ctx, set, false); err != nil {
			t.Fatal(err)
		}
		gateways = append(gateways, g)
	}
	var callers sync.WaitGroup
	for i, g := range gateways {
		callers.Go(func() {
			for n := range 100 {
				answer, err := g.Predict(ctx, "shout", api.Value{Data: fmt.Appendf(nil, "query %d", n)})
				if err != nil || answer.Code != api.OK || string(answer.Outputs[0].Data) != fmt.Sprintf("QUERY %d", n) {
					t.Errorf("gateway %d answers query %d with %+v, %v", i, n, answer, err)
					return
				}
			}
			models, err := g.Models(ctx, "upper")
			if err != nil || len(models) != 1 || models[0].Spec.Version != fmt.Sprint(i+1) {
				t.Errorf("gateway %d has %d versions, %v", i, len(models), err)
			}
		})
	}
	callers.Wait()
	if now := syscall.Umask(0o022); now != 0o022 {
		t.Errorf("the umask is %#o: a gateway has changed it", now)
	}
	if now := runtime.GOMAXPROCS(0); now != procs {
		t.Errorf("GOMAXPROCS is %d and was %d", now, procs)
	}
}
