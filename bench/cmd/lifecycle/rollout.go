package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	// openPart is the rate of the open loop as a fraction of the closed loop's throughput.
	openPart = 0.7
	// openConnections is far more than an open loop ever uses.
	openConnections = 256
	// after is how long a change still counts once the other version serves: the version before it ends in that time.
	after = time.Second
	// pollServing is how often the gateway is asked which version serves.
	pollServing = 50 * time.Millisecond
	// changeWithin is more than a model needs to load on a saturated machine.
	changeWithin = 10 * time.Minute
	// maxP99Ratio is the target for P99 during a change, relative to before.
	maxP99Ratio = 1.5
)

// workload is a model whose versions replace each other.
type workload struct {
	name string
	// manifest returns the Model of a version; body is a query of type contentType.
	manifest    func(version int) string
	contentType string
	body        []byte
}

const (
	modelName = "changing" // the function's name too
	demoModel = "digits-svm"
)

// workloads are a scikit-learn model, which takes seconds of CPU to load, the same forked from a zygote that has imported its libraries,
// and a compiled worker, which starts at once.
func workloads(cfg config) ([]workload, error) {
	if _, err := os.Stat(filepath.Join(cfg.demo, demoModel, "digits.joblib")); err != nil {
		return nil, fmt.Errorf("%w: `make demo` trains it", err)
	}
	return workloadsOf(cfg)
}

func workloadsOf(cfg config) ([]workload, error) {
	dir := filepath.Join(cfg.demo, demoModel)
	command, err := json.Marshal([]string{cfg.worker, "-mode", "noop"})
	if err != nil {
		return nil, err
	}
	classifier := func(more string) func(version int) string {
		return func(version int) string {
			return fmt.Sprintf(`kind: Model
name: %s
version: "%d"
dir: %q
inputs:  [{name: input, dtype: float32, shape: [64]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py], env: {OMP_NUM_THREADS: "1"}}
cache: off
%s`, modelName, version, dir, more)
		}
	}
	body := make([]byte, 64*4)
	return []workload{
		{"scikit-learn SVM", classifier(""), loadgen.Binary, body},
		{"the same, from a zygote", classifier("preload: [numpy, joblib, sklearn.svm]\n"), loadgen.Binary, body},
		{"compiled no-op", func(version int) string {
			return fmt.Sprintf(`kind: Model
name: %s
version: "%d"
inputs:  [{name: input, dtype: float32, shape: [-1]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: %s}
cache: off
`, modelName, version, command)
		}, loadgen.Binary, body},
	}, nil
}

// declarations come with the models. With latest: 1 a roll-out unloads the version before, so that a rollback has to load it again.
const declarations = `---
kind: Function
name: changing
models: [changing]
slo: 50ms
---
kind: Traffic
name: changing
versions: {latest: 1}
`

// Rollout holds a workload's changes under one load.
type Rollout struct {
	Workload string `json:"workload"`
	Load     string `json:"load"` // "closed" or "open"
	// RateRPS is the rate of the open loop, or the throughput of the closed loop without changes.
	RateRPS float64  `json:"rate_rps"`
	Changes []Change `json:"changes"`
}

// Change is one roll-out or rollback.
type Change struct {
	Kind         string  `json:"kind"` // "roll-out" or "rollback"
	QuietP99     float64 `json:"quiet_p99_ms"`
	P99          float64 `json:"p99_ms"`
	P50          float64 `json:"p50_ms"`
	QuietP50     float64 `json:"quiet_p50_ms"`
	Queries      int     `json:"queries"`
	Failed       uint64  `json:"failed"`
	FailedWhy    string  `json:"failed_why,omitempty"`
	ServeSeconds float64 `json:"serve_seconds"` // from the request for the change until the other version served
}

func (c *Change) ratio() float64 { return c.P99 / c.QuietP99 }

func measureRollouts(ctx context.Context, cfg config, report *Report) error {
	all, err := workloads(cfg)
	if err != nil {
		return err
	}
	var failed error
	for _, w := range all {
		if err := w.measure(ctx, cfg, report); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", w.name, err))
		}
	}
	return failed
}

// measure makes all changes of a workload in one gateway.
func (w *workload) measure(ctx context.Context, cfg config, report *Report) error {
	g, err := gateway.Start(ctx, gateway.Options{Programs: cfg.Programs, Store: true})
	if err != nil {
		return err
	}
	defer g.Stop()
	if err := g.Apply(ctx, w.manifest(1)+declarations); err != nil {
		return err
	}
	p := &player{cfg: cfg, g: g, w: w, version: 1}
	if err := p.until(ctx, "1"); err != nil {
		return err
	}
	warm, err := p.settled(ctx, 0)
	if err != nil {
		return err
	}
	if warm.failed > 0 {
		return fmt.Errorf("queries failed before any change: %s", warm.why)
	}
	for _, load := range []string{"closed", "open"} {
		r := Rollout{Workload: w.name, Load: load, RateRPS: warm.rps}
		rate := 0.0
		if load == "open" {
			rate = openPart * warm.rps
			r.RateRPS = rate
		}
		for i := range cfg.rounds {
			runner.Logf("    %s, %s loop (%.0f/s), round %d of %d", w.name, load, r.RateRPS, i+1, cfg.rounds)
			pair, err := p.outAndBack(ctx, rate)
			r.Changes = append(r.Changes, pair...)
			if err != nil {
				report.Rollouts = append(report.Rollouts, r)
				return err
			}
		}
		report.Rollouts = append(report.Rollouts, r)
	}
	return nil
}

