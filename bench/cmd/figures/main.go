// Command figures measures what figures 3, 4 and 5 of the Clipper paper show (Crankshaw et al., NSDI 2017, sections 4.3, 4.3.1 and 4.3.2), on
// real scikit-learn containers: the latency of batches by their size, what batching strategies make of it under an objective of 20 ms,
// and the gain from delaying a batch that is not full.
//
// A container is a process of its own, started like the gateway does, with one scheduler lane to it. There is no HTTP. One container runs at
// a time, and one strategy at a time uses it. bench/METHOD.md describes the method, bench/models has the models.
//
//	figures -figures 3,4,5 -duration 700ms -rounds 3
//
// Progress goes to stderr, the results to bench/results/<date>-figures.json and .md, with an SVG for each figure. The exit status is 1 if an
// answer was wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/containers/process"
)

// objectiveMillis is the latency objective of a batch in all of the paper's figures.
const objectiveMillis = 20

type config struct {
	python, models string
	figures        []string
	only           []string // models; none: all
	duration       time.Duration
	rounds         int
	statics        int
	settle         time.Duration
	repetitions    int
	batches        int // of a strategy in its final rounds, at least
	out            string
}

func main() {
	process.MaybeReaper()
	runner.Main("figures", run)
}

func run(ctx context.Context) error {
	cfg := config{statics: 8, settle: 40 * time.Second, repetitions: leastRepetitions, batches: batchesForP99}
	chosen := flag.String("figures", "3,4,5", "figures to measure, by their numbers in the paper")
	only := flag.String("models", "", "models to measure, by their folders in -from, separated by commas; empty: all")
	flag.StringVar(&cfg.models, "from", "bench/models", "folder of the models and their trainer")
	runner.Python.Var(&cfg.python)
	flag.DurationVar(&cfg.duration, "duration", 700*time.Millisecond, "of each measured point")
	flag.IntVar(&cfg.rounds, "rounds", 3, "rounds of figures 4 and 5; each runs everything once, in an order that rotates")
	quick := flag.Bool("quick", false, "smoke test of half a minute, whose numbers mean nothing: 50 ms per point, one round, caps that have not settled")
	again := flag.String("again", "", "measure nothing: write the report of this earlier `FILE.json` again, with today's findings and figures")
	runner.Out.Var(&cfg.out)
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if cfg.rounds < 1 || cfg.duration <= 0 {
		return errors.New("-rounds must be at least 1, -duration more than 0")
	}
	var err error
	if cfg.figures, err = runner.Names("figures", *chosen, "3", "4", "5"); err != nil {
		return err
	}
	if *only != "" {
		var known []string
		for _, t := range titles {
			known = append(known, t.name)
		}
		if cfg.only, err = runner.Names("models", *only, known...); err != nil {
			return err
		}
	}
	if *again != "" {
		return publishAgain(*again, cfg.out)
	}
	if *quick {
		cfg.duration, cfg.rounds, cfg.statics, cfg.settle, cfg.repetitions, cfg.batches = 50*time.Millisecond, 1, 3, 150*time.Millisecond, 3, 1
	}
	if err := runner.Resolve("run from the repository's root; `make demo` makes the Python environment", &cfg.python, &cfg.models); err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Quick: *quick, Rounds: cfg.rounds, DurationSeconds: cfg.duration.Seconds()}
	if err := runner.Train(ctx, cfg.python, filepath.Join(cfg.models, "train.py")); err != nil {
		return err
	}
	if err := measureAll(ctx, cfg, report); err != nil {
		return err
	}
	return runner.Publish(cfg.out, "figures", report)
}

// publishAgain writes the report of an earlier measurement.
func publishAgain(file, out string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var report Report
	if err := json.Unmarshal(data, &report); err != nil {
		return fmt.Errorf("%s: %w: expected the JSON of a report of figures", file, err)
	}
	return runner.Publish(out, "figures", &report)
}

// measureAll measures one container after the other.
func measureAll(ctx context.Context, cfg config, report *Report) (err error) {
	r, err := openRig()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, t := range titles {
		if len(cfg.only) > 0 && !slices.Contains(cfg.only, t.name) {
			continue
		}
		m, err := loadModel(cfg.models, t.name, t.title)
		if err != nil {
			return err
		}
		if err := measureModel(ctx, cfg, r, m, report); err != nil {
			return err
		}
	}
	return nil
}

func measureModel(ctx context.Context, cfg config, r *rig, m model, report *Report) error {
	delayed := slices.Contains(cfg.figures, "5") && (m.name == linearSVM || m.name == rowByRow)
	if !delayed && !slices.Contains(cfg.figures, "3") && !slices.Contains(cfg.figures, "4") {
		return nil
	}
	c, err := r.start(ctx, cfg.python, m)
	if err != nil {
		return err
	}
	err = measureContainer(ctx, cfg, c, delayed, report)
	if err != nil {
		return errors.Join(err, c.end(false))
	}
	return c.stop()
}

func measureContainer(ctx context.Context, cfg config, c *container, delayed bool, report *Report) error {
	if slices.Contains(cfg.figures, "3") {
		p, err := measureProfile(ctx, cfg, c)
		if err != nil {
			return err
		}
		report.Profiles = append(report.Profiles, p)
	}
	if slices.Contains(cfg.figures, "4") {
		s, err := measureStrategies(ctx, cfg, c)
		if err != nil {
			return err
		}
		report.Comparisons = append(report.Comparisons, s)
	}
	if delayed {
		rate := 0.0 // the first model's rate holds for both
		if len(report.Delays) > 0 {
			rate = report.Delays[0].OfferedQPS
		}
		d, err := measureDelays(ctx, cfg, c, rate)
		if err != nil {
			return err
		}
		report.Delays = append(report.Delays, d)
	}
	return nil
}
