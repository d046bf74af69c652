package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Figure 3: the latency of batches of exactly n queries, one after the other, with nothing else outstanding.

const (
	// maxProfiled is 49 MiB of inputs, within the default limit of a batch.
	maxProfiled = 16384
	// unmeasured is the number of warm-up batches of a size: segments grow, caches fill.
	unmeasured = 3
	// With leastRepetitions P99 is the second largest value. More repetitions run while they fit into the time of a point.
	leastRepetitions = 100
	mostRepetitions  = 400
	// beyondObjective ends a profile when the mean exceeds this multiple of the objective.
	beyondObjective = 1.5
)

func measureProfile(ctx context.Context, cfg config, c *container) (Profile, error) {
	p := Profile{Model: c.model.name, Title: c.model.title, What: c.model.what}
	queries := make([]*api.Query, maxProfiled)
	for i := range queries {
		row := i % len(c.model.queries)
		queries[i] = &api.Query{Inputs: c.model.queries[row : row+1], Deadline: api.Never, Expires: api.Never}
	}
	add := func(n int) (ProfilePoint, error) {
		point, err := measurePoint(ctx, cfg, c, queries[:n])
		if err == nil {
			p.Points = append(p.Points, point)
			runner.Logf("    %-10s batches of %5d: mean %7.3f ms, P99 %7.3f ms (%d batches)", c.model.name, n, point.MeanMillis, point.P99Millis, point.Batches)
		}
		return point, err
	}
	last := 0
	for _, n := range profileSizes(maxProfiled) {
		point, err := add(n)
		if err != nil {
			return p, err
		}
		if point.P99Millis <= objectiveMillis {
			last = n
		}
		if point.MeanMillis > beyondObjective*objectiveMillis {
			break
		}
	}
	if next := slices.IndexFunc(p.Points, func(q ProfilePoint) bool { return q.Queries > last }); next >= 0 && last > 0 {
		for _, n := range between(last, p.Points[next].Queries) {
			if _, err := add(n); err != nil {
				return p, err
			}
		}
	}
	slices.SortFunc(p.Points, func(a, b ProfilePoint) int { return a.Queries - b.Queries })
	p.Line = fitLine(p.Points)
	p.Largest, p.Beyond = largestWithin(p.Points, objectiveMillis)
	return p, nil
}

func measurePoint(ctx context.Context, cfg config, c *container, queries []*api.Query) (ProfilePoint, error) {
	var evals []int64
	var spent time.Duration
	least := min(leastRepetitions, cfg.repetitions)
	for i := 0; i < unmeasured+least || spent < cfg.duration && len(evals) < mostRepetitions; i++ {
		evalNanos, err := c.evaluate(ctx, queries)
		if err != nil {
			return ProfilePoint{}, fmt.Errorf("a batch of %d: %w", len(queries), err)
		}
		if i >= unmeasured {
			evals = append(evals, evalNanos)
			spent += time.Duration(evalNanos)
		}
	}
	for i, q := range queries { // only the last batch's answers: checking takes longer than some models
		if err := c.model.check(i%len(c.model.queries), q.Outputs); err != nil {
			return ProfilePoint{}, err
		}
	}
	c.records()
	q := results.Quantiles(evals)
	return ProfilePoint{Queries: len(queries), Batches: len(evals), MeanMillis: results.Mean(evals) / 1e6, P50Millis: q(0.5) / 1e6, P99Millis: q(0.99) / 1e6}, nil
}
