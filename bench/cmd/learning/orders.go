package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Orders is what -orders measures: many orders of data sets and simulated streams, played to policies without a gateway.
type Orders struct {
	results.Taken
	Quick      bool        `json:"quick,omitempty"`
	Orders     int         `json:"orders"`
	Seconds    float64     `json:"seconds"`
	Contenders []contender `json:"contenders"`
	Sweep      []contender `json:"sweep"`
	// Routers are the policies that see the inputs. They play where a query has some.
	Routers   []contender `json:"routers"`
	Scenarios []Played    `json:"scenarios"`
}

// Empty implements results.Report.
func (o *Orders) Empty() bool { return len(o.Scenarios) == 0 }

// Played is one scenario.
type Played struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Kind    string `json:"kind"`
	Queries int    `json:"queries"`
	Models  int    `json:"models"`
	// Runs are the best model in hindsight, then the contenders; for users also the choices without feedback. Sweep are the parameters of the
	// sweep.
	Runs  []OrderRun `json:"runs"`
	Sweep []OrderRun `json:"sweep"`
}

// OrderRun is a choice or a policy in all orders of a scenario. Differences are taken within an order, above 0 where the policy has more errors.
type OrderRun struct {
	Name   string           `json:"name"`
	Errors []float64        `json:"errors"`
	Error  results.Interval `json:"error"`
	// Phases are the error rates between the changes of the scenario; for users, of the first and the second half of their feedback.
	Phases     []results.Interval `json:"phases,omitempty"`
	BesideVote results.Interval   `json:"beside_vote"`
	BesideBest results.Interval   `json:"beside_best"`

	// PhaseErrors are the error rates by phase and order.
	PhaseErrors [][]float64 `json:"phase_errors,omitempty"`
}

// The names of runs that others are compared with.
const (
	bestRun     = "best model in hindsight"
	voteRun     = "plain vote"
	defaultRun  = "exp4"
	reportedRun = "reported group's model"
	forAllRun   = "one model for all"
)

// Contenders play all orders, the parameters of the sweep the first ones.
const (
	orderCount      = 20
	sweepOrderCount = 5
	quickOrderCount = 3
)

type params = map[string]any

// contenders are the policies with their defaults, exp4 as it was before the vote took part, and the paper's algorithms. The paper names no
// eta; 0.01 is that of Clipper's code.
var contenders = []contender{
	{Name: voteRun, Policy: "exp4", Silent: true},
	{Name: defaultRun, Policy: "exp4"},
	{Name: "exp4 without vote and boost", Policy: "exp4", Params: params{"vote": 0.0, "boost": 0.0}},
	{Name: "the paper's Exp4, eta 0.01", Policy: "exp4", Params: params{"eta": 0.01, "floor": 0.0, "vote": 0.0, "boost": 0.0}, Fresh: true},
	{Name: "the paper's Exp4, eta 0.1", Policy: "exp4", Params: params{"eta": 0.1, "floor": 0.0, "vote": 0.0, "boost": 0.0}, Fresh: true},
	{Name: "exp3", Policy: "exp3"},
	{Name: "the paper's Exp3, eta 0.01", Policy: "exp3", Params: params{"eta": 0.01, "gamma": 0.0, "floor": 0.0}, Fresh: true},
	{Name: "the paper's Exp3, eta 0.06", Policy: "exp3", Params: params{"eta": 0.06, "gamma": 0.0, "floor": 0.0}, Fresh: true},
	{Name: "epsilon-greedy", Policy: "epsilon-greedy"},
	{Name: "ucb1", Policy: "ucb1"},
	{Name: "thompson", Policy: "thompson"},
}

// routers are linucb by the image, with as many features as it has by default and with the most that it may have, and by the group that a user
// reports, also with more exploration. scale is that of pixels. linucb has one value for each function, so all users teach it together.
var routers = []contender{
	{Name: "linucb by the image", Policy: "linucb", Params: params{"input": imageInput, "scale": 255.0}},
	{Name: "linucb by the image, 32 features", Policy: "linucb", Params: params{"input": imageInput, "scale": 255.0, "features": 32.0}},
	{Name: "linucb by the reported group", Policy: "linucb", Params: params{"input": groupInput}},
	{Name: "linucb by the reported group, alpha 1", Policy: "linucb", Params: params{"input": groupInput, "alpha": 1.0}},
}

// sweep returns the parameters that the defaults were chosen among.
func sweep() []contender {
	var out []contender
	add := func(policy string, p params) {
		name := policy
		for _, key := range []string{"eta", "boost", "floor", "gamma", "vote"} {
			if value, ok := p[key]; ok {
				name += fmt.Sprintf(" %s %v", key, value)
			}
		}
		out = append(out, contender{Name: name, Policy: policy, Params: p})
	}
	for _, eta := range []float64{0.01, 0.03, 0.1, 0.3} {
		add("exp4", params{"eta": eta, "boost": 2.0, "floor": 1.0, "vote": 10.0})
	}
	for _, vote := range []float64{0, 1, 3, 30} {
		add("exp4", params{"eta": 0.1, "boost": 2.0, "floor": 1.0, "vote": vote})
	}
	for _, boost := range []float64{0, 1} {
		add("exp4", params{"eta": 0.1, "boost": boost, "floor": 1.0, "vote": 10.0})
	}
	for _, floor := range []float64{0.3, 2} {
		add("exp4", params{"eta": 0.1, "boost": 2.0, "floor": floor, "vote": 10.0})
	}
	for _, eta := range []float64{0.03, 0.06, 0.1} {
		add("exp3", params{"eta": eta, "floor": 0.002, "gamma": 0.01})
	}
	for _, x := range [][2]float64{{0.01, 0.03}, {0.01, 0.01}, {0, 0.01}, {0.002, 0}} {
		add("exp3", params{"eta": 0.06, "floor": x[0], "gamma": x[1]})
	}
	return out
}

