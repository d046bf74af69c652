package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
)

// switchFile, in the gateway's folder, makes the model that checks for it answer wrongly.
const switchFile = "degraded"

// startGateway runs a gateway with the manifest that declare writes, and waits until all models are ready. A model that does not start is an error.
// declare gets the gateway's folder, which holds the manifest, the models' files and the switch file, and is removed when the gateway stops.
func startGateway(ctx context.Context, cfg config, declare func(folder string, m *manifestText)) (*gateway.Gateway, error) {
	folder, err := gateway.NewFolder()
	if err != nil {
		return nil, err
	}
	var m manifestText
	declare(folder, &m)
	// The name differs from that of a model directory's file, which declares one model.
	const file = "part.yaml"
	if err := m.copyFiles(folder); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	g, err := gateway.Start(ctx, gateway.Options{
		Programs: cfg.Programs, Folder: folder, Temporary: true, Files: map[string]string{file: m.String()}, Configs: []string{file},
	})
	if err != nil {
		return nil, err
	}
	if err := g.ModelsReady(ctx); err != nil {
		g.Stop()
		return nil, err
	}
	return g, nil
}

// degrade makes the model that checks for the switch file a bad one, or a good one again.
func degrade(g *gateway.Gateway, bad bool) error {
	path := filepath.Join(g.Folder, switchFile)
	if bad {
		return os.WriteFile(path, nil, 0o644)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
