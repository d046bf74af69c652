package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// Stragglers is figure 9.
type Stragglers struct {
	OfferedQPS float64 `json:"offered_qps"`
	// Share is the fraction of the batches that take 30 to 60 ms longer.
	Share  float64          `json:"straggling_share"`
	Points []StragglerPoint `json:"points"`
}

// StragglerPoint is one ensemble, with mitigation (it answers at 20 ms with the predictions it has) or without (it waits for all).
type StragglerPoint struct {
	Members   int     `json:"members"`
	Mitigated bool    `json:"mitigated"`
	Queries   int     `json:"queries"`
	Latency   Latency `json:"latency"`
	// Missing is the fraction of members that had no part in an answer, over all queries. MissingP99 is its 99th percentile.
	Missing    float64 `json:"missing"`
	MissingP99 float64 `json:"missing_p99"`
	// NotAsked is the part of Missing that the plan left out.
	NotAsked float64 `json:"not_asked"`
	Accuracy float64 `json:"accuracy"`
	Defaults float64 `json:"defaults"`
}

const (
	straggling   = 0.02
	stragglerQPS = 60
	// sloMillis is the paper's objective of figure 9.
	sloMillis = 20
	// learningTime is left out of each measurement, because the gateway does not know the members' profiles yet.
	learningTime = time.Second
)

var ensembleSizes = []int{1, 2, 4, 8, 12, 16}

func measureStragglers(ctx context.Context, cfg config) (*Stragglers, error) {
	e, err := load(cfg.models, "figure9")
	if err != nil {
		return nil, err
	}
	name := func(members int, mitigated bool) string {
		return fmt.Sprintf("%s-%d", map[bool]string{true: "prompt", false: "patient"}[mitigated], members)
	}
	g, err := startGateway(ctx, cfg, func(_ string, m *manifestText) {
		for i, model := range e.names() {
			m.model(cfg, e, model, false, fmt.Sprint("STRAGGLES=", straggling), fmt.Sprint("STRAGGLES_SEED=", i))
		}
		for _, n := range ensembleSizes {
			m.function(name(n, true), e.names()[:n], "exp4", fmt.Sprintf("%dms", sloMillis))
			m.function(name(n, false), e.names()[:n], "exp4", patient)
		}
	})
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	out := &Stragglers{OfferedQPS: stragglerQPS, Share: straggling}
	for _, mitigated := range []bool{true, false} {
		for _, n := range ensembleSizes {
			p, err := askOpenly(ctx, g, e, name(n, mitigated), n, cfg.lasting(6*time.Second))
			if err != nil {
				return nil, fmt.Errorf("figure 9, %d members: %w", n, err)
			}
			p.Mitigated = mitigated
			out.Points = append(out.Points, *p)
			runner.Logf("    %s: mean %.1f ms, P99 %.1f ms, missing %.1f %% (not asked %.1f %%), accuracy %.3f, defaults %.1f %%",
				name(n, mitigated), p.Latency.Mean, p.Latency.P99, 100*p.Missing, 100*p.NotAsked, p.Accuracy, 100*p.Defaults)
		}
	}
	return out, nil
}

// asked is one query in an open loop.
type asked struct {
	latencyNanos int64 // from when it was due
	got          prediction
	right        bool
	err          error
}

// askOpenly sends queries in an open loop to a function with so many members.
func askOpenly(ctx context.Context, g *gateway.Gateway, e *experiment, function string, members int, duration time.Duration) (*StragglerPoint, error) {
	schedule, err := loadgen.NewSchedule(stragglerQPS, loadgen.Poisson, uint64(members), 0, 1)
	if err != nil {
		return nil, err
	}
	var due []time.Duration
	for t := time.Duration(schedule.Next()); t < learningTime+duration; t = time.Duration(schedule.Next()) {
		due = append(due, t)
	}
	all := make([]asked, len(due))
	c := newClient(g.Addr, 256)
	defer c.close()
	begin := time.Now()
	var running sync.WaitGroup
	for i, at := range due {
		select {
		case <-time.After(time.Until(begin.Add(at))):
		case <-ctx.Done():
		}
		running.Go(func() {
			row := i % e.Queries
			got, err := c.predict(ctx, function, e.rows[row], "")
			took := time.Since(begin) - at
			if err == nil {
				err = e.check(row, &got)
			}
			all[i] = asked{int64(took), got, err == nil && got.Output == e.labels[row], err}
		})
	}
	running.Wait()
	first := slices.IndexFunc(due, func(t time.Duration) bool { return t >= learningTime })
	return summarize(all[first:], members)
}

// summarize makes a point of the queries.
func summarize(all []asked, members int) (*StragglerPoint, error) {
	p := &StragglerPoint{Members: members, Queries: len(all)}
	var latencies []int64
	var missing, notAsked, right, defaults []float64
	var failures []error
	truth := map[bool]float64{true: 1}
	for i := range all {
		a := &all[i]
		if a.err != nil {
			failures = append(failures, a.err)
			continue
		}
		latencies = append(latencies, a.latencyNanos)
		missing = append(missing, float64(a.got.missing(members))/float64(members))
		notAsked = append(notAsked, float64(len(a.got.Dropped))/float64(members))
		right = append(right, truth[a.right])
		defaults = append(defaults, truth[a.got.Default])
	}
	if len(failures) > 0 {
		return nil, fmt.Errorf("%d of %d queries failed, the first: %w", len(failures), len(all), failures[0])
	}
	if len(all) == 0 {
		return nil, errors.New("no queries")
	}
	p.Latency = latencyOf(latencies)
	p.Missing, p.NotAsked, p.Accuracy, p.Defaults = results.Mean(missing), results.Mean(notAsked), results.Mean(right), results.Mean(defaults)
	p.MissingP99 = results.Quantiles(missing)(0.99)
	return p, nil
}
