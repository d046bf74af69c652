// Command lifecycle measures what changes of versions, declarations and their store cost: the latency of queries during a change, the time
// that a change takes, and the memory and time that many declarations take.
//
//	lifecycle -rounds 5 -window 5s
//	lifecycle -only c,d
//	lifecycle -quick
//
// It starts the real xebec, with real workers and a real redis-server, and has six parts:
//
//	a  a roll-out and a rollback under load, in a closed loop that saturates and in an open one at 70 % of that: failed queries, P99
//	   against quiet seconds before, and how long until the other version serves; of a scikit-learn model, of the same from a zygote,
//	   and of a compiled worker that answers 0
//	b  the look-up of the serving version while tables are published all the time (BenchmarkLookup of package gateway/query, run by `go test`)
//	c  10,000 declared models, none of which runs: memory, and the time from the start until the gateway is ready, from manifests and
//	   from the store after kill -9
//	d  apply of 1,000 models, in one manifest and one by one, to a bbolt file and to Redis with two settings of its fsync
//	e  throughput with the inference log of every query, against none
//	f  takeovers (xebec upgrade) in a row under an open loop of 2,000 requests/s, half of them on fresh connections: failed queries, P99
//
// Progress goes to stderr, the results to bench/results/<date>-lifecycle.json and .md. The exit status is 1 if a query failed or a
// declaration was lost. A missed target is in the report and is not an error: a measurement on a shared machine is not a test.
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

type config struct {
	gateway.Programs
	worker, demo        string // the compiled worker, and the folder of the demo's models
	redis, gotool, root string
	out                 string
	rounds              int
	window              time.Duration // of one run of the generator
	settle              time.Duration // before memory is read
	connections         int
	declared, applied   int
	takeovers           int
	benchtime           time.Duration
}

var parts = runner.Parts[config, Report]{
	{Name: "a", Title: "roll-outs and rollbacks under load", Measure: measureRollouts},
	{Name: "b", Title: "looking up the serving version", Measure: measureLookup},
	{Name: "c", Title: "many declared models", Measure: measureDeclared},
	{Name: "d", Title: "apply of many models", Measure: measureApply},
	{Name: "e", Title: "the inference log", Measure: measureLogging},
	{Name: "f", Title: "takeovers under load", Measure: measureTakeovers},
}

func main() { runner.Main("lifecycle", run) }

func run(ctx context.Context) error {
	cfg, chosen, err := parse()
	if err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Rounds: cfg.rounds, WindowSeconds: cfg.window.Seconds(), Connections: cfg.connections}
	_, failed := chosen.Run(ctx, cfg, report)
	return errors.Join(failed, runner.Publish(cfg.out, "lifecycle", report), report.unexpected())
}

func parse() (cfg config, chosen runner.Parts[config, Report], err error) {
	runner.Xebec.Var(&cfg.Xebec)
	runner.Worker.Var(&cfg.worker)
	runner.Python.Var(&cfg.Python)
	runner.DemoModels.Var(&cfg.demo)
	runner.GoTool.Var(&cfg.gotool)
	runner.Root.Var(&cfg.root)
	runner.Out.Var(&cfg.out)
	flag.StringVar(&cfg.redis, "redis", "redis-server", "Redis server `program`")
	flag.IntVar(&cfg.rounds, "rounds", 5, "rounds: of roll-out and rollback, of a benchmark, of pairs")
	flag.DurationVar(&cfg.window, "window", 5*time.Second, "of a run of the generator; a change is watched for at least one window")
	flag.DurationVar(&cfg.settle, "settle", 10*time.Second, "how long a gateway is left alone before its memory is read")
	flag.IntVar(&cfg.connections, "connections", 32, "clients of a closed loop")
	flag.IntVar(&cfg.declared, "declared", 10_000, "models of part c")
	flag.IntVar(&cfg.applied, "applied", 1000, "models of part d")
	flag.IntVar(&cfg.takeovers, "takeovers", 10, "takeovers of part f")
	flag.DurationVar(&cfg.benchtime, "benchtime", time.Second, "of each Go benchmark")
	only := flag.String("only", "", "parts to measure, separated by commas: a,b,c,d,e,f; empty: all")
	quick := flag.Bool("quick", false, "one short round with fewer models, as a smoke test")
	if err := runner.ParseFlags(); err != nil {
		return cfg, nil, err
	}
	if chosen, err = parts.Choose(*only); err != nil {
		return cfg, nil, err
	}
	if *quick {
		cfg.rounds, cfg.window, cfg.settle, cfg.declared, cfg.applied, cfg.benchtime, cfg.takeovers = 1, time.Second, time.Second, 500, 50, 100*time.Millisecond, 2
	}
	if cfg.rounds < 1 || cfg.window < 500*time.Millisecond || cfg.connections < 1 || cfg.declared < 1 || cfg.applied < 1 || cfg.takeovers < 1 || cfg.settle < 0 {
		return cfg, nil, errors.New("-rounds, -connections, -declared, -applied and -takeovers must be at least 1, -window at least 500ms, -settle not negative")
	}
	return cfg, chosen, runner.Resolve(runner.BuildHint, &cfg.Xebec, &cfg.worker, &cfg.Python, &cfg.demo, &cfg.root)
}
