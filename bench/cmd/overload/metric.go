package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// LateHistogram is xebec_deadline_late_seconds of one model: how long after its deadline a query without a prediction was answered.
type LateHistogram struct {
	Count      uint64  `json:"count"`
	MeanMillis float64 `json:"mean_ms"`
	// P50Millis and P99Millis are upper bounds: those of the buckets into which they fall; 0 is "above all bounds".
	P50Millis float64 `json:"p50_at_most_ms"`
	P99Millis float64 `json:"p99_at_most_ms"`

	sumSeconds float64
	buckets    []bucket
}

// bucket counts what is at most its bound.
type bucket struct {
	boundSeconds float64
	count        uint64
}

// lateHistogram scrapes the gateway; nil where it has no such metric.
func (g *gateway) lateHistogram(ctx context.Context, model string) (*LateHistogram, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		return nil, fmt.Errorf("metrics: status %d, %.200s (%w)", res.StatusCode, text, err)
	}
	return parseLate(string(text), model)
}

// parseLate reads the histogram from Prometheus's text format.
func parseLate(text, model string) (*LateHistogram, error) {
	const name = "xebec_deadline_late_seconds"
	label := fmt.Sprintf("model=%q", model)
	h := &LateHistogram{}
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(series, name) || !strings.Contains(series, label) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %s: %w", line, err)
		}
		switch {
		case strings.HasPrefix(series, name+"_sum{"):
			h.sumSeconds = number
		case strings.HasPrefix(series, name+"_count{"):
			h.Count = uint64(number)
		case strings.HasPrefix(series, name+"_bucket{"):
			_, rest, _ := strings.Cut(series, `le="`)
			bound, _, _ := strings.Cut(rest, `"`)
			seconds, err := strconv.ParseFloat(bound, 64) // also +Inf
			if err != nil {
				return nil, fmt.Errorf("metrics: %s: %w", line, err)
			}
			h.buckets = append(h.buckets, bucket{seconds, uint64(number)})
		}
	}
	if len(h.buckets) == 0 {
		return nil, nil
	}
	return h, nil
}

// since is what was observed after before; nil where there is no histogram.
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

// atMostMillis is the bound of the first bucket that holds a part p.
func (h *LateHistogram) atMostMillis(p float64) float64 {
	for _, b := range h.buckets {
		if float64(b.count) >= p*float64(h.Count) && !math.IsInf(b.boundSeconds, 1) {
			return b.boundSeconds * 1e3
		}
	}
	return 0
}

// String is for people.
func (h *LateHistogram) String() string {
	if h == nil {
		return "–"
	}
	return fmt.Sprintf("%d, mean %.2f ms, P99 at most %.2f ms", h.Count, h.MeanMillis, h.P99Millis)
}