// player sends load to a gateway and changes versions meanwhile.
type player struct {
	cfg     config
	g       *gateway.Gateway
	w       *workload
	version int // the newest declared one; version 1 serves between changes
	seed    uint64
}

// outAndBack rolls a new version out and the first one back.
func (p *player) outAndBack(ctx context.Context, rate float64) ([]Change, error) {
	p.version++
	next := fmt.Sprint(p.version)
	out, err := p.change(ctx, rate, "roll-out", next, func() error { return p.g.Apply(ctx, p.w.manifest(p.version)) })
	if err != nil {
		return nil, err
	}
	back, err := p.change(ctx, rate, "rollback", "1", func() error {
		return p.g.Ask(ctx, "POST", "/v1/models/"+modelName+"/rollback", loadgen.JSON, `{"to": "1", "reason": "measured"}`, nil)
	})
	if err != nil {
		return []Change{*out}, err
	}
	return []Change{*out, *back}, nil
}

// change measures a quiet window, requests the change, and continues the load until the version serves and a little longer.
func (p *player) change(ctx context.Context, rate float64, kind, version string, ask func() error) (*Change, error) {
	quiet, err := p.settled(ctx, rate)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	began := time.Now()
	done := make(chan error, 1)
	var serves atomic.Int64 // when the version served, in nanoseconds since began
	go func() {
		err := ask()
		if err == nil {
			err = p.until(ctx, version)
		}
		serves.Store(max(1, int64(time.Since(began))))
		done <- err
	}()
	c := &Change{Kind: kind, Failed: quiet.failed, FailedWhy: quiet.why}
	c.QuietP50, c.QuietP99 = quiet.answers.quantiles()
	var all answers
	for {
		// A run of the generator has a fixed length, so one run follows the other, as in the quiet windows.
		at := serves.Load()
		if at != 0 && time.Since(began) > time.Duration(at)+after {
			all = all.until(began.Add(time.Duration(at) + after))
			break
		}
		run, err := p.play(ctx, rate)
		if err != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		all = append(all, run.answers...)
		c.Failed += run.failed
		if run.why != "" {
			c.FailedWhy = run.why
		}
	}
	if err := <-done; err != nil {
		return nil, fmt.Errorf("%s to version %s: %w%s", kind, version, err, p.g.LastWords())
	}
	c.Queries, c.ServeSeconds = len(all), time.Duration(serves.Load()).Seconds()
	c.P50, c.P99 = all.quantiles()
	runner.Logf("        %-8s to version %-3s after %5.2f s, P99 %6.2f → %6.2f ms (%.2f ×), %d failed of %d", kind, version, c.ServeSeconds, c.QuietP99, c.P99, c.ratio(), c.Failed, c.Queries)
	return c, nil
}

// until waits until a version serves.
func (p *player) until(ctx context.Context, version string) error {
	return runner.Until(ctx, pollServing, changeWithin, "version "+version+" serves", func(ctx context.Context) (bool, error) {
		now, err := p.g.Serving(ctx, modelName)
		return now == version, err
	})
}

// played is the result of one run of the generator.
type played struct {
	answers answers // the right ones
	rps     float64
	failed  uint64
	why     string
}

// one is an answer: when it came and how long it took.
type one struct {
	done   time.Time
	millis float64
}

type answers []one

// until returns the answers that came before end.
func (a answers) until(end time.Time) answers {
	return results.Where(a, func(x one) bool { return x.done.Before(end) })
}

// quantiles returns the median and the 99th percentile, or NaN if there are no answers.
func (a answers) quantiles() (p50, p99 float64) {
	q := results.Quantiles(results.Each(a, func(x one) float64 { return x.millis }))
	return q(0.5), q(0.99)
}

// settled plays two windows and returns the second. In the first the gateway learns the speed of a new replica, and the replica before it
// ends. Failures count in both.
func (p *player) settled(ctx context.Context, rate float64) (*played, error) {
	first, err := p.play(ctx, rate)
	if err != nil {
		return nil, err
	}
	second, err := p.play(ctx, rate)
	if err != nil {
		return nil, err
	}
	second.failed += first.failed
	if second.why == "" {
		second.why = first.why
	}
	return second, nil
}

// play runs the generator for a window, as a closed loop if rate is 0. The requests have a long deadline: the cost of a change shows in the
// latencies, not in failures.
func (p *player) play(ctx context.Context, rate float64) (*played, error) {
	p.seed++
	out := &played{}
	connections := p.cfg.connections
	if rate > 0 {
		connections = openConnections
	}
	result, err := loadgen.Run(ctx, loadgen.Options{
		Addr: p.g.Addr, Connections: connections, Rate: rate, Seed: p.seed, Duration: p.cfg.window,
		Requests: []loadgen.Request{{
			Wire: loadgen.Render(p.g.Addr, "/"+modelName+"/predict", p.w.contentType, p.w.body, "Xebec-Slo-Ms: 60000"), Contains: []byte(`"output":`),
		}},
		OnAnswer: func(a loadgen.Answered) {
			if a.Status == 200 && !a.Default && !a.Wrong {
				out.answers = append(out.answers, one{a.Done, a.Done.Sub(a.Due).Seconds() * 1e3})
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, p.g.LastWords())
	}
	out.rps = result.RPS
	out.failed = result.Failed()
	if err := result.Clean(); err != nil {
		out.why = err.Error()
	}
	return out, nil
}
