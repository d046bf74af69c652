// Command compare measures what Xebec costs above a bare Hertz server: the whole path (HTTP, query, batch, ring, no-op worker and back)
// against a handler that reads the same body and answers the same bytes.
//
// The two run as processes of their own, with the same number of Ps, and are measured in turn. Two runs, one after the other, are a pair. The
// order alternates from pair to pair and the ratio is taken within each pair, so that a machine that becomes slower meanwhile slows
// both. What counts is the CPU time of the server's process per completed request, and the median latency with one client. METHOD.md in
// bench/ says what the numbers mean and what they do not.
//
//	compare -pairs 5 -duration 4s
//	compare -old ../before/bin/xebec	# an earlier version in the same rounds
//
// Progress goes to stderr, the results to bench/results/<date>-path.json and .md. The exit status is 1 if an answer was wrong. A missed
// target is in the report, together with a profile of the gateway, and is not an error: a measurement on a shared machine is not a test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/machine"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

type config struct {
	gateway.Programs
	floor, worker    string
	relay            bool   // the floor asks another process
	old              string // another gateway program, measured in the same rounds; empty: none
	pairs            int
	warmup, duration time.Duration
	procs            int
	only             *regexp.Regexp
	out              string

	// Set if a setting keeps generator and servers apart, otherwise nil.
	generatorCores, serverCores []int
}

func main() { runner.Main("compare", run) }

func run(ctx context.Context) error {
	cfg := config{}
	runner.Xebec.Var(&cfg.Xebec)
	flag.StringVar(&cfg.floor, "floor", "bin/floor", "floor `program`")
	runner.Worker.Var(&cfg.worker)
	flag.BoolVar(&cfg.relay, "relay", false, "the floor also asks another process before each answer")
	flag.StringVar(&cfg.old, "old", "", "another gateway `program`, for example of an earlier version, to measure in the same rounds")
	flag.StringVar(&cfg.Python, "python", "build/venv/bin/python", "`interpreter` with the Python binding; empty: leave the Python scenarios out")
	flag.IntVar(&cfg.pairs, "pairs", 5, "pairs of runs in each scenario")
	flag.DurationVar(&cfg.warmup, "warmup", time.Second, "before each run, not measured")
	flag.DurationVar(&cfg.duration, "duration", 4*time.Second, "of each run")
	flag.IntVar(&cfg.procs, "procs", 2, "GOMAXPROCS of both servers")
	only := flag.String("only", "", "regular `expression`: scenarios to run")
	runner.Out.Var(&cfg.out)
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if cfg.pairs < 1 || cfg.duration <= 0 || cfg.warmup < 0 || cfg.procs < 1 {
		return errors.New("-pairs and -procs must be at least 1, -duration more than 0, -warmup not negative")
	}
	var err error
	if cfg.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if err := runner.Resolve("`make bench` builds everything first", &cfg.Xebec, &cfg.floor, &cfg.worker, &cfg.Python, &cfg.old); err != nil {
		return err
	}

	report := &Report{Taken: results.Now(), Pairs: cfg.pairs, WarmupSeconds: cfg.warmup.Seconds(), DurationSeconds: cfg.duration.Seconds(), Procs: cfg.procs, Relay: cfg.relay}
	dirty := measureAll(ctx, cfg, report)
	return errors.Join(dirty, runner.Publish(cfg.out, "path", report))
}

// measureAll runs the scenarios of one setting after the other, so that one gateway runs at a time.
func measureAll(ctx context.Context, cfg config, report *Report) error {
	var dirty []error
	for _, where := range settings {
		if where.worker == python && cfg.Python == "" {
			continue
		}
		var chosen []scenario
		for _, s := range scenarios {
			if s.setting == where && cfg.only.MatchString(s.name) {
				chosen = append(chosen, s)
			}
		}
		if len(chosen) == 0 {
			continue
		}
		cores, err := machine.Cores()
		if err != nil {
			return err
		}
		if where.apart && len(cores) < 2 {
			runner.Logf("==> left out, because it needs a second core: %s", where)
			continue
		}
		if err := measureSetting(ctx, cfg, where, cores, chosen, report); err != nil {
			dirty = append(dirty, err)
			if ctx.Err() != nil {
				break
			}
		}
	}
	return errors.Join(dirty...)
}

