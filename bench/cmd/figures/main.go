// Command figures measures what sections 4.3, 4.3.1 and 4.3.2 of the Clipper paper show in figures 3, 4 and 5 (Crankshaw et al.,
// NSDI 2017), on real scikit-learn containers: how long batches take by their size, what strategies of batching make of that
// under an objective of 20 ms, and what it gains to delay a batch that is not full.
//
// A container is a process of its own, started as the gateway does, with one scheduler's lane to it; there is no HTTP. One
// container runs at a time, and one strategy at a time has it. bench/METHOD.md says how, bench/models has the models.
//
//	figures -figures 3,4,5 -duration 700ms -rounds 3
//
// It writes bench/results/<date>-figures.json and .md, and an SVG for each figure, and exits with 1 when an answer was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/program"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/containers/process"
)

// objectiveMillis is what a batch may take in all of the paper's figures.
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
	out            string
}

func main() {
	process.MaybeReaper()
	program.Main("figures", run)
}

func run(ctx context.Context) error {
	cfg := config{statics: 8, settle: 40 * time.Second, repetitions: leastRepetitions}
	figures := flag.String("figures", "3,4,5", "which figures, by their numbers in the paper")
	only := flag.String("models", "", "which models, by their folders in -from, comma between; empty: all")
	flag.StringVar(&cfg.models, "from", "bench/models", "folder of the models and their trainer")
	flag.StringVar(&cfg.python, "python", "build/venv/bin/python", "an interpreter with the Python binding and scikit-learn")
	flag.DurationVar(&cfg.duration, "duration", 700*time.Millisecond, "of each measured point")
	flag.IntVar(&cfg.rounds, "rounds", 3, "rounds of figures 4 and 5; each runs everything once, in an order that rotates")
	quick := flag.Bool("quick", false, "a smoke test of half a minute, whose numbers mean nothing: 50 ms a point, one round, caps that have not settled")
	flag.StringVar(&cfg.out, "out", "bench/results", "folder for the results; empty: print only")
	if err := program.ParseFlags(); err != nil {
		return err
	}
	if cfg.rounds < 1 || cfg.duration <= 0 {
		return errors.New("-rounds is at least 1, -duration more than 0")
	}
	cfg.figures = strings.Split(*figures, ",")
	for _, f := range cfg.figures {
		if f != "3" && f != "4" && f != "5" {
			return fmt.Errorf("-figures %q: expected numbers out of 3, 4 and 5 with commas between", *figures)
		}
	}
	if *only != "" {
		cfg.only = strings.Split(*only, ",")
	}
	if *quick {
		cfg.duration, cfg.rounds, cfg.statics, cfg.settle, cfg.repetitions = 50*time.Millisecond, 1, 3, 150*time.Millisecond, 3
	}
	if err := program.Resolve("run from the repository's root; `make demo` makes the Python environment", &cfg.python, &cfg.models); err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Quick: *quick, Rounds: cfg.rounds, DurationSeconds: cfg.duration.Seconds()}
	if err := train(ctx, cfg.python, cfg.models); err != nil {
		return err
	}
	if err := measureAll(ctx, cfg, report); err != nil {
		return err
	}
	fmt.Print(report.Markdown())
	if cfg.out == "" {
		return nil
	}
	return report.write(cfg.out)
}

// measureAll runs one container after the other.
func measureAll(ctx context.Context, cfg config, report *Report) (err error) {
	for _, name := range cfg.only {
		if !slices.ContainsFunc(titles, func(t struct{ name, title string }) bool { return t.name == name }) {
			return fmt.Errorf("-models: there is no %q", name)
		}
	}
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
		rate := 0.0 // the first one decides for both
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

// progress goes to stderr: stdout has the report.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "    "+format+"\n", args...) }
