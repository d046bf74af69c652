package main

import (
	"context"
	"fmt"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
)

// feedbackMetric counts feedback by its outcome.
const feedbackMetric = "xebec_feedback_total"

// feedbackCounted returns how many observations a function has learned from, by the gateway's own metric. That is more than the answers
// tell: feedback that waits for predictions is answered before it counts.
func feedbackCounted(ctx context.Context, g *gateway.Gateway, function string) (float64, error) {
	text, err := g.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return parseCounted(text, function)
}

func parseCounted(text, function string) (float64, error) {
	samples, err := gateway.Samples(text, feedbackMetric+"{", fmt.Sprintf("function=%q", function), `"`+counted+`"`)
	if err != nil {
		return 0, err
	}
	if len(samples) == 0 {
		return 0, fmt.Errorf("the gateway has no metric %s of counted feedback of function %s", feedbackMetric, function)
	}
	return samples[0].Value, nil
}
