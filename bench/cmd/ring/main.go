// Command ring compares the ways in which a request can reach a compiled worker on the same host and its answer come back: a unix
// stream socket with one write a message, the ring of package shm alone, and the whole transport that the gateway uses (package
// worker and the Go binding, with all their checks).
//
// The callers are the same everywhere: goroutines that each send a request, wait for its answer, and send the next; 64 of them
// for the rate, one for the latency. The worker is this program again, in a process of its own, and answers at once. Each round
// runs all ways one after the other, in an order that rotates; ratios are taken within a round.
//
//	ring -rounds 5 -duration 1s
//
// It writes bench/results/<date>-ring.json and .md.
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

func main() {
	if os.Getenv(roleVariable) != "" {
		if err := serveAsWorker(); err != nil {
			fmt.Fprintln(os.Stderr, "ring worker:", err)
			os.Exit(1)
		}
		return
	}
	program.Main("ring", run)
}

func run(ctx context.Context) error {
	rounds := flag.Int("rounds", 5, "rounds of each kind of call")
	warmup := flag.Duration("warmup", 200*time.Millisecond, "before each run, not measured")
	duration := flag.Duration("duration", time.Second, "of each run")
	out := flag.String("out", "bench/results", "folder for the results; empty: print only")
	if err := program.ParseFlags(); err != nil {
		return err
	}
	if *rounds < 1 || *duration <= 0 || *warmup < 0 {
		return errors.New("-rounds is at least 1, -duration more than 0, -warmup not negative")
	}
	report := &Report{Taken: results.Now(), Rounds: *rounds, DurationSeconds: duration.Seconds()}
	for _, load := range loads {
		m := Measurement{Load: load}
		for round := range *rounds {
			samples := map[string]Sample{}
			for i := range ways {
				way := ways[(round+i)%len(ways)]
				s, err := measure(ctx, way, load, *warmup, *duration)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", load, way.name, err)
				}
				samples[way.name] = s
			}
			m.Rounds = append(m.Rounds, samples)
			fmt.Printf("    %-36s round %d:", load, round+1)
			for _, way := range ways {
				fmt.Printf("   %s %.1f k/s, p50 %.1f µs", way.name, samples[way.name].PerSecond/1e3, samples[way.name].P50Micros)
			}
			fmt.Println()
		}
		report.Loads = append(report.Loads, m)
	}
	fmt.Print("\n" + report.Markdown())
	if *out == "" {
		return nil
	}
	return report.write(*out)
}

// write keeps the report as <date>-ring.json and .md; a second one of a day replaces the first.
func (r *Report) write(dir string) error {
	base, err := results.Write(dir, r.Name("ring"), r, r.Markdown())
	if err != nil {
		return err
	}
	fmt.Printf("\n==> written: %s.json and .md\n", base)
	return nil
}
