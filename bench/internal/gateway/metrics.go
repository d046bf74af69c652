package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Metrics returns the gateway's metrics in Prometheus's text format.
func (g *Gateway) Metrics(ctx context.Context) (string, error) {
	text, err := g.fetch(ctx, http.MethodGet, "/metrics", "", "")
	return string(text), err
}

// Sample is one line of Prometheus's text format.
type Sample struct {
	Name   string // up to the labels
	Series string // name and labels
	Value  float64
}

// Label returns a label's value, or "" if the sample has none of that name.
func (s *Sample) Label(name string) string {
	_, rest, _ := strings.Cut(s.Series, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Samples returns the labelled samples whose name starts with prefix and whose series contains each of the labels (`model="a"`).
func Samples(text, prefix string, labels ...string) ([]Sample, error) {
	var out []Sample
lines:
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(series, prefix) {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue lines
			}
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %s: %w", strings.TrimSpace(line), err)
		}
		name, _, _ := strings.Cut(series, "{")
		out = append(out, Sample{name, series, number})
	}
	return out, nil
}
