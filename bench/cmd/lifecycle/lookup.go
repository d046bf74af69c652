package main

import (
	"context"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/gobench"
)

// lookupBenchmark is in package gateway/query, because the look-up is not exported.
const lookupBenchmark = "Lookup"

func measureLookup(ctx context.Context, cfg config, report *Report) error {
	all, err := gobench.Run(ctx, gobench.Options{
		Go: cfg.gotool, Root: cfg.root, Package: "./gateway/query", Pattern: "^Benchmark" + lookupBenchmark + "$", Benchtime: cfg.benchtime, Runs: cfg.rounds,
	})
	for i := range all {
		all[i].Name = strings.TrimPrefix(all[i].Name, lookupBenchmark+"/")
	}
	report.Lookups = all
	return err
}
