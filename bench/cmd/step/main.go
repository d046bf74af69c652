// Command step compares iteration-level batching, where sequences join and leave a running batch between two steps of the model
// (xebec.serve with step, and streams), with batching of whole requests, where a batch ends with its longest sequence.
//
//	step -pairs 7 -places 8,62
//	step -quick
//
// Both run the same toy of a recurrent model (bench/models/step), whose step of n sequences takes 5 ms and 0.1 ms for each, in the real xebec,
// over HTTP, on the same sequences. Beside what is measured the report has what arithmetic says: the same sequences with steps of exactly
// that time, and everything else for nothing. bench/METHOD.md describes the method.
//
// Progress goes to stderr, the results to bench/results/<date>-step.json and .md. The exit status is 1 if an answer was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// mostPlaces is how many sequences a replica runs at once at most.
const mostPlaces = 62

type config struct {
	gateway.Programs
	model, out string
	places     []int
	pairs      int
	callers    int
	sequences  int // of each run
	seed       uint64
}

func main() { runner.Main("step", run) }

func run(ctx context.Context) error {
	cfg, err := parse()
	if err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Callers: cfg.callers, Seed: cfg.seed}
	lengths := lengths(cfg.sequences, cfg.seed)
	report.Sequences, report.Outputs, report.Longest = summary(lengths)
	var failed error
	for _, places := range cfg.places {
		runner.Logf("==> %d places", places)
		s, err := measure(ctx, cfg, places, lengths)
		if err != nil {
			failed = fmt.Errorf("%d places: %w", places, err)
			break
		}
		report.Settings = append(report.Settings, *s)
	}
	return errors.Join(failed, runner.Publish(cfg.out, "step", report))
}

func parse() (cfg config, err error) {
	runner.Xebec.Var(&cfg.Xebec)
	runner.Python.Var(&cfg.Python)
	runner.Out.Var(&cfg.out)
	flag.StringVar(&cfg.model, "model", "bench/models/step", "`folder` of the model")
	flag.IntVar(&cfg.pairs, "pairs", 5, "pairs of runs for each number of places")
	flag.IntVar(&cfg.callers, "callers", mostPlaces, "callers, each with one sequence at a time; with as many as there are places, batches of whole requests are full")
	flag.IntVar(&cfg.sequences, "sequences", 16*mostPlaces, "sequences of each run")
	flag.Uint64Var(&cfg.seed, "seed", 1, "of the sequences' lengths")
	places := flag.String("places", "8,32,62", "how many sequences a replica runs at once, separated by commas")
	quick := flag.Bool("quick", false, "one pair of a few sequences, as a smoke test")
	if err := runner.ParseFlags(); err != nil {
		return cfg, err
	}
	if *quick {
		cfg.pairs, cfg.sequences = 1, 128
	}
	for word := range strings.SplitSeq(*places, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > mostPlaces {
			return cfg, fmt.Errorf("-places %q: expected numbers from 1 to %d, separated by commas", *places, mostPlaces)
		}
		cfg.places = append(cfg.places, n)
	}
	if cfg.pairs < 1 || cfg.callers < 1 || cfg.sequences < cfg.callers {
		return cfg, errors.New("-pairs and -callers must be at least 1, -sequences at least -callers")
	}
	return cfg, runner.Resolve(runner.BuildHint, &cfg.Xebec, &cfg.Python, &cfg.model)
}
