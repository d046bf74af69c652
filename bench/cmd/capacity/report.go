package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Rounds     int         `json:"rounds"`
	ColdStarts []ColdStart `json:"cold_starts,omitempty"`
	Sleepers   *Sleepers   `json:"sleepers,omitempty"`
	Decisions  []Decision  `json:"decisions,omitempty"`
	Steps      []Step      `json:"steps,omitempty"`
}

// Empty implements results.Report.
func (r *Report) Empty() bool {
	return len(r.ColdStarts) == 0 && r.Sleepers == nil && len(r.Decisions) == 0 && len(r.Steps) == 0
}

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("Capacity: replicas that follow demand"))
	b.WriteString("Made by `bin/capacity`; a number with brackets is a median, with the least and the most.\n")
	r.coldStarts(&b)
	r.sleepers(&b)
	r.decisions(&b)
	r.steps(&b)
	return b.String()
}

// minForP99 is how many values a 99th percentile needs. Of fewer values it would be the largest.
const minForP99 = 100

// minForStart is the number of starts after which the first one, which waited for the zygote's imports, no longer shows in the gateway's
// running mean.
const minForStart = 50

// p99 formats the 99th percentile for a table, or a dash if there are too few values.
func p99(values []float64) string {
	if len(values) < minForP99 {
		return "–"
	}
	return fmt.Sprintf("%.1f", results.Quantiles(values)(0.99))
}

func (r *Report) coldStarts(b *strings.Builder) {
	if len(r.ColdStarts) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Cold starts: the first answer of a model that sleeps\n\nBy the client's clock, in milliseconds, from the query over HTTP until its answer. The model is asked again as soon as it has no "+
		"replica (idle: %s), so that files and programs are in memory. *Gateway* is the gateway's own clock, from the query that found no replica to the answer; *start* is what it says that a start takes, from the launch until "+
		"the replica is ready, a mean of the last ones (medians).\n\n| model | starts | p50 | p90 | p95 | p99 | longest | target | | gateway | start |\n|---|---|---|---|---|---|---|---|---|---|---|\n", idle)
	for _, c := range r.ColdStarts {
		if c.NotMeasured != "" {
			fmt.Fprintf(b, "| %s | not measured: %s | | | | | | | | | |\n", c.Name, c.NotMeasured)
			continue
		}
		q := results.Quantiles(c.Millis)
		target, verdict := "", ""
		if c.MaxP50 > 0 {
			target, verdict = fmt.Sprintf("p50 ≤ %.0f", c.MaxP50), results.Verdict(q(0.5) <= c.MaxP50)
			if c.MaxP99 > 0 && len(c.Millis) >= minForP99 {
				target += fmt.Sprintf(", p99 ≤ %.0f", c.MaxP99)
				verdict += ", " + results.Verdict(q(0.99) <= c.MaxP99)
			}
		}
		start := "–"
		if len(c.StartMillis) >= minForStart {
			start = fmt.Sprintf("%.1f", results.Quantiles(c.StartMillis)(0.5))
		}
		fmt.Fprintf(b, "| %s | %d | %.1f | %.1f | %.1f | %s | %.1f | %s | %s | %.1f | %s |\n", c.Name, len(c.Millis), q(0.5), q(0.9), q(0.95), p99(c.Millis), q(1), target, verdict,
			results.Quantiles(c.GatewayMillis)(0.5), start)
	}
	r.splits(b)
}

// splits writes where the time of cold starts goes.
func (r *Report) splits(b *strings.Builder) {
	if !slices.ContainsFunc(r.ColdStarts, func(c ColdStart) bool { return len(c.Splits) > 0 }) {
		return
	}
	b.WriteString("\nWhere the time goes, in milliseconds: until the first line of the model's program runs (the gateway notices, places and launches; the fork, or the interpreter's start), what the program imports and loads, and " +
		"from then on until the answer (the worker connects and registers, evaluates, and the answer goes back).\n\n| model | starts | until it runs | imports and parameters | until the answer |\n|---|---|---|---|---|\n")
	name := ""
	for _, c := range r.ColdStarts {
		if len(c.Splits) == 0 {
			name = c.Name // what "the same" refers to
			continue
		}
		of := func(value func(Split) float64) string { return results.Spread(1, results.Each(c.Splits, value)) }
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s |\n", name, len(c.Splits), of(func(s Split) float64 { return s.UntilRuns }), of(func(s Split) float64 { return s.Loads }),
			of(func(s Split) float64 { return s.UntilAnswer }))
	}
}

