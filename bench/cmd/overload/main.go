// Command overload measures what a gateway does with more load than its model can evaluate: the goodput that it keeps, how
// fast it refuses the rest, how soon it is well again, and what one function's flood costs another.
//
// It starts the real xebec with real workers: a kernel SVM (bench/models/overload) that evaluates a query in about half a
// millisecond, so that five times its capacity is a rate that one machine can send, and a model that never answers
// (bench/models/overload-stuck). It asks over HTTP, by bench/loadgen. In each round a gateway is started for every setting,
// with the epoch planner and without, and plays all phases: capacity (a closed loop), overload at 1, 2 and 5 times of it (open
// loops), capacity again, a flood that ends, a quiet function beside a flood, and deadlines under load.
//
//	overload -rounds 5 -duration 5s
//	overload -quick
//
// Its progress goes to stderr; the results go to bench/results/<date>-overload.json and .md. It exits with 1 when a request
// came to an end that should not happen (a status other than 200, 503 and 504, a wrong output, no answer). A missed target is in the
// report and is no error: a measurement on a shared machine is not a test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/program"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

type config struct {
	xebec, python, models, out string
	rounds                     int
	duration                   time.Duration // of an open loop
	capacity                   time.Duration // of a closed loop
	flood                      time.Duration // of the recovery's flood; it is watched as long again
	clients                    []int         // of the closed loops that calibrate
	settings                   []setting
}

func main() { program.Main("overload", run) }

func run(ctx context.Context) error {
	cfg := config{capacity: 2 * time.Second, flood: 3 * time.Second, clients: []int{8, 16, 24, 32, 48, 64}}
	flag.StringVar(&cfg.xebec, "xebec", "bin/xebec", "the gateway's program")
	flag.StringVar(&cfg.python, "python", "build/venv/bin/python", "an interpreter with the Python binding and scikit-learn")
	flag.StringVar(&cfg.models, "models", "bench/models", "the folder of overload and overload-stuck")
	flag.StringVar(&cfg.out, "out", "bench/results", "folder for the results; empty: print only")
	flag.IntVar(&cfg.rounds, "rounds", 5, "rounds; each starts a gateway for every setting")
	flag.DurationVar(&cfg.duration, "duration", 4*time.Second, "of each open loop")
	planner := flag.String("planner", "both", "settings to play: on, off or both")
	quick := flag.Bool("quick", false, "one round of short phases, less than half a minute in all: to see that it works")
	if err := program.ParseFlags(); err != nil {
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
		return errors.New("-rounds is at least 1, -duration at least 500ms")
	}
	if err := program.Resolve("`make build demo` at the repository's root builds what is missing", &cfg.xebec, &cfg.python, &cfg.models); err != nil {
		return err
	}
	data, err := prepare(ctx, cfg)
	if err != nil {
		return err
	}

	report := &Report{Taken: results.Now(), DurationSeconds: cfg.duration.Seconds(), CapacitySeconds: cfg.capacity.Seconds(), ObjectiveMillis: objective.Seconds() * 1e3}
	b := &bench{cfg: cfg, data: data}
	failed := measure(ctx, b, report)
	if len(report.Rounds) == 0 {
		return errors.Join(failed, errors.New("nothing was measured"))
	}
	fmt.Print(report.Markdown())
	if cfg.out != "" {
		failed = errors.Join(failed, report.write(cfg.out))
	}
	return errors.Join(failed, report.unexpected())
}

// measure plays the rounds. The order of the settings alternates, so that a machine that becomes slower meanwhile slows both.
func measure(ctx context.Context, b *bench, report *Report) error {
	for i := range b.cfg.rounds {
		order := slices.Clone(b.cfg.settings)
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			logf("==> round %d of %d, %s", i+1, b.cfg.rounds, s.Name)
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

// start plays one round against a gateway of its own.
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
	// The gateway knows nothing yet of a replica that is new: caps and profiles are learned before anything counts.
	if _, err := b.play(ctx, b.closed(b.clients, b.cfg.capacity)); err != nil {
		return nil, err
	}
	return b.round(ctx, s)
}
