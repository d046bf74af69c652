package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report is everything that was measured; its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Rounds     int         `json:"rounds"`
	ColdStarts []ColdStart `json:"cold_starts,omitempty"`
	Sleepers   *Sleepers   `json:"sleepers,omitempty"`
	Decisions  []Decision  `json:"decisions,omitempty"`
	Steps      []Step      `json:"steps,omitempty"`
}

func (r *Report) empty() bool {
	return len(r.ColdStarts) == 0 && r.Sleepers == nil && len(r.Decisions) == 0 && len(r.Steps) == 0
}

// Markdown is the report for people: the parts that were measured.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("Capacity: replicas that follow demand"))
	b.WriteString("Made by `bin/capacity`; where a number has brackets it is a median, with the least and the most.\n")
	for _, part := range []struct {
		there bool
		write func(*strings.Builder)
	}{
		{len(r.ColdStarts) > 0, r.coldStarts}, {r.Sleepers != nil, r.sleepers}, {len(r.Decisions) > 0, r.decisions}, {len(r.Steps) > 0, r.steps},
	} {
		if part.there {
			part.write(&b)
		}
	}
	return b.String()
}

// quantilesOf are the quantiles of values in any order.
func quantilesOf(values []float64) func(q float64) float64 {
	rising := slices.Sorted(slices.Values(values))
	return func(q float64) float64 { return results.Quantile(rising, q) }
}

// minForP99 is how many values a 99th percentile takes: of fewer it is the largest of them.
const minForP99 = 100

// minForStart is after how many starts the gateway's mean has forgotten the first one, which waited for the zygote's imports.
const minForStart = 50

// p99 is the 99th percentile for a table; a dash where there are too few values.
func p99(values []float64) string {
	if len(values) < minForP99 {
		return "–"
	}
	return fmt.Sprintf("%.1f", quantilesOf(values)(0.99))
}

func (r *Report) coldStarts(b *strings.Builder) {
	fmt.Fprintf(b, "\n## Cold starts: the first answer of a model that sleeps\n\nBy the client's clock, in milliseconds, from the query over HTTP until its answer. The model is asked again as soon as it has no "+
		"replica (idle: %s), so that files and programs are in memory. *Gateway* is the gateway's own clock, from the query that found no replica to the answer; *start* is what it says that a start takes, from the launch until "+
		"the replica is ready, a mean of the last ones (medians).\n\n| model | starts | p50 | p90 | p99 | longest | target | | gateway | start |\n|---|---|---|---|---|---|---|---|---|---|\n", idle)
	for _, c := range r.ColdStarts {
		if c.NotMeasured != "" {
			fmt.Fprintf(b, "| %s | not measured: %s | | | | | | | | |\n", c.Name, c.NotMeasured)
			continue
		}
		q := quantilesOf(c.Millis)
		target, verdict := "", ""
		if c.Bounded {
			target, verdict = fmt.Sprintf("p50 ≤ %d", maxColdP50), results.Verdict(q(0.5) <= maxColdP50)
			if len(c.Millis) >= minForP99 {
				target += fmt.Sprintf(", p99 ≤ %d", maxColdP99)
				verdict += ", " + results.Verdict(q(0.99) <= maxColdP99)
			}
		}
		start := "–"
		if len(c.StartMillis) >= minForStart {
			start = fmt.Sprintf("%.1f", quantilesOf(c.StartMillis)(0.5))
		}
		fmt.Fprintf(b, "| %s | %d | %.1f | %.1f | %s | %.1f | %s | %s | %.1f | %s |\n", c.Name, len(c.Millis), q(0.5), q(0.9), p99(c.Millis), q(1), target, verdict,
			quantilesOf(c.GatewayMillis)(0.5), start)
	}
	r.splits(b)
}