func (r *Report) sleepers(b *strings.Builder) {
	s := r.Sleepers
	if s == nil {
		return
	}
	fmt.Fprintf(b, "\n## %d models that sleep\n\nThey share a directory, a command and a zygote (numpy). The gateway was ready after %.2f s. Memory is its own, resident, in 10⁶ bytes; its CPU is of one core, over %.0f s without queries.\n\n"+
		"| all asleep | memory, MB | target | | CPU, %% |\n|---|---|---|---|---|\n| before any was asked | %.0f | ≤ %d | %s | %.2f |\n| again, %.1f s after the last answer | %.0f | | | %.2f |\n",
		s.Models, s.StartSeconds, s.Before.Seconds, s.Before.Megabytes, maxAsleepMegabytes, results.Verdict(s.Before.Megabytes <= maxAsleepMegabytes), s.Before.CPUPercent,
		s.AsleepSeconds, s.After.Megabytes, s.After.CPUPercent)
	fmt.Fprintf(b, "\nModels chosen at random, each asked once; from the query until its answer, in milliseconds.\n\n| asked | woken | not answered | p50 | p90 | p99 | longest |\n|---|---|---|---|---|---|---|\n")
	for _, w := range s.Woken {
		how, q := "one after the other", results.Quantiles(w.Millis)
		if w.AtOnce > 1 {
			how = fmt.Sprintf("%d at once", w.AtOnce)
		}
		fmt.Fprintf(b, "| %s | %d | %d (%s) | %.1f | %.1f | %s | %.1f |\n", how, len(w.Millis), w.Failed, results.Verdict(w.Failed == 0), q(0.5), q(0.9), p99(w.Millis), q(1))
	}
}

func (r *Report) decisions(b *strings.Builder) {
	if len(r.Decisions) == 0 {
		return
	}
	b.WriteString("\n## Deciding for 1,000 models that want 4,000 replicas\n\nThe benchmarks of packages scheduler/planner, scheduler/placement and scheduler/autoscale.\n\n| | benchmark | µs | target | | allocations |\n|---|---|---|---|---|---|\n")
	for _, d := range r.Decisions {
		fmt.Fprintf(b, "| %s | %s | %s | ≤ %.0f | %s | %.0f |\n", d.What, d.Name, micros(d.Nanos), maxDecisionNanos/1e3, results.Verdict(results.Median(d.Nanos) <= maxDecisionNanos), results.Median(d.Allocs))
	}
}

// shownAt are the times after a step, in seconds, for which the report lists the number of replicas.
var shownAt = []float64{0, 0.5, 1, 1.5, 2, 3, 5, 10}

func (r *Report) steps(b *strings.Builder) {
	if len(r.Steps) == 0 {
		return
	}
	s := r.Steps[0]
	fmt.Fprintf(b, "\n## A load that becomes %d times what it was\n\nPoisson arrivals, from %.0f to %.0f a second, of a Python model that waits %d ms for each query and takes no processor meanwhile, so that a replica serves %d a second; at least 1 "+
		"replica, at most %d, forked from a zygote. The objective is %.0f ms, and there is no default: what cannot be answered in time fails. **The autoscaler's window is %s and its delay %s: shorter than the defaults, 1m and 30s.** The objective holds "+
		"in a window of %v in which at most %.0f %% of what was due failed or was late.\n\n"+
		"| round | missed before | first holds after, s | holds for good after, s | queries | failed | late | most replicas |\n|---|---|---|---|---|---|---|---|\n",
		stepFactor, s.BeforeRPS, s.RPS, waitMillis, 1000/waitMillis, stepMax, s.SLOMillis, scaleWindow, scaleDelay, missWindow, maxMissed*100)
	for i, s := range r.Steps {
		again := fmt.Sprintf("%.1f", s.GoodAgain)
		if s.NeverGood {
			again = fmt.Sprintf("not within %.0f", s.Seconds)
		}
		most := 0
		for _, c := range s.Replicas {
			most = max(most, c.Ready)
		}
		fmt.Fprintf(b, "| %d | %.1f %% | %.1f | %s | %d | %d (%.1f %%) | %d (%.1f %%) | %d |\n", i+1, 100*s.BeforeMissed, s.FirstGood, again, s.Queries,
			s.Failed, 100*results.Ratio(float64(s.Failed), float64(s.Queries)), s.Late, 100*results.Ratio(s.Late, s.Queries), most)
	}
	b.WriteString("\nReplicas that were ready, of those that were wanted, so many seconds after the step:\n\n")
	columns := []string{"round"}
	for _, at := range shownAt {
		columns = append(columns, fmt.Sprint(at))
	}
	results.TableHead(b, columns...)
	for i, s := range r.Steps {
		fmt.Fprintf(b, "| %d |", i+1)
		for _, at := range shownAt {
			b.WriteString(" " + s.replicasAt(at) + " |")
		}
		b.WriteByte('\n')
	}
}

// replicasAt is the first count at or after a time, or a dash if the step did not last so long.
func (s *Step) replicasAt(seconds float64) string {
	for _, c := range s.Replicas {
		if c.Seconds >= seconds {
			return fmt.Sprintf("%d of %d", c.Ready, c.Wanted)
		}
	}
	return "–"
}
