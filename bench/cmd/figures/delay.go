package main

import (
	"context"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/scheduler"
)

// Figure 5: a batch that is not full waits for more queries, under a load that would be too much one by one.

const (
	// overload is the offered rate as a multiple of the linear SVM's rate without batching.
	overload = 3
	// offerWarmup lets the cap settle.
	offerWarmup = 400 * time.Millisecond
	// offerSeed gives every delay the same arrivals. Rounds have different ones.
	offerSeed = 42
)

// delays go from none to the paper's largest.
var delays = []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond, 5 * time.Millisecond}

// capacity returns the container's queries/s at saturation, one by one and in large batches.
func capacity(ctx context.Context, cfg config, c *container) (one, batched float64, err error) {
	run, err := c.saturate(ctx, c.lane(batching(scheduler.None, 1)), pointWarmup, 0, cfg.duration, leastBatches)
	if err != nil {
		return 0, 0, err
	}
	one = run.sample().QPS
	run, err = c.saturate(ctx, c.lane(batching(scheduler.Fixed, 512)), pointWarmup, 0, cfg.duration, leastBatches)
	return one, run.sample().QPS, err
}

// measureDelays offers rate queries/s. If rate is 0 it offers overload times the container's rate without batching. It never offers more than
// half of the container's rate in large batches.
func measureDelays(ctx context.Context, cfg config, c *container, rate float64) (DelayCurve, error) {
	d := DelayCurve{Model: c.model.name, Title: c.model.title}
	var err error
	if d.OneByOneQPS, d.BatchedQPS, err = capacity(ctx, cfg, c); err != nil {
		return d, err
	}
	if rate == 0 {
		rate = overload * d.OneByOneQPS
	}
	d.OfferedQPS = min(rate, d.BatchedQPS/2)
	runner.Logf("    %-10s one by one %.0f queries/s, in batches of 512 %.0f; offered: %.0f", c.model.name, d.OneByOneQPS, d.BatchedQPS, d.OfferedQPS)
	lane := c.lane(batching(scheduler.AIMD, maxBatch))
	for _, hold := range delays {
		d.Delays = append(d.Delays, Delay{HoldMillis: hold.Seconds() * 1e3})
	}
	for round := range cfg.rounds {
		for i := range delays {
			at := (i + round) % len(delays)
			next := batching(scheduler.AIMD, maxBatch)
			next.Batching.HoldNanos = int64(delays[at])
			lane.Configure(next)
			o, err := c.offer(ctx, lane, d.OfferedQPS, offerSeed+uint64(round), min(offerWarmup, cfg.duration), cfg.duration)
			if err != nil {
				return d, fmt.Errorf("delay %s: %w", delays[at], err)
			}
			s := delaySample(o)
			d.Delays[at].Rounds = append(d.Delays[at].Rounds, s)
			runner.Logf("    %-10s delay %s: %6.0f queries/s, mean batch %5.1f, P99 %6.2f ms, container %5.1f µs CPU/query, busy %2.0f %%", c.model.name, delays[at], s.QPS, s.MeanBatch, s.P99Millis, s.CPUMicros, 100*s.Busy)
		}
	}
	return d, nil
}

func delaySample(o offered) DelaySample {
	q := results.Quantiles(o.latencies)
	s := DelaySample{QPS: float64(len(o.latencies)) / o.seconds, P99Millis: q(0.99) / 1e6, P50Millis: q(0.5) / 1e6, Refused: o.refused}
	queries, evalNanos := 0, int64(0)
	for _, r := range o.records {
		queries += r.queries
		evalNanos += r.evalNanos
	}
	s.MeanBatch = float64(queries) / float64(max(len(o.records), 1))
	s.CPUMicros = o.cpu.Seconds() * 1e6 / float64(max(queries, 1))
	s.Busy = float64(evalNanos) / 1e9 / o.seconds
	return s
}
