package main

import (
	"testing"

	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

// The ratio is taken within each pair, and compared with the target.
func TestReport(t *testing.T) {
	pair := func(echo, xebec float64) Pair {
		return Pair{Echo: Sample{CPUMicros: echo, P50Micros: 100, P99Micros: 200, RPS: 1000}, Xebec: Sample{CPUMicros: xebec, P50Micros: 150, P99Micros: 300, RPS: 900}}
	}
	r := Report{Pairs: 3, Scenarios: []Measurement{
		{Name: "good", MaxCPURatio: 1.5, Pairs: []Pair{pair(10, 12), pair(20, 26), pair(10, 14)}}, {Name: "bad", MaxCPURatio: 1.5, Pairs: []Pair{pair(10, 16)}},
	}}
	resultstest.Contains(t, r.Markdown(),
		"| good | 10.00 | 14.00 | 1.30 (1.20–1.40) | ≤ 1.50: met | 100 | 150 | 1.50 (1.50–1.50) | 200 | 300 | 1000 | 900 |",
		"| bad | 10.00 | 16.00 | 1.60 (1.60–1.60) | ≤ 1.50: **missed** |")
}