// measureOrders plays every scenario, as many at once as there are processors.
func measureOrders(ctx context.Context, cfg config, o *Orders) error {
	all, err := scenarios(cfg.models, cfg.scaled)
	if err != nil {
		return err
	}
	o.Orders, o.Contenders, o.Sweep, o.Routers = orderCount, contenders, sweep(), routers
	if cfg.quick {
		o.Orders = quickOrderCount
	}
	began := time.Now()
	played, err := o.playAll(ctx, all)
	if err != nil {
		return err
	}
	for _, p := range played {
		o.Scenarios = append(o.Scenarios, *p)
	}
	o.Seconds = time.Since(began).Seconds()
	return nil
}

// playAll plays scenarios, as many at once as there are processors.
func (o *Orders) playAll(ctx context.Context, all []scenario) ([]*Played, error) {
	played, errs := make([]*Played, len(all)), make([]error, len(all))
	var running sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range all {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] != nil {
				return
			}
			if played[i], errs[i] = o.play(&all[i]); errs[i] == nil {
				exp4 := played[i].run(defaultRun)
				runner.Logf("    %s: exp4 %s %%, plain vote %s %%, best model %s %%", all[i].name, percent(exp4.Error), percent(played[i].run(voteRun).Error), percent(played[i].run(bestRun).Error))
			}
		})
	}
	running.Wait()
	for i := range all {
		if errs[i] != nil {
			return nil, fmt.Errorf("%s: %w", all[i].name, errs[i])
		}
	}
	return played, nil
}

// play plays all orders of a scenario to all contenders. A contender begins each order with nothing.
func (o *Orders) play(sc *scenario) (*Played, error) {
	p := &Played{Name: sc.name, What: sc.what, Kind: sc.kind}
	for order := range uint64(o.Orders) {
		s := sc.stream(order)
		p.Queries, p.Models = s.queries(), s.models
		record(&p.Runs, bestRun, s, s.best())
		if s.users != nil {
			record(&p.Runs, reportedRun, s, s.wrong(func(q int) int32 { return s.reported[q] }))
			record(&p.Runs, forAllRun, s, s.wrong(func(q int) int32 { return s.forAll[q] }))
		}
		for _, group := range []struct {
			runs *[]OrderRun
			of   []contender
		}{{&p.Runs, o.Contenders}, {&p.Runs, o.routersOf(s)}, {&p.Sweep, o.Sweep}} {
			if group.runs == &p.Sweep && order >= sweepOrderCount {
				continue
			}
			for i := range group.of {
				player, err := group.of[i].player(s.models, order)
				if err != nil {
					return nil, err
				}
				record(group.runs, group.of[i].Name, s, player.play(s))
			}
		}
	}
	vote, best := p.run(voteRun).Errors, p.run(bestRun).Errors
	for _, runs := range [][]OrderRun{p.Runs, p.Sweep} {
		for i := range runs {
			runs[i].summarize(vote, best)
		}
	}
	return p, nil
}

// routersOf returns the policies that need what only some streams have.
func (o *Orders) routersOf(s *stream) []contender {
	if s.inputs == nil {
		return nil
	}
	return o.Routers
}

// record adds an order to the run of that name.
func record(runs *[]OrderRun, name string, s *stream, wrong []bool) {
	at := slices.IndexFunc(*runs, func(r OrderRun) bool { return r.Name == name })
	if at < 0 {
		at = len(*runs)
		*runs = append(*runs, OrderRun{Name: name, PhaseErrors: make([][]float64, len(s.phases)+1)})
	}
	r := &(*runs)[at]
	r.Errors = append(r.Errors, errorRate(wrong))
	begin := 0
	for i := range r.PhaseErrors {
		end := len(wrong)
		if i < len(s.phases) {
			end = s.phases[i]
		}
		r.PhaseErrors[i] = append(r.PhaseErrors[i], errorRate(wrong[begin:end]))
		begin = end
	}
}

func (r *OrderRun) summarize(vote, best []float64) {
	vote, best = vote[:len(r.Errors)], best[:len(r.Errors)]
	r.Error = results.Average(r.Errors)
	r.BesideVote = results.Average(results.Differences(r.Errors, vote))
	r.BesideBest = results.Average(results.Differences(r.Errors, best))
	if len(r.PhaseErrors) < 2 {
		r.PhaseErrors = nil
	}
	for _, of := range r.PhaseErrors {
		r.Phases = append(r.Phases, results.Average(of))
	}
}

// run returns the run of that name.
func (p *Played) run(name string) *OrderRun {
	if r := results.Find(p.Runs, func(r OrderRun) bool { return r.Name == name }); r != nil {
		return r
	}
	return results.Find(p.Sweep, func(r OrderRun) bool { return r.Name == name })
}
