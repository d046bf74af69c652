// Command ring compares the ways in which a request can reach a compiled worker on the same host and its answer can return: a unix stream
// socket with one write per message, the ring of package shm alone, and the whole transport of the gateway (package worker and the Go
// binding, with all their checks).
//
// The callers are the same for each way: goroutines that send a request, wait for its answer, and send the next one. There are 64 of them
// for the rate and one for the latency. The worker is this program again, as a child process, and answers at once. Each round runs all
// ways, in an order that rotates, and ratios are taken within a round.
//
//	ring -rounds 5 -duration 1s
//
// Progress goes to stderr, the results to bench/results/<date>-ring.json and .md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

func main() {
	if os.Getenv(roleVariable) != "" {
		if err := serveAsWorker(); err != nil {
			fmt.Fprintln(os.Stderr, "ring worker:", err)
			os.Exit(1)
		}
		return
	}
	runner.Main("ring", run)
}

func run(ctx context.Context) error {
	rounds := flag.Int("rounds", 5, "rounds of each kind of call")
	warmup := flag.Duration("warmup", 200*time.Millisecond, "before each run, not measured")
	duration := flag.Duration("duration", time.Second, "of each run")
	var out string
	runner.Out.Var(&out)
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if *rounds < 1 || *duration <= 0 || *warmup < 0 {
		return errors.New("-rounds must be at least 1, -duration more than 0, -warmup not negative")
	}
	report := &Report{Taken: results.Now(), Rounds: *rounds, DurationSeconds: duration.Seconds()}
	for _, load := range loads {
		m := Measurement{Load: load}
		for round := range *rounds {
			samples := map[string]Sample{}
			for _, way := range runner.Rotate(round, ways...) {
				s, err := measure(ctx, way, load, *warmup, *duration)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", load, way.name, err)
				}
				samples[way.name] = s
			}
			m.Rounds = append(m.Rounds, samples)
			line := fmt.Sprintf("    %-36s round %d:", load, round+1)
			for _, way := range ways {
				line += fmt.Sprintf("   %s %.1f k/s, p50 %.1f µs", way.name, samples[way.name].PerSecond/1e3, samples[way.name].P50Micros)
			}
			runner.Logf("%s", line)
		}
		report.Loads = append(report.Loads, m)
	}
	return runner.Publish(out, "ring", report)
}
