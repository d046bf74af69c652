// Command cache compares the prediction cache (package gateway/cache) with otter, a well-maintained Go cache, and with a simulated plain
// CLOCK, which is what Clipper had: hit ratios at equal bytes under six kinds of requests, and the costs of a hit and a miss.
//
//	cache -rounds 3 -duration 150ms
//
// Everything runs in one process. Hit ratios depend on -seed and -requests only (otter's also on chance). Costs depend on the machine and
// should be read as ratios. It takes less than a minute. Progress goes to stderr, the results to bench/results/<date>-cache.json, .md and .svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

func main() { runner.Main("cache", run) }

func run(ctx context.Context) error {
	requests := flag.Int("requests", 500_000, "requests of each workload; the first tenth is not counted")
	seed := flag.Uint64("seed", 1, "of the workloads")
	rounds := flag.Int("rounds", 3, "rounds of each cost")
	duration := flag.Duration("duration", 150*time.Millisecond, "of each run of a cost")
	var out string
	runner.Out.Var(&out)
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if *requests < 1000 || *rounds < 1 || *duration <= 0 {
		return errors.New("-requests must be at least 1000, -rounds at least 1, -duration more than 0")
	}
	report := &Report{Taken: results.Now(), Requests: *requests, Seed: *seed, Rounds: *rounds, OtterOverheadBytes: measureOtterOverhead(50_000)}
	for _, w := range workloads(*requests, *seed) {
		for _, z := range sizings {
			for _, mebibytes := range cacheMebibytes {
				if err := ctx.Err(); err != nil {
					return err
				}
				r := measureRatio(&w, z, mebibytes)
				report.Ratios = append(report.Ratios, r)
				line := fmt.Sprintf("    %-9s %-6s %d MiB:", r.Workload, r.Sizes, r.MaxMebibytes)
				for _, c := range ratioContenders {
					line += fmt.Sprintf("   %s %.3f", c.name, r.HitRatio[c.name])
				}
				runner.Logf("%s", line)
			}
		}
	}
	for _, k := range costs {
		c, err := measureCost(ctx, k, *rounds, *duration)
		if err != nil {
			return err
		}
		report.Costs = append(report.Costs, c)
		runner.Logf("    %s done", k)
	}
	return runner.Publish(out, "cache", report)
}
