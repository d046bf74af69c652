// Command sim runs the scheduler with simulated replicas, callers and a virtual clock. The scheduler's machines, the planner and the device turns
// are real; everything around them follows from a seed.
//
//	sim -seed 42        one random world, with every promise of the scheduler checked; -v prints its transcript
//	sim -seeds 5000     that many worlds, from -seed on
//	sim -compare        our policies against Clipper's batching, a fixed tick and no batching, on the same traces
//	sim -compare -only flood -o json
//	sim -scale          our autoscaler against Knative's rules, on the same traces, with five seeds or -seeds
//	sim -delay          batches that wait for more queries against batches that do not, over a grid of containers and loads
//	sim -trace FILE     the queries of a recorded trace to one model, under each policy
//
// The same seed gives the same output on any machine. A broken promise prints the end of the transcript and exits with 1. With -out DIR,
// -compare writes DATE-sim.md, DATE-sim.json and figures there, -scale DATE-autoscale.md and so on, -delay DATE-delay.md and .json.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/xebec-serving/xebec/scheduler/sim"
)

type config struct {
	seed, seeds uint64
	verbose     bool
	compare     bool
	scale       bool
	delay       bool
	trace       string
	only        *regexp.Regexp
	format      string
	out, date   string
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	cfg := config{}
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.Uint64Var(&cfg.seed, "seed", 1, "of the world, or of the first one")
	flags.Uint64Var(&cfg.seeds, "seeds", 0, "number of random worlds (0: one), or number of seeds to compare scalers or delays with (0: five)")
	flags.BoolVar(&cfg.verbose, "v", false, "print the transcript of the random world")
	flags.BoolVar(&cfg.compare, "compare", false, "compare policies in scenarios instead of running random worlds")
	flags.BoolVar(&cfg.scale, "scale", false, "compare autoscalers under traces of traffic")
	flags.BoolVar(&cfg.delay, "delay", false, "compare delays of batches, over a grid of containers and loads")
	flags.StringVar(&cfg.trace, "trace", "", "compare policies under the queries of this trace `file`")
	only := flags.String("only", "", "run only scenarios, traces or cells of -delay whose name matches this `expression`")
	flags.StringVar(&cfg.format, "o", "table", "what -compare, -scale and -delay print: table or json")
	flags.StringVar(&cfg.out, "out", "", "folder for the report and figures of -compare, -scale and -delay; empty: none")
	flags.StringVar(&cfg.date, "date", "", "date in the names of those files, such as 2026-11-21")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if cfg.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if cfg.format != "table" && cfg.format != "json" {
		return fmt.Errorf("-o %s: expected table or json", cfg.format)
	}
	if cfg.out != "" && cfg.date == "" {
		return errors.New("-out needs -date, for the names of the files")
	}
	out := bufio.NewWriter(w)
	switch {
	case cfg.delay:
		err = compareDelays(out, &cfg)
	case cfg.scale:
		err = compareScalers(out, &cfg)
	case cfg.compare || cfg.trace != "":
		err = compare(out, &cfg)
	default:
		cfg.seeds = max(cfg.seeds, 1)
		err = random(out, &cfg)
	}
	return errors.Join(err, out.Flush())
}

// random runs random worlds. It stops after the first one that breaks a promise.
func random(w *bufio.Writer, cfg *config) error {
	for seed := cfg.seed; seed < cfg.seed+cfg.seeds; seed++ {
		if cfg.verbose {
			_, err := sim.Run(sim.Random(seed), w)
			if err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
			continue
		}
		if err := sim.Replay(seed); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "%d random worlds from seed %d on: every promise was kept\n", cfg.seeds, cfg.seed)
	return nil
}
