// Command core measures what Xebec computes in its own process: queries a second through the scheduler alone, queries a second through the
// path without HTTP and models, and the time of a plan for 1,000 models with 4,000 replicas.
//
//	core -rounds 5
//
// It runs the packages' own Go benchmarks, each on one core, in rounds. CPU time, which other users of the machine change little, is beside the
// time of the clock. It takes less than a minute. Progress goes to stderr, the results to bench/results/<date>-core.json and .md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gobench"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

type config struct {
	gotool, root, out string
	rounds            int
	benchtime         time.Duration
}

// part is one package's benchmark.
type part struct {
	name, dir, pattern string
	into               func(*Report) *[]gobench.Benchmark
}

var parts = []part{
	{"the scheduler alone", "./scheduler", "^BenchmarkQueries$", func(r *Report) *[]gobench.Benchmark { return &r.Scheduler }},
	{"the path", "./gateway/query", "^BenchmarkCore$", func(r *Report) *[]gobench.Benchmark { return &r.Path }},
	{"a plan", "./scheduler/planner", "^BenchmarkPlan$/^1000x4000$", func(r *Report) *[]gobench.Benchmark { return &r.Plans }},
}

func main() { runner.Main("core", run) }

func run(ctx context.Context) error {
	var cfg config
	runner.GoTool.Var(&cfg.gotool)
	runner.Root.Var(&cfg.root)
	runner.Out.Var(&cfg.out)
	flag.IntVar(&cfg.rounds, "rounds", 5, "runs of each benchmark")
	flag.DurationVar(&cfg.benchtime, "benchtime", 500*time.Millisecond, "of each run")
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if cfg.rounds < 1 || cfg.benchtime <= 0 {
		return errors.New("-rounds must be at least 1, -benchtime more than 0")
	}
	if err := runner.Resolve(runner.BuildHint, &cfg.root); err != nil {
		return err
	}
	report, err := measure(ctx, cfg)
	return errors.Join(err, runner.Publish(cfg.out, "core", report))
}

// measure runs the parts in turns, one run of each in a round: what slows the machine for a while slows all of them.
func measure(ctx context.Context, cfg config) (*Report, error) {
	report := &Report{Taken: results.Now(), Rounds: cfg.rounds, BenchSeconds: cfg.benchtime.Seconds()}
	for round := range cfg.rounds {
		for _, p := range runner.Alternate(round, parts...) {
			runner.Logf("==> round %d of %d: %s", round+1, cfg.rounds, p.name)
			all, err := gobench.Run(ctx, gobench.Options{Go: cfg.gotool, Root: cfg.root, Package: p.dir, Pattern: p.pattern, Benchtime: cfg.benchtime, Runs: 1, Procs: 1})
			if err != nil {
				return report, fmt.Errorf("%s: %w", p.name, err)
			}
			into := p.into(report)
			*into = gobench.Merge(*into, all)
		}
	}
	return report, nil
}
