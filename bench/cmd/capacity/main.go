// Command capacity measures how replicas follow demand: how long the first query of a model that sleeps takes, what ten thousand models
// that sleep cost, what it takes to decide for a thousand that do not, and how soon a step in the load is caught up with.
//
//	capacity
//	capacity -only a -starts 500 -docker unix:///var/run/docker.sock
//	capacity -quick
//
// It starts the real xebec with real workers, and has four parts:
//
//	a  cold starts, from the first query to its answer over HTTP: a scikit-learn model that is forked from a zygote, the same without
//	   one, a compiled worker, and containers where there is an engine; and where the time goes
//	b  10,000 declared models that sleep: what they cost, and whether any of them wakes when it is asked, one by one and many at once
//	c  planner, placement and autoscaler for 1,000 models with 4,000 replicas (their packages' benchmarks, run by `go test`)
//	d  a load that becomes twenty times what it was from one moment to the next: how long until the objective holds again
//
// Its progress goes to stderr; the results go to bench/results/<date>-capacity.json and .md. It exits with 1 when a query of parts a
// and b was not answered rightly. A missed target is in the report and is no error: a measurement on a shared machine is not a test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/program"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

type config struct {
	xebec, worker, python, demo string // programs, and the folder of the demo's models
	gotool, root                string
	docker, image               string
	out                         string
	only                        []string
	rounds                      int
	starts                      int           // cold starts of the model with a zygote; others have a part of that
	declared, woken             int           // models of part b, and how many of them are asked in each way
	settle                      time.Duration // in which the gateway's CPU time is looked at while all sleep
	before, step                time.Duration // of part d
	benchtime                   time.Duration
}

func (c *config) programs() gateway.Programs {
	return gateway.Programs{Xebec: c.xebec, Python: c.python}
}

// waiting is the directory of a model that waits and does not compute.
func (c *config) waiting() string { return filepath.Join(c.root, "bench/models/waiting") }

type part struct {
	name    string
	measure func(context.Context, config, *Report) error
}

// parts in the order in which they are measured.
var parts = []part{{"a", measureColdStarts}, {"b", measureSleepers}, {"c", measureDecisions}, {"d", measureSteps}}

func main() { program.Main("capacity", run) }

func run(ctx context.Context) error {
	cfg, err := parse()
	if err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Rounds: cfg.rounds}
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
		base, err := results.Write(cfg.out, report.Name("capacity"), report, markdown)
		failed = errors.Join(failed, err)
		if err == nil {
			logf("==> written: %s.json and .md", base)
		}
	}
	return failed
}

func parse() (config, error) {
	var cfg config
	flag.StringVar(&cfg.xebec, "xebec", "bin/xebec", "the gateway's program")
	flag.StringVar(&cfg.worker, "worker", "bin/xebec-testworker", "the compiled worker's program")
	flag.StringVar(&cfg.python, "python", "build/venv/bin/python", "an interpreter with the Python binding and scikit-learn")
	flag.StringVar(&cfg.demo, "models", "deploy/demo/models", "the folder of the demo's models, trained")
	flag.StringVar(&cfg.gotool, "go", "go", "the Go tool, for part c")
	flag.StringVar(&cfg.root, "root", ".", "the repository's root")
	flag.StringVar(&cfg.docker, "docker", "", "container engine for part a, unix:///PATH; empty: containers are not measured")
	flag.StringVar(&cfg.image, "image", "xebec-python:latest", "image with Python and the binding, as containers/images/build.sh makes it")
	flag.StringVar(&cfg.out, "out", "bench/results", "folder for the results; empty: print only")
	flag.IntVar(&cfg.rounds, "rounds", 3, "runs of each benchmark, and steps of the load")
	flag.IntVar(&cfg.starts, "starts", 200, "cold starts from a zygote; a quarter of that of a compiled worker, a tenth without a zygote, a twentieth in containers")
	flag.IntVar(&cfg.declared, "declared", 10_000, "models of part b")
	flag.IntVar(&cfg.woken, "woken", 100, "how many of them are asked one after the other, and as many again in groups")
	flag.DurationVar(&cfg.settle, "settle", 10*time.Second, "how long the gateway's CPU time is looked at while all of them sleep")
	flag.DurationVar(&cfg.before, "before", 5*time.Second, "how long a load lasts before its step")
	flag.DurationVar(&cfg.step, "step", 12*time.Second, "and after it")
	flag.DurationVar(&cfg.benchtime, "benchtime", 300*time.Millisecond, "of each Go benchmark")
	only := flag.String("only", "", "parts to measure, with commas: a,b,c,d; empty: all")
	quick := flag.Bool("quick", false, "one short round with fewer models: to see that it works")
	if err := program.ParseFlags(); err != nil {
		return cfg, err
	}
	if *only != "" {
		cfg.only = strings.Split(*only, ",")
	}
	for _, name := range cfg.only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return cfg, fmt.Errorf("-only: no part %q: expected a to d, with commas", name)
		}
	}
	if *quick {
		cfg.rounds, cfg.starts, cfg.declared, cfg.woken, cfg.benchtime = 1, 10, 500, 20, 10*time.Millisecond
		cfg.settle, cfg.before, cfg.step = time.Second, 2*time.Second, 6*time.Second
	}
	if cfg.rounds < 1 || cfg.starts < 1 || cfg.woken < 1 || cfg.declared < 2*cfg.woken+1 {
		return cfg, errors.New("-rounds, -starts and -woken are at least 1, -declared more than twice as many as -woken")
	}
	if cfg.settle < 500*time.Millisecond || cfg.before < time.Second || cfg.step < time.Second {
		return cfg, errors.New("-settle is at least 500ms, -before and -step are at least 1s")
	}
	return cfg, program.Resolve("`make build demo` at the repository's root builds what is missing", &cfg.xebec, &cfg.worker, &cfg.python, &cfg.demo, &cfg.root)
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
