// Command lifecycle measures what changes of versions, declarations and their store cost: what a change costs those who ask meanwhile,
// how long it takes, and what much of it takes in memory and time.
//
//	lifecycle -rounds 5 -window 5s
//	lifecycle -only c,d
//	lifecycle -quick
//
// It starts the real xebec, with real workers and a real redis-server, and has five parts:
//
//	a  a roll-out and a rollback while queries come, in a closed loop that saturates and in an open one at 70 % of that: failed
//	   queries, P99 against quiet seconds before, and how long until the other version serves; of a scikit-learn model, of
//	   the same from a zygote, and of a compiled worker that answers 0
//	b  the look-up of who serves, while tables are published all the time (BenchmarkLookup of package gateway, run by `go test`)
//	c  10,000 declared models, none of which runs: memory, and the time from the start until it is ready, from manifests and from the
//	   store after kill -9
//	d  apply of 1,000 models, in one manifest and one by one, to a bbolt file and to Redis with two settings of its fsync
//	e  throughput with the inference log of every query, against none
//
// Its progress goes to stderr; the results go to bench/results/<date>-lifecycle.json and .md. It exits with 1 when a query failed or
// something declared was lost. A missed target is in the report and is no error: a measurement on a shared machine is not a test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/program"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

type config struct {
	xebec, worker, python, demo string // programs, and the folder of the demo's models
	redis, gotool, root         string
	out                         string
	only                        []string
	rounds                      int
	window                      time.Duration // of one run of the generator
	settle                      time.Duration // before memory is looked at
	connections                 int
	declared, applied           int
	benchtime                   time.Duration
}

func (c *config) programs() gateway.Programs {
	return gateway.Programs{Xebec: c.xebec, Python: c.python}
}

type part struct {
	name    string
	measure func(context.Context, config, *Report) error
}

// parts in the order in which they are measured.
var parts = []part{
	{"a", measureRollouts}, {"b", measureLookup}, {"c", measureDeclared}, {"d", measureApply}, {"e", measureLogging},
}

func main() { program.Main("lifecycle", run) }

func run(ctx context.Context) error {
	cfg, err := parse()
	if err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Rounds: cfg.rounds, WindowSeconds: cfg.window.Seconds(), Connections: cfg.connections}
	var failed error
	for _, p := range parts {
		if len(cfg.only) > 0 && !slices.Contains(cfg.only, p.name) {
			continue
		}
		logf("==> part %s", p.name)
		if err := p.measure(ctx, cfg, report); err != nil {
			failed = errors.Join(failed, fmt.Errorf("part %s: %w", p.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if report.empty() {
		return errors.Join(failed, errors.New("nothing was measured"))
	}
	markdown := report.Markdown()
	fmt.Print(markdown)
	if cfg.out != "" {
		base, err := results.Write(cfg.out, report.Name("lifecycle"), report, markdown)
		failed = errors.Join(failed, err)
		if err == nil {
			logf("==> written: %s.json and .md", base)
		}
	}
	return errors.Join(failed, report.unexpected())
}

func parse() (config, error) {
	var cfg config
	flag.StringVar(&cfg.xebec, "xebec", "bin/xebec", "the gateway's program")
	flag.StringVar(&cfg.worker, "worker", "bin/xebec-testworker", "the compiled worker's program")
	flag.StringVar(&cfg.python, "python", "build/venv/bin/python", "an interpreter with the Python binding and scikit-learn")
	flag.StringVar(&cfg.demo, "models", "deploy/demo/models", "the folder of the demo's models, trained")
	flag.StringVar(&cfg.redis, "redis", "redis-server", "the Redis server's program")
	flag.StringVar(&cfg.gotool, "go", "go", "the Go tool, for part b")
	flag.StringVar(&cfg.root, "root", ".", "the repository's root, for part b")
	flag.StringVar(&cfg.out, "out", "bench/results", "folder for the results; empty: print only")
	flag.IntVar(&cfg.rounds, "rounds", 5, "rounds: of roll-out and rollback, of a benchmark, of pairs")
	flag.DurationVar(&cfg.window, "window", 5*time.Second, "of a run of the generator: a change is watched for one at least")
	flag.DurationVar(&cfg.settle, "settle", 10*time.Second, "how long a gateway is left alone before its memory is looked at")
	flag.IntVar(&cfg.connections, "connections", 32, "clients of a closed loop")
	flag.IntVar(&cfg.declared, "declared", 10_000, "models of part c")
	flag.IntVar(&cfg.applied, "applied", 1000, "models of part d")
	flag.DurationVar(&cfg.benchtime, "benchtime", time.Second, "of each Go benchmark")
	only := flag.String("only", "", "parts to measure, with commas: a,b,c,d,e; empty: all")
	quick := flag.Bool("quick", false, "one short round with fewer models: to see that it works")
	if err := program.ParseFlags(); err != nil {
		return cfg, err
	}
	if *only != "" {
		cfg.only = strings.Split(*only, ",")
	}
	for _, name := range cfg.only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return cfg, fmt.Errorf("-only: no part %q: expected a to e, with commas", name)
		}
	}
	if *quick {
		cfg.rounds, cfg.window, cfg.settle, cfg.declared, cfg.applied, cfg.benchtime = 1, time.Second, time.Second, 500, 50, 100*time.Millisecond
	}
	if cfg.rounds < 1 || cfg.window < 500*time.Millisecond || cfg.connections < 1 || cfg.declared < 1 || cfg.applied < 1 || cfg.settle < 0 {
		return cfg, errors.New("-rounds, -connections, -declared and -applied are at least 1, -window at least 500ms, -settle not negative")
	}
	return cfg, program.Resolve("`make build demo` at the repository's root builds what is missing", &cfg.xebec, &cfg.worker, &cfg.python, &cfg.demo, &cfg.root)
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
