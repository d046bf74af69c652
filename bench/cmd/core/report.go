package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/gobench"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Rounds       int                 `json:"rounds"`
	BenchSeconds float64             `json:"bench_seconds"`
	Scheduler    []gobench.Benchmark `json:"scheduler"`
	Path         []gobench.Benchmark `json:"path"`
	Plans        []gobench.Benchmark `json:"plans"`
}

// maxPlanNanos is the target for a plan: a tenth of an epoch.
const maxPlanNanos = 1e6

// minPathRates are targets in queries a second on one core, by benchmark.
var minPathRates = map[string]float64{
	"Core/single_of_1,_cache_0_MiB":  1.2e6,
	"Core/single_of_1,_cache_64_MiB": 1e6,
	"Core/exp3_of_4,_cache_64_MiB":   1e6,
	"Core/exp4_of_4,_cache_64_MiB":   0.4e6,
}

// Empty implements results.Report.
func (r *Report) Empty() bool { return len(r.Scheduler) == 0 && len(r.Path) == 0 && len(r.Plans) == 0 }

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("The core: scheduler, path and planner, in one process on one core"))
	fmt.Fprintf(&b, "Made by `bin/core`: %d runs of %g s of each benchmark, in turns, with GOMAXPROCS=1; medians, with the least and the most in brackets. A rate is 1 s by the CPU time of a query, which "+
		"includes the garbage collector; *by the clock* is the same of the elapsed time, which other users of the machine lengthen.\n", r.Rounds, r.BenchSeconds)
	r.rates(&b, "The scheduler alone", "A query from its arrival to its end in package scheduler, without goroutines and clock.", r.Scheduler, nil)
	r.rates(&b, "The path of a query", "Without HTTP, JSON and models: look-up, selection, miss in a full cache, queue, batch, combination, filling of the cache, record for feedback. One query at a time.", r.Path, minPathRates)
	b.WriteString("\n## A plan for 1,000 models with 4,000 replicas\n\n")
	results.TableHead(&b, "load", "CPU, ms", "by the clock, ms", "target", "", "allocations")
	for _, p := range r.Plans {
		cpu := scaled(p.CPU, 1e6)
		fmt.Fprintf(&b, "| %s | %s | %s | ≤ %g | %s | %g |\n", p.Name[strings.LastIndex(p.Name, "/")+1:], results.Spread(2, cpu), results.Spread(2, scaled(p.Nanos, 1e6)), maxPlanNanos/1e6,
			results.Verdict(results.Median(cpu) <= maxPlanNanos/1e6), results.Median(p.Allocs))
	}
	return b.String()
}

func (r *Report) rates(w io.Writer, title, what string, all []gobench.Benchmark, targets map[string]float64) {
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", title, what)
	results.TableHead(w, "benchmark", "million queries/s", "by the clock", "target", "", "allocations")
	for _, q := range all {
		rate := results.Each(q.CPU, millionsPerSecond)
		target, verdict := "–", ""
		if least, ok := targets[q.Name]; ok {
			target, verdict = fmt.Sprintf("≥ %g", least/1e6), results.Verdict(results.Median(rate) >= least/1e6)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %g |\n", strings.ReplaceAll(q.Name[strings.Index(q.Name, "/")+1:], "_", " "), results.Spread(2, rate),
			results.Spread(2, results.Each(q.Nanos, millionsPerSecond)), target, verdict, results.Median(q.Allocs))
	}
}

func millionsPerSecond(nanos float64) float64 { return 1e3 / nanos }

func scaled(values []float64, by float64) []float64 {
	return results.Each(values, func(v float64) float64 { return v / by })
}
