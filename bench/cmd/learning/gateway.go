package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/server"
)

// switchFile, in the gateway's folder, is what a model looks for that can be made a bad one.
const switchFile = "degraded"

// gateway is a running `xebec serve` with its workers. Its folder, where the manifest and the switch are, ends with it.
type gateway struct {
	*server.Process
	addr, admin, folder string
}

// startGateway runs the real program with what declare writes, and waits until all models are ready and the first function has
// answered. declare is told the folder.
func startGateway(ctx context.Context, cfg config, declare func(folder string, m *manifestText)) (*gateway, error) {
	addr, err1 := server.FreeAddr()
	admin, err2 := server.FreeAddr()
	folder, err3 := os.MkdirTemp("", "xebec-learning-")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	var m manifestText
	declare(folder, &m)
	file := filepath.Join(folder, "part.yaml") // another name than a model directory's file, which declares one model
	if err := os.WriteFile(file, []byte(m.String()), 0o644); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	p, err := server.Start(ctx, server.Options{
		Name: "xebec", Program: cfg.xebec, Folder: folder,
		Args:  []string{"serve", "--config", file, "--listen", addr, "--admin", admin, "--python", cfg.python, "--log-level", "warn"},
		Ready: func() error { return ready(client, addr) },
	})
	if err != nil {
		return nil, err
	}
	return &gateway{p, addr, admin, folder}, nil
}

func ready(client *http.Client, addr string) error {
	status, err := client.Get("http://" + addr + "/readyz")
	if err != nil {
		return err
	}
	defer status.Body.Close()
	if status.StatusCode != 200 {
		return fmt.Errorf("readyz: status %d", status.StatusCode)
	}
	return nil
}

// degrade makes the model that looks for the switch a bad one, or a good one again.
func (g *gateway) degrade(bad bool) error {
	path := filepath.Join(g.folder, switchFile)
	if bad {
		return os.WriteFile(path, nil, 0o644)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
