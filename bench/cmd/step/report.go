package main

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Callers   int       `json:"callers"`
	Sequences int       `json:"sequences"` // of each run
	Outputs   int       `json:"outputs"`   // of all of them
	Longest   int       `json:"longest"`
	Seed      uint64    `json:"seed"`
	Settings  []Setting `json:"settings"`
}

// Empty implements results.Report.
func (r *Report) Empty() bool { return len(r.Settings) == 0 }

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("Iteration-level batching against batches of whole requests"))
	fmt.Fprintf(&b, "Made by `bin/step`. A toy of a recurrent model, whose step of n sequences takes %v + n × %v, in one Python replica: *step* is `xebec.serve` with `step` and streams, "+
		"*whole* answers a batch when its longest sequence has ended. A closed loop of %d callers over HTTP; each run has the same %d sequences with %d outputs in all, the longest of %d (geometric, mean %d). "+
		"Numbers with brackets are medians of interleaved pairs, with the least and the most; ratios are taken within a pair. *Ideal* is arithmetic: the same sequences, if steps took exactly that time and everything else none.\n",
		stepFixed, stepEach, r.Callers, r.Sequences, r.Outputs, r.Longest, meanLength)
	b.WriteString("\n## Throughput\n\n")
	results.TableHead(&b, "places", "pairs", "requests/s, whole", "step", "outputs/s, whole", "step", "step ÷ whole", "ideal", "of the ideal, whole", "of the ideal, step")
	requests := func(r Run) float64 { return r.RequestsPerS }
	for _, s := range r.Settings {
		outputs := func(r Run) float64 { return r.OutputsPerS }
		fmt.Fprintf(&b, "| %d | %d | %s | %s | %s | %s | %s | %.2f | %s | %s |\n", s.Places, len(s.Pairs), s.whole(1, requests), s.step(1, requests), s.whole(0, outputs), s.step(0, outputs),
			s.ratio(2, requests), requests(s.Ideal.Step)/requests(s.Ideal.Whole), s.ofIdeal(requests, false), s.ofIdeal(requests, true))
	}
	b.WriteString("\n## Latency\n\nIn milliseconds, from the request: until the first output, and until the last. A whole request's first output comes with its last.\n\n")
	results.TableHead(&b, "places", "", "whole", "ideal", "step", "ideal", "step ÷ whole", "ideal")
	for _, s := range r.Settings {
		for _, row := range []struct {
			name  string
			value func(Run) float64
		}{
			{"p50", func(r Run) float64 { return r.P50Millis }},
			{"p99", func(r Run) float64 { return r.P99Millis }},
			{"first output, p50", func(r Run) float64 { return r.FirstP50Millis }},
			{"first output, p99", func(r Run) float64 { return r.FirstP99Millis }},
		} {
			fmt.Fprintf(&b, "| %d | %s | %s | %.0f | %s | %.0f | %s | %.2f |\n", s.Places, row.name, s.whole(0, row.value), row.value(s.Ideal.Whole), s.step(0, row.value), row.value(s.Ideal.Step),
				s.ratio(2, row.value), row.value(s.Ideal.Step)/row.value(s.Ideal.Whole))
		}
	}
	b.WriteString("\n## CPU time\n\nIn microseconds for each output. The model's steps sleep, so the replica's is the binding's.\n\n")
	results.TableHead(&b, "places", "gateway, whole", "step", "replica, whole", "step")
	for _, s := range r.Settings {
		ofGateway, ofReplica := func(r Run) float64 { return r.GatewayMicros }, func(r Run) float64 { return r.ReplicaMicros }
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s |\n", s.Places, s.whole(1, ofGateway), s.step(1, ofGateway), s.whole(1, ofReplica), s.step(1, ofReplica))
	}
	return b.String()
}

func (s *Setting) step(digits int, value func(Run) float64) string {
	return results.Spread(digits, results.Each(s.Pairs, func(p Pair) float64 { return value(p.Step) }))
}

func (s *Setting) whole(digits int, value func(Run) float64) string {
	return results.Spread(digits, results.Each(s.Pairs, func(p Pair) float64 { return value(p.Whole) }))
}

// ratio is of step to whole within each pair.
func (s *Setting) ratio(digits int, value func(Run) float64) string {
	return results.Spread(digits, results.Each(s.Pairs, func(p Pair) float64 { return value(p.Step) / value(p.Whole) }))
}

// ofIdeal is what part of the ideal was reached.
func (s *Setting) ofIdeal(value func(Run) float64, step bool) string {
	return results.Spread(2, results.Each(s.Pairs, func(p Pair) float64 {
		if step {
			return value(p.Step) / value(s.Ideal.Step)
		}
		return value(p.Whole) / value(s.Ideal.Whole)
	}))
}
