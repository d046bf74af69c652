package main

import (
	"context"
	"fmt"
	"maps"
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

// measureProfile measures the profile once in each round. Points are of all rounds.
func measureProfile(ctx context.Context, cfg config, c *container) (Profile, error) {
	p := Profile{Model: c.model.name, Title: c.model.title, What: c.model.what}
	queries := make([]*api.Query, maxProfiled)
	for i := range queries {
		row := i % len(c.model.queries)
		queries[i] = &api.Query{Inputs: c.model.queries[row : row+1], Deadline: api.Never, Expires: api.Never}
	}
	all := map[int][]int64{}
	for range cfg.rounds {
		evals, err := measureRound(ctx, cfg, c, queries)
		if err != nil {
			return p, err
		}
		largest, _ := largestWithin(pointsOf(evals), objectiveMillis)
		p.ByRound = append(p.ByRound, largest)
		for n, more := range evals {
			all[n] = append(all[n], more...)
		}
	}
	p.Points = pointsOf(all)
	p.Line = fitLine(p.Points)
	p.Largest, p.Beyond = largestWithin(p.Points, objectiveMillis)
	return p, nil
}

// measureRound returns the evaluation times of batches by their size: powers of two, and sizes about where the objective is met.
func measureRound(ctx context.Context, cfg config, c *container, queries []*api.Query) (map[int][]int64, error) {
	all := map[int][]int64{}
	add := func(n int) (ProfilePoint, error) {
		evals, err := measurePoint(ctx, cfg, c, queries[:n])
		if err != nil {
			return ProfilePoint{}, err
		}
		all[n] = evals
		point := pointOf(n, evals)
		runner.Logf("    %-10s batches of %5d: mean %7.3f ms, P99 %7.3f ms (%d batches)", c.model.name, n, point.MeanMillis, point.P99Millis, point.Batches)
		return point, nil
	}
	last, next := 0, 0 // the last size within the objective, and the one after it
	for _, n := range profileSizes(maxProfiled) {
		point, err := add(n)
		if err != nil {
			return nil, err
		}
		switch {
		case point.P99Millis <= objectiveMillis:
			last, next = n, 0
		case next == 0:
			next = n
		}
		if point.MeanMillis > beyondObjective*objectiveMillis {
			break
		}
	}
	if last > 0 && next > 0 {
		for _, n := range between(last, next) {
			if _, err := add(n); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// pointsOf returns the points of a profile, from the smallest batch to the largest.
func pointsOf(evals map[int][]int64) []ProfilePoint {
	var points []ProfilePoint
	for _, n := range slices.Sorted(maps.Keys(evals)) {
		points = append(points, pointOf(n, evals[n]))
	}
	return points
}

func pointOf(n int, evals []int64) ProfilePoint {
	q := results.Quantiles(evals)
	return ProfilePoint{Queries: n, Batches: len(evals), MeanMillis: results.Mean(evals) / 1e6, P50Millis: q(0.5) / 1e6, P99Millis: q(0.99) / 1e6}
}

func measurePoint(ctx context.Context, cfg config, c *container, queries []*api.Query) (evals []int64, err error) {
	var spent time.Duration
	least := min(leastRepetitions, cfg.repetitions)
	for i := 0; i < unmeasured+least || spent < cfg.duration && len(evals) < mostRepetitions; i++ {
		evalNanos, err := c.evaluate(ctx, queries)
		if err != nil {
			return nil, fmt.Errorf("a batch of %d: %w", len(queries), err)
		}
		if i >= unmeasured {
			evals = append(evals, evalNanos)
			spent += time.Duration(evalNanos)
		}
	}
	for i, q := range queries { // only the last batch's answers: checking takes longer than some models
		if err := c.model.check(i%len(c.model.queries), q.Outputs); err != nil {
			return nil, err
		}
	}
	c.records()
	return evals, nil
}
