package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/answer"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

const rawType = "application/octet-stream"

// gateway is a running `xebec serve` with its workers.
type gateway struct {
	*server.Process
	addr, admin string
}

// startGateway runs the real program with the models of the folder, and waits until both answer.
func startGateway(ctx context.Context, cfg config, s setting, d *data) (*gateway, error) {
	addr, err1 := server.FreeAddr()
	admin, err2 := server.FreeAddr()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	p, err := server.Start(ctx, server.Options{
		Name: "xebec", Program: cfg.xebec,
		Args: []string{"serve", "--config", filepath.Join(cfg.models, "overload"), "--config", filepath.Join(cfg.models, "overload-stuck"),
			"--listen", addr, "--admin", admin, "--python", cfg.python, "--epoch", s.epoch.String(),
			// The stuck model's batch is never done: there is nothing to wait for.
			"--drain-timeout", "1s"},
		Ready: func() error { return ready(client, addr, d) },
	})
	if err != nil {
		return nil, err
	}
	return &gateway{p, addr, admin}, nil
}

// ready asks every model: one that has failed is "ready" too, so that readiness is no proof.
func ready(client *http.Client, addr string, d *data) error {
	got, err := answer.Of(client, "http://"+addr+"/"+flood+"/predict", rawType, d.rows[0])
	if err != nil {
		return err
	}
	if got.Status != 200 || !bytes.Contains(got.Body, d.wants[0]) {
		return fmt.Errorf("status %d, %.200s", got.Status, got.Body)
	}
	// The stuck model answers nobody; its replica counts here.
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