// splits are where the time of cold starts goes.
func (r *Report) splits(b *strings.Builder) {
	if !slices.ContainsFunc(r.ColdStarts, func(c ColdStart) bool { return len(c.Splits) > 0 }) {
		return
	}
	b.WriteString("\nWhere the time goes, in milliseconds: until the first line of the model's program runs (the gateway notices, places and launches; the fork, or the interpreter's start), what the program imports and loads, and " +
		"from then on until the answer (the worker connects and registers, evaluates, and the answer goes back).\n\n| model | starts | until it runs | imports and parameters | until the answer |\n|---|---|---|---|---|\n")
	name := ""
	for _, c := range r.ColdStarts {
		if len(c.Splits) == 0 {
			name = c.Name // the one that "the same" means
			continue
		}
		of := func(value func(Split) float64) string { return results.Spread(1, results.Each(c.Splits, value)) }
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s |\n", name, len(c.Splits), of(func(s Split) float64 { return s.UntilRuns }), of(func(s Split) float64 { return s.Loads }),
			of(func(s Split) float64 { return s.UntilAnswer }))
	}
}

func (r *Report) sleepers(b *strings.Builder) {
	s := r.Sleepers
	fmt.Fprintf(b, "\n## %d models that sleep\n\nThey share a directory, a command and a zygote (numpy). The gateway was ready after %.2f s. Memory is its own, resident, in 10⁶ bytes; its CPU is of one core, over %.0f s in which nobody asked.\n\n"+
		"| all asleep | memory, MB | target | | CPU, %% |\n|---|---|---|---|---|\n| before any was asked | %.0f | ≤ %d | %s | %.2f |\n| again, %.1f s after the last answer | %.0f | | | %.2f |\n",
		s.Models, s.StartSeconds, s.Before.Seconds, s.Before.Megabytes, maxAsleepMegabytes, results.Verdict(s.Before.Megabytes <= maxAsleepMegabytes), s.Before.CPUPercent,
		s.AsleepSeconds, s.After.Megabytes, s.After.CPUPercent)
	fmt.Fprintf(b, "\nModels chosen at random, each asked once; from the query until its answer, in milliseconds.\n\n| asked | woken | not answered | p50 | p90 | p99 | longest |\n|---|---|---|---|---|---|---|\n")
	for _, w := range s.Woken {
		how, q := "one after the other", quantilesOf(w.Millis)
		if w.AtOnce > 1 {
			how = fmt.Sprintf("%d at once", w.AtOnce)
		}
		fmt.Fprintf(b, "| %s | %d | %d (%s) | %.1f | %.1f | %s | %.1f |\n", how, len(w.Millis), w.Failed, results.Verdict(w.Failed == 0), q(0.5), q(0.9), p99(w.Millis), q(1))
	}
}

func (r *Report) decisions(b *strings.Builder) {
	b.WriteString("\n## Deciding for 1,000 models that want 4,000 replicas\n\nThe benchmarks of packages scheduler/planner, scheduler/placement and scheduler/autoscale.\n\n| | benchmark | µs | target | | allocations |\n|---|---|---|---|---|---|\n")
	for _, d := range r.Decisions {
		fmt.Fprintf(b, "| %s | %s | %s | ≤ %.0f | %s | %.0f |\n", d.What, d.Name, micros(d.Nanos), maxDecisionNanos/1e3, results.Verdict(results.Median(d.Nanos) <= maxDecisionNanos), results.Median(d.Allocs))
	}
}

// shownAt are the moments after a step, in seconds, at which the report says how many replicas there were.
var shownAt = []float64{0, 0.5, 1, 1.5, 2, 3, 5, 10}

func (r *Report) steps(b *strings.Builder) {
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
			s.Failed, percent(int(s.Failed), s.Queries), s.Late, percent(s.Late, s.Queries), most)
	}
	b.WriteString("\nReplicas that were ready, of those that were wanted, so many seconds after the step:\n\n| round |")
	for _, at := range shownAt {
		fmt.Fprintf(b, " %g |", at)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(shownAt)) + "\n")
	for i, s := range r.Steps {
		fmt.Fprintf(b, "| %d |", i+1)
		for _, at := range shownAt {
			b.WriteString(" " + s.replicasAt(at) + " |")
		}
		b.WriteByte('\n')
	}
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(1, whole)) }

// replicasAt is what was counted first from a moment on; a dash where the step did not last so long.
func (s *Step) replicasAt(seconds float64) string {
	for _, c := range s.Replicas {
		if c.Seconds >= seconds {
			return fmt.Sprintf("%d of %d", c.Ready, c.Wanted)
		}
	}
	return "–"
}
