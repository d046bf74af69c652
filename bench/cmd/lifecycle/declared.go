package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

const (
	// The targets of part c for ten thousand models, and of part d for a thousand.
	maxResidentMegabytes = 150
	maxStartSeconds      = 3
	maxApplySeconds      = 5
)

// Declared is one start of a gateway with many models, none of which runs.
type Declared struct {
	Models int `json:"models"`
	// From is "manifests" or "store after kill -9".
	From         string  `json:"from"`
	StartSeconds float64 `json:"start_seconds"` // until /readyz said 200
	// Resident memory when the gateway was ready, and SettleSeconds later.
	ReadyMegabytes   float64 `json:"ready_mb"`
	SettledMegabytes float64 `json:"settled_mb"`
	SettleSeconds    float64 `json:"settle_seconds"`
}

// sleeper writes the manifest of a model that runs only on demand.
func sleeper(b *strings.Builder, name string) {
	fmt.Fprintf(b, `---
kind: Model
name: %s
version: "1"
inputs:  [{name: input, dtype: float32, shape: [64]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py]}
replicas: {min: 0, max: 1}
`, name)
}

func sleepers(n int, prefix string) string {
	var b strings.Builder
	for i := range n {
		sleeper(&b, fmt.Sprintf("%s%05d", prefix, i))
	}
	return b.String()
}

func measureDeclared(ctx context.Context, cfg config, report *Report) error {
	for round := range cfg.rounds {
		runner.Logf("    round %d of %d", round+1, cfg.rounds)
		if err := declareOnce(ctx, cfg, report); err != nil {
			return err
		}
	}
	return nil
}

// declareOnce starts a gateway from a manifest, kills it, and starts it again from its store.
func declareOnce(ctx context.Context, cfg config, report *Report) error {
	folder, err := gateway.NewFolder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for _, from := range []struct {
		name    string
		configs []string
	}{{"manifests", []string{"many.yaml"}}, {"store after kill -9", nil}} {
		g, err := gateway.Start(ctx, gateway.Options{
			Programs: cfg.Programs, Folder: folder, Store: true, Files: map[string]string{"many.yaml": sleepers(cfg.declared, "m")}, Configs: from.configs,
		})
		if err != nil {
			return fmt.Errorf("from %s: %w", from.name, err)
		}
		d, err := look(ctx, cfg, g)
		if err != nil {
			g.Stop()
			return fmt.Errorf("from %s: %w", from.name, err)
		}
		d.From = from.name
		report.Declared = append(report.Declared, *d)
		runner.Logf("        from %s: ready after %.2f s, %.0f MB, later %.0f MB", d.From, d.StartSeconds, d.ReadyMegabytes, d.SettledMegabytes)
		if err := g.Kill(); err != nil {
			return err
		}
	}
	return nil
}

// look measures a gateway that has just started. It counts the models last, because the answer takes memory.
func look(ctx context.Context, cfg config, g *gateway.Gateway) (*Declared, error) {
	d := &Declared{StartSeconds: g.StartSeconds, SettleSeconds: cfg.settle.Seconds()}
	var err error
	if d.ReadyMegabytes, err = g.ResidentMegabytes(); err != nil {
		return nil, err
	}
	if err := runner.Sleep(ctx, cfg.settle); err != nil {
		return nil, err
	}
	if d.SettledMegabytes, err = g.ResidentMegabytes(); err != nil {
		return nil, err
	}
	if d.Models, err = g.Models(ctx); err != nil {
		return nil, err
	}
	if d.Models != cfg.declared {
		return nil, fmt.Errorf("%d models are declared: expected %d", d.Models, cfg.declared)
	}
	return d, nil
}

// Applied is how long it took to declare many models.
type Applied struct {
	Store  string `json:"store"`
	How    string `json:"how"` // "one manifest" or "one by one"
	Models int    `json:"models"`
	// Seconds is the time until the last apply had returned. AgainSeconds is that of a second time, which changes nothing.
	Seconds      float64 `json:"seconds"`
	AgainSeconds float64 `json:"again_seconds"`
}

func measureApply(ctx context.Context, cfg config, report *Report) error {
	redisProgram, err := exec.LookPath(cfg.redis)
	if err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	for round := range cfg.rounds {
		runner.Logf("    round %d of %d", round+1, cfg.rounds)
		for _, s := range []struct{ name, fsync string }{{"bbolt", ""}, {"Redis, appendfsync everysec", "everysec"}, {"Redis, appendfsync always", "always"}} {
			for _, how := range []string{"one manifest", "one by one"} {
				a, err := applyOnce(ctx, cfg, redisProgram, s.fsync, how)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, how, err)
				}
				a.Store = s.name
				report.Applied = append(report.Applied, *a)
				runner.Logf("        %s, %s: %.2f s, again %.2f s", a.Store, a.How, a.Seconds, a.AgainSeconds)
			}
		}
	}
	return nil
}

// applyOnce declares the models to a gateway with an empty store.
func applyOnce(ctx context.Context, cfg config, redisProgram, fsync, how string) (*Applied, error) {
	folder, err := gateway.NewFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	var args []string
	if fsync != "" {
		redis, addr, err := startRedis(ctx, redisProgram, folder, fsync)
		if err != nil {
			return nil, err
		}
		defer redis.Stop()
		args = []string{"--store", "redis://" + addr}
	}
	o := gateway.Options{Programs: cfg.Programs, Folder: folder, Store: true, Args: args}
	g, err := gateway.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	manifests := []string{sleepers(cfg.applied, "m")}
	if how == "one by one" {
		manifests = manifests[:0]
		for i := range cfg.applied {
			var b strings.Builder
			sleeper(&b, fmt.Sprintf("m%05d", i))
			manifests = append(manifests, b.String())
		}
	}
	a := &Applied{How: how, Models: cfg.applied}
	for _, seconds := range []*float64{&a.Seconds, &a.AgainSeconds} {
		began := time.Now()
		for _, m := range manifests {
			if err := g.Apply(ctx, m); err != nil {
				return nil, fmt.Errorf("%w%s", err, g.LastWords())
			}
		}
		*seconds = time.Since(began).Seconds()
	}
	// Acknowledged means stored: after kill -9 all models are there. (Redis is not killed.)
	if err := g.Kill(); err != nil {
		return nil, err
	}
	again, err := gateway.Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("after kill -9: %w", err)
	}
	defer again.Stop()
	if n, err := again.Models(ctx); err != nil || n != cfg.applied {
		return nil, fmt.Errorf("after kill -9 there are %d models (%w): expected %d", n, err, cfg.applied)
	}
	return a, nil
}

// startRedis runs a Redis server with its files in a folder.
func startRedis(ctx context.Context, program, folder, fsync string) (*server.Process, string, error) {
	addr, err := server.FreeAddr()
	if err != nil {
		return nil, "", err
	}
	host, port, _ := strings.Cut(addr, ":")
	p, err := server.Start(ctx, server.Options{
		Name: "redis", Program: program,
		Args:  []string{"--bind", host, "--port", port, "--dir", folder, "--save", "", "--appendonly", "yes", "--appendfsync", fsync},
		Ready: func() error { return ping(addr) },
	})
	return p, addr, err
}
