package main

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
)

// LateHistogram is xebec_deadline_late_seconds of one model: how long after its deadline a query without a prediction was answered.
type LateHistogram struct {
	Count      uint64  `json:"count"`
	MeanMillis float64 `json:"mean_ms"`
	// P50Millis and P99Millis are the upper bounds of the quantiles' buckets. 0 means above all bounds.
	P50Millis float64 `json:"p50_at_most_ms"`
	P99Millis float64 `json:"p99_at_most_ms"`

	sumSeconds float64
	buckets    []bucket
}

// bucket counts the values up to its bound.
type bucket struct {
	boundSeconds float64
	count        uint64
}

// lateHistogram reads the gateway's metrics. It returns nil if the gateway has no such metric.
func lateHistogram(ctx context.Context, g *gateway.Gateway, model string) (*LateHistogram, error) {
	text, err := g.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	return parseLate(text, model)
}

func parseLate(text, model string) (*LateHistogram, error) {
	const name = "xebec_deadline_late_seconds"
	samples, err := gateway.Samples(text, name, fmt.Sprintf("model=%q", model))
	if err != nil {
		return nil, err
	}
	h := &LateHistogram{}
	for _, s := range samples {
		switch s.Name {
		case name + "_sum":
			h.sumSeconds = s.Value
		case name + "_count":
			h.Count = uint64(s.Value)
		case name + "_bucket":
			seconds, err := strconv.ParseFloat(s.Label("le"), 64) // also +Inf
			if err != nil {
				return nil, fmt.Errorf("metrics: %s: %w", s.Series, err)
			}
			h.buckets = append(h.buckets, bucket{seconds, uint64(s.Value)})
		}
	}
	if len(h.buckets) == 0 {
		return nil, nil
	}
	return h, nil
}

// since returns the difference from an earlier histogram, or nil if h is nil.
func (h *LateHistogram) since(before *LateHistogram) *LateHistogram {
	if h == nil {
		return nil
	}
	d := &LateHistogram{Count: h.Count, sumSeconds: h.sumSeconds}
	d.buckets = append(d.buckets, h.buckets...)
	if before != nil && len(before.buckets) == len(d.buckets) {
		d.Count -= before.Count
		d.sumSeconds -= before.sumSeconds
		for i := range d.buckets {
			d.buckets[i].count -= before.buckets[i].count
		}
	}
	if d.Count > 0 {
		d.MeanMillis = d.sumSeconds / float64(d.Count) * 1e3
	}
	d.P50Millis, d.P99Millis = d.atMostMillis(0.5), d.atMostMillis(0.99)
	return d
}

// atMostMillis returns the bound of the first bucket that holds the fraction p of the values.
func (h *LateHistogram) atMostMillis(p float64) float64 {
	for _, b := range h.buckets {
		if float64(b.count) >= p*float64(h.Count) && !math.IsInf(b.boundSeconds, 1) {
			return b.boundSeconds * 1e3
		}
	}
	return 0
}

// String formats the histogram for a line of progress.
func (h *LateHistogram) String() string {
	if h == nil {
		return "–"
	}
	return fmt.Sprintf("%d, mean %.2f ms, P99 at most %.2f ms", h.Count, h.MeanMillis, h.P99Millis)
}