func measureSetting(ctx context.Context, cfg config, where setting, cores []int, chosen []scenario, report *Report) error {
	if where.apart {
		cfg.generatorCores, cfg.serverCores = cores[:1], cores[1:]
	}
	xebec, err := startXebec(ctx, cfg, where)
	if err != nil {
		return err
	}
	defer xebec.Stop()
	servers := []*serverProcess{xebec}
	if cfg.old != "" {
		before := cfg
		before.Xebec = cfg.old
		old, err := startXebec(ctx, before, where)
		if err != nil {
			return fmt.Errorf("the old program: %w", err)
		}
		defer old.Stop()
		servers = append(servers, old)
	}
	var dirty []error
	for _, s := range chosen {
		m, err := measureScenario(ctx, cfg, s, servers)
		if err != nil {
			dirty = append(dirty, fmt.Errorf("%s: %w", s.name, err))
		}
		if m != nil {
			report.Scenarios = append(report.Scenarios, *m)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(dirty...)
}

// measureScenario returns a measurement, an error, or both: numbers with wrong answers are invalid but worth seeing. The first server is the
// gateway; the second one, if any, is the old gateway.
func measureScenario(ctx context.Context, cfg config, s scenario, servers []*serverProcess) (*Measurement, error) {
	xebec := servers[0]
	floor, err := startFloor(ctx, cfg, s, xebec)
	if err != nil {
		return nil, err
	}
	defer floor.Stop()
	m := &Measurement{Name: s.name, Connections: s.connections, Worker: string(s.setting.worker), Apart: s.setting.apart, MaxCPURatio: s.maxCPURatio, MaxP50Ratio: s.maxP50Ratio, MaxMemRatio: s.maxMemRatio}
	var dirty error
	for i := range cfg.pairs {
		var p Pair
		for _, server := range runner.Alternate(i, append([]*serverProcess{floor}, servers...)...) {
			sample, err := measureOnce(ctx, cfg, s, server)
			if err != nil {
				return nil, err
			}
			if sample.dirty != nil && dirty == nil {
				dirty = fmt.Errorf("pair %d, %s: %w", i+1, server.Name, sample.dirty)
			}
			switch server {
			case floor:
				p.Floor = sample
			case xebec:
				p.Xebec = sample
			default:
				p.Old = &sample
			}
		}
		m.Pairs = append(m.Pairs, p)
		runner.Logf("    %-28s pair %d: CPU %6.2f → %6.2f µs (%.2f ×)   p50 %7.1f → %7.1f µs (%.2f ×)   %7.0f → %7.0f rps   %4.0f → %4.0f MiB%s", s.name, i+1,
			p.Floor.CPUMicros, p.Xebec.CPUMicros, p.CPURatio(), p.Floor.P50Micros, p.Xebec.P50Micros, p.P50Ratio(), p.Floor.RPS, p.Xebec.RPS,
			p.Floor.PeakMiB, p.Xebec.PeakMiB, p.since())
	}
	if m.missed() {
		if m.Profile, err = profile(ctx, cfg, s, xebec); err != nil {
			return m, errors.Join(dirty, fmt.Errorf("profile: %w", err))
		}
	}
	return m, dirty
}

// load returns the scenario's load on a server.
func (s *scenario) load(cfg config, addr string) loadgen.Options {
	return loadgen.Options{
		Addr:        addr,
		Requests:    s.ask.load(addr),
		Connections: s.connections,
		CPUs:        cfg.generatorCores,
		Warmup:      cfg.warmup,
		Duration:    cfg.duration,
	}
}

func measureOnce(ctx context.Context, cfg config, s scenario, server *serverProcess) (Sample, error) {
	var before, after time.Duration
	var err error
	opts := s.load(cfg, server.addr)
	if err := server.ForgetPeak(); err != nil {
		return Sample{}, err
	}
	opts.OnMeasure = func() { before, err = server.CPU() }
	opts.OnEnd = func() {
		var late error
		after, late = server.CPU()
		err = errors.Join(err, late)
	}
	result, runErr := loadgen.Run(ctx, opts)
	if err := errors.Join(runErr, err); err != nil {
		return Sample{}, fmt.Errorf("%s: %w%s", server.Name, err, server.LastWords())
	}
	peak, err := server.Peak()
	if err != nil {
		return Sample{}, err
	}
	return Sample{
		PeakMiB:   float64(peak) / (1 << 20),
		Completed: result.Completed, RPS: result.RPS, P50Micros: result.Latency.P50, P99Micros: result.Latency.P99,
		CPUMicros: float64((after - before).Nanoseconds()) / 1e3 / float64(max(result.Completed, 1)),
		dirty:     result.Clean(),
	}, nil
}
