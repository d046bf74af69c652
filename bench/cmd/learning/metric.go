package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// feedbackMetric counts feedback by what became of it.
const feedbackMetric = "xebec_feedback_total"

// feedbackCounted is how much feedback a function has learned from, by the gateway's own count. It is more than what the answers
// say: feedback that waits for predictions is answered before it counts.
func (g *gateway) feedbackCounted(ctx context.Context, function string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics: status %d, %.200s (%w)", res.StatusCode, text, err)
	}
	return parseCounted(string(text), function)
}

// parseCounted reads it from Prometheus's text format.
func parseCounted(text, function string) (float64, error) {
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(series, feedbackMetric+"{") || !strings.Contains(series, fmt.Sprintf("function=%q", function)) || !strings.Contains(series, `"`+counted+`"`) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metrics: %s: %w", line, err)
		}
		return number, nil
	}
	return 0, fmt.Errorf("the gateway has no metric %s of counted feedback of function %s", feedbackMetric, function)
}
