package main

import (
	"context"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// Figure 4: batching strategies under a load that never lets up.

const (
	// maxBatch is the gateway's default limit, which the fastest containers reach before the objective.
	maxBatch = scheduler.DefaultMaxBatch
	// pointWarmup precedes each measured run. An adaptive cap has settled long before.
	pointWarmup = 100 * time.Millisecond
	// batchesForP99 is how many batches an adaptive cap and the best static one get in their final rounds, at least. To show that at most one in a
	// hundred is late, none of 368 may be late, or 3 of 876.
	batchesForP99 = 1000
)

// adaptive are the policies that find a cap themselves.
var adaptive = []scheduler.Policy{scheduler.AIMD, scheduler.Quantile}

func batching(policy scheduler.Policy, most int) scheduler.Config {
	c := scheduler.DefaultConfig()
	c.Batching.Policy, c.Batching.MaxBatch, c.Batching.ObjectiveNanos = policy, most, int64(objectiveMillis*1e6)
	return c
}

// contender is one strategy with its lane, which keeps what it learned from round to round.
type contender struct {
	lane   *driver.Lane
	fixed  int // cap of a static strategy; all static strategies share a lane
	result Strategy
	evals  []int64
}

func (s *contender) add(records []batchRecord) {
	for _, r := range records {
		s.evals = append(s.evals, r.evalNanos)
	}
}

func measureStrategies(ctx context.Context, cfg config, c *container) (Comparison, error) {
	cmp := Comparison{Model: c.model.name, Title: c.model.title}
	var all []*contender
	around := 0
	for _, policy := range adaptive {
		s := &contender{lane: c.lane(batching(policy, maxBatch)), result: Strategy{Name: policy.String()}}
		run, err := c.saturate(ctx, s.lane, pointWarmup, cfg.settle, cfg.duration, leastBatches)
		if err != nil {
			return cmp, fmt.Errorf("%s: %w", s.result.Name, err)
		}
		var snapshot scheduler.Snapshot
		s.lane.Snapshot(&snapshot)
		s.result.SettledSeconds, s.result.SettledCap = run.settled.Seconds(), snapshot.Replicas[0].Cap
		runner.Logf("    %-10s %s: cap %d after %.1f s, %.0f queries/s", c.model.name, s.result.Name, s.result.SettledCap, run.settled.Seconds(), run.sample().QPS)
		around = max(around, s.result.SettledCap) // other work on the machine makes a cap smaller, never larger
		all = append(all, s)
	}
	all = append(all, &contender{lane: c.lane(batching(scheduler.None, maxBatch)), result: Strategy{Name: scheduler.None.String()}})
	static := c.lane(batching(scheduler.Fixed, 1))
	for _, n := range staticSizes(around, cfg.statics, maxBatch) {
		all = append(all, &contender{lane: static, fixed: n, result: Strategy{Name: fmt.Sprintf("static %d", n), Static: n}})
	}
	play := func(round, least int, among []*contender, keep func(s *contender, run saturated)) error {
		for _, s := range runner.Rotate(round, among...) {
			if s.fixed > 0 {
				s.lane.Configure(batching(scheduler.Fixed, s.fixed))
			}
			run, err := c.saturate(ctx, s.lane, pointWarmup, 0, cfg.duration, least)
			if err != nil {
				return fmt.Errorf("%s: %w", s.result.Name, err)
			}
			keep(s, run)
		}
		return nil
	}
	for round := range cfg.rounds {
		err := play(round, leastBatches, all, func(s *contender, run saturated) {
			s.result.Rounds = append(s.result.Rounds, run.sample())
			s.add(run.records)
		})
		if err != nil {
			return cmp, err
		}
	}
	for _, s := range all {
		s.result.judge(s.evals)
	}
	last := finalists(all)
	for round := range cfg.rounds {
		err := play(round, (cfg.batches+cfg.rounds-1)/cfg.rounds, last, func(s *contender, run saturated) {
			s.result.Finals = append(s.result.Finals, run.sample())
			s.add(run.records)
		})
		if err != nil {
			return cmp, err
		}
	}
	for _, s := range last {
		s.result.judge(s.evals)
	}
	for _, s := range all {
		cmp.Strategies = append(cmp.Strategies, s.result)
		runner.Logf("    %-10s %-11s %9.0f queries/s, mean batch %7.1f, P99 %6.2f ms", c.model.name, s.result.Name,
			results.Median(results.Each(s.result.Rounds, throughput)), results.Median(results.Each(s.result.Rounds, batchSize)), s.result.P99Millis)
	}
	return cmp, nil
}

// finalists returns the adaptive strategies and the best static one, if there is one.
func finalists(all []*contender) []*contender {
	var out []*contender
	judged := make([]Strategy, len(all))
	for i, s := range all {
		judged[i] = s.result
	}
	best := bestStatic(judged, objectiveMillis)
	for i, s := range all {
		if s.result.SettledCap > 0 || best == &judged[i] {
			out = append(out, s)
		}
	}
	return out
}

// judge evaluates the times of all rounds together, because one round has too few batches for a P99.
func (s *Strategy) judge(evals []int64) {
	s.Batches, s.P99Millis = len(evals), results.Quantiles(evals)(0.99)/1e6
	late := 0
	for _, e := range evals {
		if float64(e) > objectiveMillis*1e6 {
			late++
		}
	}
	s.LateShare = float64(late) / float64(max(len(evals), 1))
}

// sample counts queries from the first returned batch to the last, so that the ends of the window cut no batch in two.
func (run *saturated) sample() Sample {
	var s Sample
	queries, evalNanos := 0, int64(0)
	for _, r := range run.records {
		queries += r.queries
		evalNanos += r.evalNanos
	}
	n := len(run.records)
	if n > 0 {
		s.MeanBatch = float64(queries) / float64(n)
		s.CPUMicros = run.cpu.Seconds() * 1e6 / float64(max(queries, 1))
	}
	if n > 1 {
		first, seconds := run.records[0], float64(run.records[n-1].at-run.records[0].at)/1e9
		s.QPS = float64(queries-first.queries) / seconds
		s.Busy = float64(evalNanos-first.evalNanos) / 1e9 / seconds
	}
	return s
}
