// Command cache compares the prediction cache (package gateway/cache) with otter, a well-kept Go cache, and with a simulated plain
// CLOCK, which is what Clipper had: hit ratios at equal bytes under six kinds of requests, and what a hit and a miss cost.
//
//	cache -rounds 3 -duration 150ms
//
// Everything is in one process and one run. Hit ratios depend on -seed and -requests only (otter's also on chance); costs depend on the
// machine, and are to be read as ratios. It takes less than a minute, and writes bench/results/<date>-cache.json, .md and .svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/program"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

func main() { program.Main("cache", run) }

func run(ctx context.Context) error {
	requests := flag.Int("requests", 500_000, "requests of each workload; the first tenth is not counted")
	seed := flag.Uint64("seed", 1, "of the workloads")
	rounds := flag.Int("rounds", 3, "rounds of each cost")
	duration := flag.Duration("duration", 150*time.Millisecond, "of each run of a cost")
	out := flag.String("out", "bench/results", "folder for the results; empty: print only")
	if err := program.ParseFlags(); err != nil {
		return err
	}
	if *requests < 1000 || *rounds < 1 || *duration <= 0 {
		return errors.New("-requests is at least 1000, -rounds at least 1, -duration more than 0")
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
				fmt.Printf("    %-9s %-6s %d MiB:", r.Workload, r.Sizes, r.MaxMebibytes)
				for _, c := range ratioContenders {
					fmt.Printf("   %s %.3f", c.name, r.HitRatio[c.name])
				}
				fmt.Println()
			}
		}
	}
	for _, k := range costs {
		c, err := measureCost(ctx, k, *rounds, *duration)
		if err != nil {
			return err
		}
		report.Costs = append(report.Costs, c)
		fmt.Printf("    %s done\n", k)
	}
	markdown := report.Markdown()
	fmt.Print("\n" + markdown)
	if *out == "" {
		return nil
	}
	return report.write(*out, markdown)
}

// write keeps the report as <date>-cache.json, .md and .svg; a second one of a day replaces the first.
func (r *Report) write(dir, markdown string) error {
	picture, err := r.figure()
	if err != nil {
		return err
	}
	base, err := results.Write(dir, r.Name("cache"), r, markdown+fmt.Sprintf("\n![hit ratios](%s.svg)\n", r.Name("cache")))
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".svg", picture, 0o644); err != nil {
		return err
	}
	fmt.Printf("\n==> written: %s.json, .md and .svg\n", base)
	return nil
}
