package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

const (
	// atOnce is how many sleeping models are queried at the same time.
	atOnce = 20
	// maxAsleepMegabytes is the target for ten thousand declared models, none of which runs.
	maxAsleepMegabytes = 150
)

// Sleepers is a gateway with many sleeping models, and what happened when some of them were queried.
type Sleepers struct {
	Models       int     `json:"models"`
	StartSeconds float64 `json:"start_seconds"` // until /readyz said 200
	// Before is from before the first query, After from when all models slept again.
	Before Asleep `json:"before"`
	After  Asleep `json:"after"`
	// Woken are models that were queried once each: one after the other, and in groups.
	Woken []Woken `json:"woken"`
	// AsleepSeconds is the time from the last answer until all models slept.
	AsleepSeconds float64 `json:"asleep_seconds"`
}

// Woken are sleeping models that were queried, AtOnce at a time.
type Woken struct {
	AtOnce int       `json:"at_once"`
	Millis []float64 `json:"ms"` // from the query until its answer; only of models that answered
	Failed int       `json:"failed"`
}

// Asleep is what a gateway uses while all models sleep.
type Asleep struct {
	Megabytes float64 `json:"mb"`
	// CPUPercent is of one core, over Seconds.
	CPUPercent float64 `json:"cpu_percent"`
	Seconds    float64 `json:"seconds"`
}

// sleepersManifest declares models that share a directory, a command and a zygote.
func sleepersManifest(cfg config) string {
	var b strings.Builder
	for i := range cfg.declared {
		fmt.Fprintf(&b, `---
kind: Model
name: %s
version: "1"
dir: %q
inputs:  [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py]}
preload: [numpy]
replicas: {min: 0, max: 1, idle: 1s}
cache: off
`, sleeperName(i), cfg.waiting())
	}
	return b.String()
}

func sleeperName(i int) string { return fmt.Sprintf("m%05d", i) }

// sleeperBody is a query of the Open Inference Protocol, because these models have no functions.
var sleeperBody = []byte(`{"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}`)

func measureSleepers(ctx context.Context, cfg config, report *Report) error {
	g, err := gateway.Start(ctx, gateway.Options{Programs: cfg.Programs, Store: true, Files: map[string]string{"many.yaml": sleepersManifest(cfg)}, Configs: []string{"many.yaml"}})
	if err != nil {
		return err
	}
	defer g.Stop()
	s := &Sleepers{Models: cfg.declared, StartSeconds: g.StartSeconds}
	a := newAsker(g)
	defer a.close()
	// The first model is not measured: its answer means that the zygote has imported everything.
	if _, err := a.model(ctx, sleeperName(0), sleeperBody); err != nil {
		return fmt.Errorf("%w%s", err, g.LastWords())
	}
	if err := allAsleep(ctx, g); err != nil {
		return err
	}
	if s.Before, err = lookAsleep(ctx, cfg, g); err != nil {
		return err
	}
	runner.Logf("    %d models asleep: %.0f MB, %.2f %% of a core", s.Models, s.Before.Megabytes, s.Before.CPUPercent)

	chosen := rand.New(rand.NewPCG(1, 1)).Perm(cfg.declared - 1)[:2*cfg.woken] // the same ones in every run
	one, errOne := wake(ctx, a, chosen[:cfg.woken], 1)
	many, errMany := wake(ctx, a, chosen[cfg.woken:], atOnce)
	s.Woken = []Woken{one, many}
	for _, w := range s.Woken {
		q := results.Quantiles(w.Millis)
		runner.Logf("    woken, %d at once: p50 %.1f ms, the longest %.1f ms; %d failed", w.AtOnce, q(0.5), q(1), w.Failed)
	}
	began := time.Now()
	if err := allAsleep(ctx, g); err != nil {
		return err
	}
	s.AsleepSeconds = time.Since(began).Seconds()
	if s.After, err = lookAsleep(ctx, cfg, g); err != nil {
		return err
	}
	report.Sleepers = s
	if err := errors.Join(errOne, errMany); err != nil {
		return fmt.Errorf("models that were asleep did not answer: %w%s", err, g.LastWords())
	}
	return nil
}

// wake queries models once each in groups of atOnce. A group starts when the one before has answered. The error is that of the last query
// that failed.
func wake(ctx context.Context, a *asker, models []int, atOnce int) (w Woken, failed error) {
	w.AtOnce = atOnce
	for group := range slices.Chunk(models, atOnce) {
		answers, errs := make([]*asked, len(group)), make([]error, len(group))
		var all sync.WaitGroup
		for i, model := range group {
			all.Go(func() { answers[i], errs[i] = a.model(ctx, sleeperName(1+model), sleeperBody) })
		}
		all.Wait()
		for i, err := range errs {
			if err != nil {
				w.Failed++
				failed = err
				continue
			}
			w.Millis = append(w.Millis, answers[i].millis())
		}
	}
	return w, failed
}

// allAsleep waits until no model has a replica.
func allAsleep(ctx context.Context, g *gateway.Gateway) error {
	return runner.Until(ctx, pollAllEvery, asleepWithin, "all models sleep", func(ctx context.Context) (bool, error) {
		now, err := g.Status(ctx)
		if err == nil && now.Node == nil {
			err = errors.New("the gateway does not say how many models are awake")
		}
		return err == nil && now.Replicas == 0 && now.Node.Awake == 0, err
	})
}

// lookAsleep leaves a gateway alone for a while and measures what it used.
func lookAsleep(ctx context.Context, cfg config, g *gateway.Gateway) (a Asleep, err error) {
	began := time.Now()
	before, err := g.CPU()
	if err != nil {
		return a, err
	}
	if err := runner.Sleep(ctx, cfg.settle); err != nil {
		return a, err
	}
	after, err := g.CPU()
	if err != nil {
		return a, err
	}
	a.Seconds = time.Since(began).Seconds()
	a.CPUPercent = 100 * (after - before).Seconds() / a.Seconds
	a.Megabytes, err = g.ResidentMegabytes()
	return a, err
}
