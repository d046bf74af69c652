// Command overload measures what a gateway does with more load than its model can evaluate: the goodput that remains, how fast it refuses the
// rest, how soon it recovers, and what the flood of one function costs another.
//
// It starts the real xebec with real workers: a kernel SVM (bench/models/overload) that evaluates a query in about half a millisecond, so that
// one machine can send five times its capacity, and a model that never answers (bench/models/overload-stuck). It sends queries over HTTP
// with bench/loadgen. In each round it starts a gateway for every setting, with the epoch planner and without, and plays all phases:
// capacity (a closed loop), overload at 1, 2 and 5 times of it (open loops), capacity again, a flood that ends, a quiet function beside
// a flood, and deadlines under load.
//
//	overload -rounds 5 -duration 5s
//	overload -quick
//
// Progress goes to stderr, the results to bench/results/<date>-overload.json and .md. The exit status is 1 if a request had an outcome that
// should not happen (a status other than 200, 503 and 504, a wrong output, no answer). A missed target is in the report and is not an
// error: a measurement on a shared machine is not a test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

type config struct {
	gateway.Programs
	models, out string
	rounds      int
	duration    time.Duration // of an open loop
	capacity    time.Duration // of a closed loop
	flood       time.Duration // of the flood before the recovery, which is watched as long again
	clients     []int         // of the closed loops that calibrate
	settings    []setting
}

func main() { runner.Main("overload", run) }

func run(ctx context.Context) error {
	cfg := config{capacity: 2 * time.Second, flood: 3 * time.Second, clients: []int{8, 16, 24, 32, 48, 64}}
	runner.Xebec.Var(&cfg.Xebec)
	runner.Python.Var(&cfg.Python)
	runner.Out.Var(&cfg.out)
	flag.StringVar(&cfg.models, "models", "bench/models", "`folder` of overload and overload-stuck")
	flag.IntVar(&cfg.rounds, "rounds", 5, "rounds; each starts a gateway for every setting")
	flag.DurationVar(&cfg.duration, "duration", 4*time.Second, "of each open loop")
	planner := flag.String("planner", "both", "settings to play: on, off or both")
	quick := flag.Bool("quick", false, "one round of short phases, less than half a minute in all, as a smoke test")
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if *quick {
		cfg.rounds, cfg.duration, cfg.capacity, cfg.flood, cfg.clients = 1, 600*time.Millisecond, 400*time.Millisecond, 700*time.Millisecond, []int{16, 32}
	}
	for _, s := range settings {
		if *planner == "both" || "planner "+*planner == s.Name {
			cfg.settings = append(cfg.settings, s)
		}
	}
	if len(cfg.settings) == 0 {
		return fmt.Errorf("-planner %q: expected on, off or both", *planner)
	}
	if cfg.rounds < 1 || cfg.duration < 500*time.Millisecond {
		return errors.New("-rounds must be at least 1, -duration at least 500ms")
	}
	if err := runner.Resolve(runner.BuildHint, &cfg.Xebec, &cfg.Python, &cfg.models); err != nil {
		return err
	}
	data, err := prepare(ctx, cfg)
	if err != nil {
		return err
	}

	report := &Report{Taken: results.Now(), DurationSeconds: cfg.duration.Seconds(), CapacitySeconds: cfg.capacity.Seconds(), ObjectiveMillis: objective.Seconds() * 1e3}
	b := &bench{cfg: cfg, data: data}
	failed := measure(ctx, b, report)
	return errors.Join(failed, runner.Publish(cfg.out, "overload", report), report.unexpected())
}

// measure plays the rounds. The order of the settings alternates.
func measure(ctx context.Context, b *bench, report *Report) error {
	for i := range b.cfg.rounds {
		for _, s := range runner.Alternate(i, b.cfg.settings...) {
			runner.Logf("==> round %d of %d, %s", i+1, b.cfg.rounds, s.Name)
			r, err := b.start(ctx, s)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", i+1, s.Name, err)
			}
			report.Rounds = append(report.Rounds, *r)
			report.Clients = b.clients
		}
	}
	return nil
}

// start plays one round in a gateway of its own.
func (b *bench) start(ctx context.Context, s setting) (*Round, error) {
	var err error
	if b.gateway, err = startGateway(ctx, b.cfg, s, b.data); err != nil {
		return nil, err
	}
	defer b.gateway.Stop()
	if b.clients == 0 {
		if err := b.calibrate(ctx); err != nil {
			return nil, err
		}
	}
	// Let the gateway learn the new replica's cap and profile before anything counts.
	if _, err := b.play(ctx, b.closed(b.clients, b.cfg.capacity)); err != nil {
		return nil, err
	}
	return b.round(ctx, s)
}
