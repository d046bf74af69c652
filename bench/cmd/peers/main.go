// Command peers compares Xebec with the servers that people use for models today: mosec, LitServe, BentoML, MLServer, KServe's Python server, Ray
// Serve, Triton and FastAPI. Each serves the same models, tuned as its documentation says, and is measured on the same machine in the same rounds.
//
// bench/peers has a folder for each server, Xebec's own included: pinned requirements, the server's file, the program `start`, and peer.json with
// where to ask it and how. The command makes an environment for each of them, trains the models, starts all servers with one model, checks that
// each gives the right outputs, and then measures them in turn. The servers that wait are stopped (SIGSTOP), so that they take no processor time.
//
//	peers                     # everything
//	peers -only 'mosec|triton' -loads digits
//	peers -quick              # a smoke test
//
// Progress goes to stderr, the results to bench/results/<date>-peers.json and .md. A server that cannot be had or does not start is named in the
// report with the reason, and so are answers that are missing or wrong; neither is an error, unless it is Xebec's. METHOD.md in bench/ says what
// the numbers mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

type config struct {
	peers, environments, root, xebec string
	only, loads                      *regexp.Regexp
	rounds                           int
	warmup, duration, slo, within    time.Duration
	quick                            bool
	out                              string
}

func main() { runner.Main("peers", run) }

func run(ctx context.Context) error {
	cfg := config{}
	runner.Xebec.Var(&cfg.xebec)
	runner.Root.Var(&cfg.root)
	flag.StringVar(&cfg.peers, "peers", "bench/peers", "`folder` of the servers")
	flag.StringVar(&cfg.environments, "environments", "build/peers", "`folder` for the servers' environments and the models")
	only := flag.String("only", "", "regular `expression`: servers to measure beside Xebec")
	loads := flag.String("loads", "", "regular `expression`: loads to measure")
	flag.IntVar(&cfg.rounds, "rounds", 5, "rounds; in each every server has every load once")
	flag.DurationVar(&cfg.warmup, "warmup", 300*time.Millisecond, "before each run, not measured")
	flag.DurationVar(&cfg.duration, "duration", 1300*time.Millisecond, "of each run")
	flag.DurationVar(&cfg.slo, "slo", 50*time.Millisecond, "objective of the open loops")
	flag.DurationVar(&cfg.within, "within", 4*time.Minute, "how long a server may take to start")
	flag.BoolVar(&cfg.quick, "quick", false, "a smoke test: one round of short runs")
	install := flag.Bool("install", false, "only make the environments and the models")
	runner.Out.Var(&cfg.out)
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if cfg.quick {
		cfg.rounds, cfg.warmup, cfg.duration = 1, 200*time.Millisecond, time.Second
	}
	if cfg.rounds < 1 || cfg.duration <= 0 || cfg.warmup < 0 || cfg.slo <= 0 || cfg.within <= 0 {
		return errors.New("-rounds must be at least 1, -duration, -slo and -within more than 0, -warmup not negative")
	}
	var err1, err2 error
	cfg.only, err1 = regexp.Compile(*only)
	cfg.loads, err2 = regexp.Compile(*loads)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.environments, 0o755); err != nil {
		return err
	}
	if err := runner.Resolve("run it in the repository's root after `make build`", &cfg.xebec, &cfg.root, &cfg.peers, &cfg.environments); err != nil {
		return err
	}
	// An environment has its own path in its programs, so it must not be reached through a link that may go away.
	var err error
	if cfg.environments, err = filepath.EvalSymlinks(cfg.environments); err != nil {
		return err
	}
	all, err := readPeers(cfg.peers)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(p *Peer) bool { return p.Name != ours && !cfg.only.MatchString(p.Name) })
	data, err := prepare(ctx, cfg, all)
	if err != nil || *install {
		return err
	}
	report := &Report{
		Taken: results.Now(), Quick: cfg.quick, Rounds: cfg.rounds, WarmupSeconds: cfg.warmup.Seconds(), DurationSeconds: cfg.duration.Seconds(),
		ObjectiveMillis: float64(cfg.slo.Milliseconds()), Peers: all, NotTried: notTried,
	}
	runner.Logf("==> about %.0f minutes on a quiet machine", expected(cfg, all).Minutes())
	began := time.Now()
	failed := measureAll(ctx, cfg, data, report)
	report.TookSeconds = time.Since(began).Round(time.Second).Seconds()
	return errors.Join(failed, runner.Publish(cfg.out, "peers", report))
}

// expected is about how long the measurements take: their runs, and the starts of the servers.
func expected(cfg config, peers []*Peer) time.Duration {
	const perStart, perRun = 5 * time.Second, 450 * time.Millisecond // perRun: beside warm-up and duration
	var sum time.Duration
	for _, p := range peers {
		models := map[string]bool{}
		for _, l := range loads {
			if p.Missing == "" && cfg.loads.MatchString(l.Name()) && (!l.GRPC || p.GRPC) {
				models[l.Model] = true
				sum += time.Duration(cfg.rounds) * (cfg.warmup + cfg.duration + perRun)
			}
		}
		sum += time.Duration(len(models)) * perStart
	}
	return sum
}

// measureAll measures one model after the other, so that each server has one.
func measureAll(ctx context.Context, cfg config, data map[string]Queries, report *Report) error {
	var failed error
	for _, model := range modelNames {
		chosen := results.Where(loads, func(l Load) bool { return l.Model == model && cfg.loads.MatchString(l.Name()) })
		if len(chosen) == 0 {
			continue
		}
		if err := measureModel(ctx, cfg, model, data[model], chosen, report); err != nil {
			failed = errors.Join(failed, fmt.Errorf("model %s: %w", model, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

func measureModel(ctx context.Context, cfg config, model string, queries Queries, chosen []Load, report *Report) error {
	runner.Logf("==> model %s: starting the servers", model)
	var running []*contender
	defer func() {
		var all sync.WaitGroup
		for _, c := range running {
			all.Go(c.stop)
		}
		all.Wait()
	}()
	for _, p := range report.Peers {
		if p.Missing != "" {
			continue
		}
		c, err := start(ctx, cfg, p, model, queries)
		if err == nil {
			runner.Logf("    %-10s answers after %.1f s", p.Name, c.startSeconds)
			running = append(running, c)
			continue
		}
		if p.Name == ours || ctx.Err() != nil {
			return err
		}
		runner.Logf("    %-10s cannot be measured: %v", p.Name, err)
		report.Failures = append(report.Failures, Failure{Peer: p.Name, Model: model, Why: err.Error()})
	}
	for _, l := range chosen {
		report.Measurements = append(report.Measurements, Measurement{Load: l, LoadName: l.Name()})
	}
	of := report.Measurements[len(report.Measurements)-len(chosen):]
	var wrong error
	for round := range cfg.rounds {
		for i, l := range chosen {
			for _, c := range runner.Rotate(round, running...) {
				if l.GRPC && !c.peer.GRPC {
					continue
				}
				s, err := c.measure(ctx, cfg, l, queries, uint64(round))
				if err != nil {
					return err
				}
				s.Round = round + 1
				of[i].Samples = append(of[i].Samples, s)
				runner.Logf("    round %d  %-28s %-10s %s", round+1, l.Name(), c.peer.Name, s.line(l))
				if c.peer.Name == ours && s.Wrong > 0 {
					wrong = errors.Join(wrong, fmt.Errorf("round %d, %s: Xebec gave %d wrong outputs: %s", round+1, l.Name(), s.Wrong, s.Why))
				}
			}
		}
	}
	return wrong
}
