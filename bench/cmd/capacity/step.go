package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	stepModel = "step" // the function's name too
	// stepRPS is the load after the step, stepFactor times the load before. A query occupies a replica for waitMillis, so a replica serves 50
	// a second. With a utilization of 0.7 the load needs eleven or twelve replicas.
	stepRPS    = 400
	stepFactor = 20
	waitMillis = 20
	stepMax    = 24
	// stepSLOMillis is the function's objective.
	stepSLOMillis = 100
	// stepConnections is far more than are ever in use at once.
	stepConnections = 512
	// The objective holds in a window of length missWindow in which at most the fraction maxMissed is late or fails.
	missWindow = 500 * time.Millisecond
	maxMissed  = 0.01
	// lookEvery is how often the replicas are counted.
	lookEvery = 100 * time.Millisecond
	// The autoscaler's window and its delay before it removes a replica. They are a sixth of the defaults, which last as long as a whole
	// measurement here.
	scaleWindow = "10s"
	scaleDelay  = "5s"
)

// stepManifest declares a model that waits for each query on its own, in as many replicas as it needs.
func stepManifest(cfg config) string {
	return fmt.Sprintf(`kind: Model
name: %s
version: "1"
dir: %q
inputs:  [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py], env: {WAIT_MS: "%d"}}
preload: [numpy]
batching: {policy: none}
replicas: {min: 1, max: %d, window: %s, delay: %s}
cache: off
---
kind: Function
name: %s
models: [%s]
slo: %dms
`, stepModel, cfg.waiting(), waitMillis, stepMax, scaleWindow, scaleDelay, stepModel, stepModel, stepSLOMillis)
}

// Step is one step of the load, and how the gateway followed it.
type Step struct {
	BeforeRPS float64 `json:"before_rps"`
	RPS       float64 `json:"rps"`
	SLOMillis float64 `json:"slo_ms"`
	Seconds   float64 `json:"seconds"` // after the step
	// BeforeMissed is the fraction of the queries before the step that were late or failed.
	BeforeMissed float64 `json:"before_missed"`
	// Queries counts those after the step, Failed those without a prediction, and Late those whose prediction came after the objective.
	Queries   int    `json:"queries"`
	Failed    uint64 `json:"failed"`
	FailedWhy string `json:"failed_why,omitempty"`
	Late      int    `json:"late"`
	// FirstGood is the start of the first window in which the objective held, GoodAgain the end of the last window in which it did not, both
	// in seconds after the step. NeverGood means that the objective did not hold at the end.
	FirstGood float64   `json:"first_good_seconds"`
	GoodAgain float64   `json:"good_again_seconds"`
	NeverGood bool      `json:"never_good"`
	Replicas  []Counted `json:"replicas"`
}

// Counted is the number of replicas at one time.
type Counted struct {
	Seconds float64 `json:"seconds"` // after the step
	Ready   int     `json:"ready"`
	Wanted  int     `json:"wanted"`
	Panic   bool    `json:"panic,omitempty"`
}

func measureSteps(ctx context.Context, cfg config, report *Report) error {
	for round := range cfg.rounds {
		runner.Logf("    round %d of %d", round+1, cfg.rounds)
		s, err := measureStep(ctx, cfg, uint64(round))
		if err != nil {
			return err
		}
		report.Steps = append(report.Steps, *s)
		runner.Logf("        good again after %.1f s (first after %.1f s), %d late and %d failed of %d", s.GoodAgain, s.FirstGood, s.Late, s.Failed, s.Queries)
	}
	return nil
}

