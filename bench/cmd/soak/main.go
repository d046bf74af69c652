// Command soak runs one gateway for a long time under everything at once, and judges what must not happen: a wrong answer, a query that is
// answered twice or not at all, and a resource that grows.
//
// It starts the real xebec with real workers. Careful clients send queries whose answers they know. Hostile clients attack both ports.
// An operator deploys versions, deletes them and scrapes metrics; models fall asleep and wake. Replicas, the reaper, the store and the
// gateway itself are killed. Once a second the program reads the gateway's descriptors, shared memory, goroutines and resident memory, and
// counts dead processes that were not reaped. A gateway that is killed starts again from its store: that begins a new life, with a
// curve of its own.
//
//	soak -duration 30m
//	soak -duration 30m -redis redis-server
//
// Progress goes to stderr, the results to bench/results/<date>-soak.json, .md and .svg. The exit status is 1 if an answer was wrong, missing
// or double, or if a resource grew. What counts as growth is in judge.go.
package main

import (
	"context"
	"errors"
	"flag"
	"os/exec"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

type config struct {
	gateway.Programs
	worker, redis, out string
	duration           time.Duration
	lives              int
	seed               uint64
}

func main() { runner.Main("soak", run) }

func run(ctx context.Context) error {
	cfg := config{}
	runner.Xebec.Var(&cfg.Xebec)
	runner.Worker.Var(&cfg.worker)
	runner.Out.Var(&cfg.out)
	flag.StringVar(&cfg.redis, "redis", "", "`program` of a Redis server to keep the state in; empty: a file")
	flag.DurationVar(&cfg.duration, "duration", 30*time.Minute, "of the whole run")
	flag.IntVar(&cfg.lives, "lives", 3, "lives of the gateway: it is killed and started again between them")
	flag.Uint64Var(&cfg.seed, "seed", 1, "of the random choices")
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if cfg.lives < 1 || cfg.duration < time.Duration(cfg.lives)*5*time.Second {
		return errors.New("-lives must be at least 1, and -duration at least 5s for each")
	}
	if err := runner.Resolve(runner.BuildHint, &cfg.Xebec, &cfg.worker); err != nil {
		return err
	}
	if cfg.redis != "" {
		path, err := exec.LookPath(cfg.redis)
		if err != nil {
			return err
		}
		cfg.redis = path
	}
	report, err := soak(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(runner.Publish(cfg.out, "soak", report), report.Failed())
}

// soak plays the whole run.
func soak(ctx context.Context, cfg config) (*Report, error) {
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	defer w.close()
	report := &Report{Taken: results.Now(), Seconds: cfg.duration.Seconds(), Seed: cfg.seed, Store: w.storeName(), tally: newTally()}
	if err := w.start(ctx); err != nil {
		return nil, err
	}

	playing, stop := context.WithCancel(ctx)
	defer stop()
	var players sync.WaitGroup
	for _, play := range w.players(report.tally) {
		players.Go(func() { play(playing) })
	}
	life := cfg.duration / time.Duration(cfg.lives)
	for i := range cfg.lives {
		if i > 0 {
			runner.Logf("==> the gateway is killed and started again")
			if err = w.killGateway(ctx); err != nil {
				break
			}
		}
		runner.Logf("==> life %d of %d: %s", i+1, cfg.lives, life)
		samples, sampled := w.watch(ctx, life)
		report.Lives = append(report.Lives, Life{Samples: samples})
		if err = sampled; err != nil {
			break
		}
	}
	stop()
	players.Wait()
	report.finish()
	return report, err
}
