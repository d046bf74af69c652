package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/answer"
	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// startGateway runs a gateway with both models and waits until it is ready and the first one answers.
func startGateway(ctx context.Context, cfg config, s setting, d *data) (*gateway.Gateway, error) {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	return gateway.Start(ctx, gateway.Options{
		Programs: cfg.Programs, Configs: []string{filepath.Join(cfg.models, "overload"), filepath.Join(cfg.models, "overload-stuck")},
		// The stuck model's batch never ends, so there is nothing to wait for.
		Args:  []string{"--epoch", s.epoch.String(), "--drain-timeout", "1s"},
		Ready: func(g *gateway.Gateway) error { return ready(client, g, d) },
	})
}

// ready queries the model, because a gateway whose model has failed is ready, too. The stuck model does not answer; for it /readyz must do.
func ready(client *http.Client, g *gateway.Gateway, d *data) error {
	got, err := answer.Of(client, "http://"+g.Addr+"/"+flood+"/predict", loadgen.Binary, d.rows[0])
	if err != nil {
		return err
	}
	if got.Status != 200 || !bytes.Contains(got.Body, d.wants[0]) {
		return fmt.Errorf("status %d, %.200s", got.Status, got.Body)
	}
	return g.Ready()
}
