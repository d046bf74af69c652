// Command capacity measures how replicas follow demand: how long the first query of a sleeping model takes, what ten thousand sleeping models
// cost, what planning for a thousand awake models costs, and how soon the gateway catches up with a step in the load.
//
//	capacity
//	capacity -only a -starts 500
//	capacity -only e -containers 50 -docker unix:///var/run/docker.sock
//	capacity -quick
//
// It starts the real xebec with real workers, and has five parts:
//
//	a  cold starts, from the first query to its answer over HTTP: a scikit-learn model that is forked from a zygote, the same without
//	   one, and a compiled worker; and where the time goes
//	b  10,000 declared models that sleep: what they cost, and whether each of them answers when queried, one by one and many at once
//	c  planner, placement and autoscaler for 1,000 models with 4,000 replicas (their packages' benchmarks, run by `go test`)
//	d  a load that suddenly grows twentyfold: how long until the objective holds again
//	e  cold starts in containers, if there is an engine: a scikit-learn model with a container that waits with its imports (preload), the
//	   same without one, and numpy alone; and where the time goes
//
// Progress goes to stderr, the results to bench/results/<date>-capacity.json and .md. The exit status is 1 if a query of parts a, b and e got
// no right answer. A missed target is in the report and is not an error: a measurement on a shared machine is not a test.
package main

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

type config struct {
	gateway.Programs
	worker, demo  string // the compiled worker, and the folder of the demo's models
	gotool, root  string
	docker, image string
	out           string
	rounds        int
	starts        int           // cold starts of the model with a zygote; the others get a fraction of that
	containers    int           // cold starts of each model in containers
	declared      int           // models of part b
	woken         int           // how many of them are queried in each way
	settle        time.Duration // during which the gateway's CPU time is measured while all models sleep
	before, step  time.Duration // of part d
	benchtime     time.Duration
}

// waiting is the directory of a model that waits instead of computing.
func (c *config) waiting() string { return filepath.Join(c.root, "bench/models/waiting") }

var parts = runner.Parts[config, Report]{
	{Name: "a", Title: "cold starts", Measure: measureColdStarts},
	{Name: "b", Title: "models that sleep", Measure: measureSleepers},
	{Name: "c", Title: "planning", Measure: measureDecisions},
	{Name: "d", Title: "a step in the load", Measure: measureSteps},
	{Name: "e", Title: "cold starts in containers", Measure: measureContainers},
}

func main() { runner.Main("capacity", run) }

func run(ctx context.Context) error {
	cfg, chosen, err := parse()
	if err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Rounds: cfg.rounds}
	_, failed := chosen.Run(ctx, cfg, report)
	return errors.Join(failed, runner.Publish(cfg.out, "capacity", report))
}

func parse() (cfg config, chosen runner.Parts[config, Report], err error) {
	runner.Xebec.Var(&cfg.Xebec)
	runner.Worker.Var(&cfg.worker)
	runner.Python.Var(&cfg.Python)
	runner.DemoModels.Var(&cfg.demo)
	runner.GoTool.Var(&cfg.gotool)
	runner.Root.Var(&cfg.root)
	runner.Out.Var(&cfg.out)
	flag.StringVar(&cfg.docker, "docker", "", "container engine for part e, unix:///PATH; empty: containers are not measured")
	flag.StringVar(&cfg.image, "image", "xebec-python:latest", "image with Python, the binding, scikit-learn and joblib, as `containers/images/build.sh --packages` makes it")
	flag.IntVar(&cfg.rounds, "rounds", 3, "runs of each benchmark, and steps of the load")
	flag.IntVar(&cfg.starts, "starts", 200, "cold starts from a zygote; a quarter of that of a compiled worker, a tenth without a zygote")
	flag.IntVar(&cfg.containers, "containers", 40, "cold starts of each model of part e")
	flag.IntVar(&cfg.declared, "declared", 10_000, "models of part b")
	flag.IntVar(&cfg.woken, "woken", 100, "how many of them are queried one after the other, and as many again in groups")
	flag.DurationVar(&cfg.settle, "settle", 10*time.Second, "how long the gateway's CPU time is measured while all models sleep")
	flag.DurationVar(&cfg.before, "before", 5*time.Second, "how long the load lasts before its step")
	flag.DurationVar(&cfg.step, "step", 12*time.Second, "how long the load lasts after its step")
	flag.DurationVar(&cfg.benchtime, "benchtime", 300*time.Millisecond, "of each Go benchmark")
	only := flag.String("only", "", "parts to measure, separated by commas: a,b,c,d,e; empty: all")
	quick := flag.Bool("quick", false, "one short round with fewer models, as a smoke test")
	if err := runner.ParseFlags(); err != nil {
		return cfg, nil, err
	}
	if chosen, err = parts.Choose(*only); err != nil {
		return cfg, nil, err
	}
	if *quick {
		cfg.rounds, cfg.starts, cfg.containers, cfg.declared, cfg.woken, cfg.benchtime = 1, 10, 3, 500, 20, 10*time.Millisecond
		cfg.settle, cfg.before, cfg.step = time.Second, 2*time.Second, 6*time.Second
	}
	if cfg.rounds < 1 || cfg.starts < 1 || cfg.containers < 1 || cfg.woken < 1 || cfg.declared < 2*cfg.woken+1 {
		return cfg, nil, errors.New("-rounds, -starts, -containers and -woken must be at least 1, -declared more than twice -woken")
	}
	if cfg.settle < 500*time.Millisecond || cfg.before < time.Second || cfg.step < time.Second {
		return cfg, nil, errors.New("-settle must be at least 500ms, -before and -step at least 1s")
	}
	return cfg, chosen, runner.Resolve(runner.BuildHint, &cfg.Xebec, &cfg.worker, &cfg.Python, &cfg.demo, &cfg.root)
}
