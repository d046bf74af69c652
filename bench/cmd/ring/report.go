package main

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Rounds          int           `json:"rounds"`
	DurationSeconds float64       `json:"duration_seconds"`
	Loads           []Measurement `json:"loads"`
}

// Measurement holds one load's samples: a map from way to sample for each round.
type Measurement struct {
	Load   Load                `json:"load"`
	Rounds []map[string]Sample `json:"rounds"`
}

// Sample is one run.
type Sample struct {
	PerSecond float64 `json:"calls_per_second"`
	P50Micros float64 `json:"p50_us"`
	P99Micros float64 `json:"p99_us"`
}

// target returns the project's target as a ratio to the socket: the least rate of calls, or the largest p50. 0 means no target.
func target(l Load) (perSecond, p50 float64) {
	switch {
	case l.InFlight == 1:
		return 0, 0.8
	case l.RequestBytes > 64<<10:
		return 3, 0
	}
	return 2, 0
}

// Empty implements results.Report.
func (r *Report) Empty() bool { return len(r.Loads) == 0 }

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("The ring against a unix stream socket"))
	fmt.Fprintf(&b, "Go to a compiled Go worker in another process; %d rounds of %gs each, medians; × is the ratio to the socket within a round (least and most in brackets). ", r.Rounds, r.DurationSeconds)
	b.WriteString("*socket*: one write per message. *ring*: package shm alone. *worker*: the gateway's transport with all its checks, and the Go binding. How: ../METHOD.md.\n\n")
	b.WriteString("| calls | | socket | ring | × | worker | × | target for × |\n|---|---|---|---|---|---|---|---|\n")
	for i := range r.Loads {
		m := &r.Loads[i]
		perSecond, p50 := target(m.Load)
		value, unit, goal := func(s Sample) float64 { return s.PerSecond / 1e3 }, "thousands/s", fmt.Sprintf("≥ %.1f", perSecond)
		if p50 > 0 {
			value, unit, goal = func(s Sample) float64 { return s.P50Micros }, "p50, µs", fmt.Sprintf("≤ %.1f", p50)
		}
		of := func(way string) float64 {
			return results.Median(results.Each(m.Rounds, func(round map[string]Sample) float64 { return value(round[way]) }))
		}
		ratio := func(way string) string {
			return results.Spread(2, results.Each(m.Rounds, func(round map[string]Sample) float64 { return value(round[way]) / value(round["socket"]) }))
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %.1f | %s | %.1f | %s | %s |\n", m.Load, unit, of("socket"), of("ring"), ratio("ring"), of("worker"), ratio("worker"), goal)
	}
	return b.String()
}
