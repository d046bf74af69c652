package main

import (
	"context"
	"fmt"

	"github.com/xebec-serving/xebec/bench/internal/gobench"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// maxDecisionNanos is the target for a plan, for a placement and for a tick of the autoscaler.
const maxDecisionNanos = 1e6

// Decision is the cost of one decision for a thousand models with four thousand replicas.
type Decision struct {
	What string `json:"what"`
	gobench.Benchmark
}

// decisions are the packages' own benchmarks: what they measure is not exported.
var decisions = []struct{ what, dir, pattern string }{
	{"a plan", "./scheduler/planner", "^BenchmarkPlan$/^1000x4000$"},
	{"a placement", "./scheduler/placement", "^BenchmarkPlan$"},
	{"a tick of the autoscaler", "./scheduler/autoscale", "^BenchmarkDecide$"},
}

func measureDecisions(ctx context.Context, cfg config, report *Report) error {
	for _, d := range decisions {
		all, err := gobench.Run(ctx, gobench.Options{Go: cfg.gotool, Root: cfg.root, Package: d.dir, Pattern: d.pattern, Benchtime: cfg.benchtime, Runs: cfg.rounds})
		if err != nil {
			return fmt.Errorf("%s: %w", d.what, err)
		}
		for _, b := range all {
			runner.Logf("    %s, %s: %s µs", d.what, b.Name, micros(b.Nanos))
			report.Decisions = append(report.Decisions, Decision{What: d.what, Benchmark: b})
		}
	}
	return nil
}

func micros(nanos []float64) string {
	return results.Spread(1, results.Each(nanos, func(n float64) float64 { return n / 1e3 }))
}
