// Command learning measures what figures 7 to 10 of the Clipper paper show (Crankshaw et al., NSDI 2017, sections 4.2, 5.1, 5.2 and 5.3):
// ensembles and their confidence, policies that find the best model and notice when it becomes worse, timely answers with stragglers,
// models personalised by user, and the effect of the prediction cache on feedback.
//
// It starts the real xebec with real workers, which run scikit-learn models of real handwritten digits (bench/models/learning), and sends
// queries over HTTP. bench/METHOD.md describes the method.
//
//	learning -only 7,8,9,10,cache
//	learning -quick
//	learning -orders
//	learning -lsh
//	learning -sets
//	learning -networks
//
// With -orders nothing is started: 20 orders of data sets, and of streams in which models fail, are played to the policies' own code in this
// process, beside the paper's algorithms, and with a sweep of the parameters. With -lsh nothing is started either: the data sets are played
// through a cache with approximate keys. -sets is like -orders, with data sets of images, speech, tables and text instead of digits.
// -networks serves ONNX graphs of different size and asks ensembles of them over HTTP.
//
// Progress goes to stderr, the results to bench/results/<date>-learning.json and .md, with an SVG for each figure. The exit status is 1 if an
// answer differed from the model's. A claim of the paper that does not hold here is in the report and is not an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

type config struct {
	gateway.Programs
	models, out string
	quick       bool
}

// quickFactor is how much smaller a smoke test is.
const quickFactor = 10

// scaled returns the number of queries for a full run of n.
func (c *config) scaled(n int) int {
	if c.quick {
		return n / quickFactor
	}
	return n
}

// lasting returns the duration for a full run of d.
func (c *config) lasting(d time.Duration) time.Duration {
	if c.quick {
		return d / quickFactor
	}
	return d
}

func main() { runner.Main("learning", run) }

// parts are named by the paper's figures, and cache for its section 4.2.
var parts = runner.Parts[config, Report]{
	{Name: "7", Title: "ensembles and agreement", Measure: func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Ensembles, err = measureEnsembles(ctx, cfg)
		return err
	}},
	{Name: "8", Title: "the best model degrades and recovers", Measure: func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Degradation, err = measureDegradation(ctx, cfg)
		return err
	}},
	{Name: "9", Title: "stragglers", Measure: func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Stragglers, err = measureStragglers(ctx, cfg)
		return err
	}},
	{Name: "10", Title: "personalised models", Measure: func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Personal, err = measurePersonal(ctx, cfg)
		return err
	}},
	{Name: "cache", Title: "feedback and the cache", Measure: func(ctx context.Context, cfg config, r *Report) (err error) {
		r.Caching, err = measureCaching(ctx, cfg)
		return err
	}},
}

func run(ctx context.Context) error {
	var cfg config
	runner.Xebec.Var(&cfg.Xebec)
	runner.Python.Var(&cfg.Python)
	runner.Out.Var(&cfg.out)
	flag.StringVar(&cfg.models, "models", "bench/models", "`folder` of learning, where the trainer is")
	flag.BoolVar(&cfg.quick, "quick", false, "smoke test, whose numbers mean nothing: a tenth of everything")
	only := flag.String("only", "", "parts to measure, separated by commas: figures by their numbers in the paper, and cache for its section 4.2; empty: all")
	orders := flag.Bool("orders", false, "play many orders of data sets to the policies, in this process and without a gateway, instead of the figures")
	lsh := flag.Bool("lsh", false, "play data sets through a prediction cache with approximate keys, in this process, instead of the figures")
	sets := flag.Bool("sets", false, "play many orders of images, speech, tables and text to the policies, as -orders does")
	networks := flag.Bool("networks", false, "serve networks of different size by ONNX Runtime, and ask ensembles of them over HTTP, instead of the figures")
	date := flag.String("date", "", "the day in the names of the results, as 2006-01-02; empty: today")
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	taken := results.Now()
	if *date != "" {
		day, err := time.Parse(time.DateOnly, *date)
		if err != nil {
			return fmt.Errorf("-date %q: expected a day such as %s", *date, time.DateOnly)
		}
		taken.When = day
	}
	instead := 0 // modes that were chosen instead of the figures
	for _, chosen := range []bool{*orders, *lsh, *sets, *networks} {
		if chosen {
			instead++
		}
	}
	switch {
	case instead > 1:
		return errors.New("-orders, -lsh, -sets and -networks: expected one of them")
	case *orders:
		report := &Orders{Taken: taken, Quick: cfg.quick}
		return runPlayed(ctx, cfg, "train.py", "learning-orders", report, func() error { return measureOrders(ctx, cfg, report) })
	case *lsh:
		report := &LSH{Taken: taken, Quick: cfg.quick}
		return runPlayed(ctx, cfg, "train.py", "learning-lsh", report, func() error { return measureLSH(ctx, cfg, report) })
	case *sets:
		report := &Sets{Taken: taken, Quick: cfg.quick}
		return runPlayed(ctx, cfg, "sets.py", "learning-sets", report, func() error { return measureSets(ctx, cfg, report) })
	case *networks:
		if err := runner.Resolve(runner.BuildHint, &cfg.Xebec, &cfg.Python, &cfg.models); err != nil {
			return err
		}
		report := &Networks{Taken: taken, Quick: cfg.quick}
		return runPlayed(ctx, cfg, "sets.py", "learning-networks", report, func() error { return measureNetworks(ctx, cfg, report) })
	}
	report := &Report{Taken: taken, Quick: cfg.quick}
	chosen, err := parts.Choose(*only)
	if err != nil {
		return err
	}
	if err := runner.Resolve(runner.BuildHint, &cfg.Xebec, &cfg.Python, &cfg.models); err != nil {
		return err
	}
	if err := runner.Train(ctx, cfg.Python, filepath.Join(cfg.models, "learning", "train.py")); err != nil {
		return err
	}
	var failed error
	report.Seconds, failed = chosen.Run(ctx, cfg, report)
	return errors.Join(failed, runner.Publish(cfg.out, "learning", report))
}

// runPlayed has the trainer make its files, and measures with them.
func runPlayed(ctx context.Context, cfg config, trainer, kind string, report results.Report, measure func() error) error {
	if err := runner.Resolve(runner.BuildHint, &cfg.Python, &cfg.models); err != nil {
		return err
	}
	if err := runner.Train(ctx, cfg.Python, filepath.Join(cfg.models, "learning", trainer)); err != nil {
		return err
	}
	if err := measure(); err != nil {
		return err
	}
	return runner.Publish(cfg.out, kind, report)
}