// measureStep plays one step against a gateway of its own.
func measureStep(ctx context.Context, cfg config, round uint64) (*Step, error) {
	g, err := gateway.Start(ctx, gateway.Options{Programs: cfg.Programs, Store: true})
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	if err := g.Apply(ctx, stepManifest(cfg)); err != nil {
		return nil, err
	}
	if err := runner.Until(ctx, pollEvery, asleepWithin, "a replica is ready", func(ctx context.Context) (bool, error) {
		now, err := g.Model(ctx, stepModel)
		return err == nil && now.ReadyReplicas() > 0, err
	}); err != nil {
		return nil, err
	}
	s := &Step{BeforeRPS: stepRPS / stepFactor, RPS: stepRPS, SLOMillis: stepSLOMillis, Seconds: cfg.step.Seconds()}
	before, _, err := play(ctx, g, s.BeforeRPS, cfg.before, 2*round)
	if err != nil {
		return nil, err
	}
	for _, a := range before {
		if a.missed() {
			s.BeforeMissed += 1 / float64(len(before))
		}
	}

	began := time.Now()
	looking, stop := context.WithCancel(ctx)
	counted := make(chan []Counted, 1)
	go func() { counted <- count(looking, g, began) }()
	after, result, err := play(ctx, g, s.RPS, cfg.step, 2*round+1)
	stop()
	s.Replicas = <-counted
	if err != nil {
		return nil, err
	}
	if len(s.Replicas) == 0 {
		return nil, errors.New("the gateway did not say how many replicas there are")
	}
	s.Queries, s.Failed = len(after), result.Failed()
	if err := result.Clean(); err != nil {
		s.FailedWhy = err.Error()
	}
	for _, a := range after {
		if a.right && a.missed() {
			s.Late++
		}
	}
	var good bool
	s.FirstGood, s.GoodAgain, good = recovery(after, began, cfg.step)
	s.NeverGood = !good
	return s, nil
}

// answered is one answer in an open loop.
type answered struct {
	due   time.Time
	took  time.Duration
	right bool
}

// missed reports whether the answer missed the objective.
func (a *answered) missed() bool { return !a.right || a.took > stepSLOMillis*time.Millisecond }

// play runs an open loop with Poisson arrivals.
func play(ctx context.Context, g *gateway.Gateway, rps float64, d time.Duration, seed uint64) ([]answered, *loadgen.Result, error) {
	var all []answered
	result, err := loadgen.Run(ctx, loadgen.Options{
		Addr: g.Addr, Connections: stepConnections, Rate: rps, Seed: seed, Duration: d,
		Requests: []loadgen.Request{{Wire: loadgen.Render(g.Addr, "/"+stepModel+"/predict", loadgen.JSON, []byte(`{"input": [1, 2, 3, 4]}`)), Contains: []byte(`"output":0`)}},
		OnAnswer: func(a loadgen.Answered) {
			all = append(all, answered{a.Due, a.Done.Sub(a.Due), a.Status == 200 && !a.Default && !a.Wrong})
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%w%s", err, g.LastWords())
	}
	return all, result, nil
}

// count samples the number of replicas until ctx ends.
func count(ctx context.Context, g *gateway.Gateway, began time.Time) (all []Counted) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if now, err := g.Model(ctx, stepModel); err == nil {
			c := Counted{Seconds: time.Since(began).Seconds(), Ready: now.ReadyReplicas()}
			if now.Capacity != nil {
				c.Wanted, c.Panic = now.Capacity.Wanted, now.Capacity.Panic
			}
			all = append(all, c)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return all
		}
	}
}

// recovery divides the answers that were due after a step into windows. first is the start of the first window in which the objective held,
// again the end of the last window in which it did not, in seconds. good means that the objective held in the last window. A window in
// which nothing was due does not count.
func recovery(all []answered, began time.Time, length time.Duration) (first, again float64, good bool) {
	n := int(length / missWindow)
	total, missed := make([]int, n), make([]int, n)
	for i := range all {
		at := all[i].due.Sub(began)
		if w := int(at / missWindow); at >= 0 && w < n {
			total[w]++
			if all[i].missed() {
				missed[w]++
			}
		}
	}
	bad := func(w int) bool { return float64(missed[w]) > maxMissed*float64(total[w]) }
	first, good = length.Seconds(), true
	for w := n - 1; w >= 0; w-- {
		switch at := float64(w) * missWindow.Seconds(); {
		case total[w] == 0:
		case !bad(w):
			first = at
		case again == 0:
			again, good = at+missWindow.Seconds(), w < n-1
		}
	}
	return first, again, good
}
