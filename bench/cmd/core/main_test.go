package main

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gobench"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

func example() *Report {
	none := []float64{0, 0, 0}
	return &Report{
		Taken: results.Taken{When: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}, Rounds: 3, BenchSeconds: 0.5,
		Scheduler: []gobench.Benchmark{{Name: "Queries/1_at_once,_1_functions,_mixed_false", Nanos: []float64{250, 500, 200}, CPU: []float64{200, 250, 100}, Bytes: none, Allocs: none}},
		Path:      []gobench.Benchmark{{Name: "Core/exp4_of_4,_cache_64_MiB", Nanos: []float64{5000, 5000, 5000}, CPU: []float64{4000, 2000, 5000}, Bytes: none, Allocs: none}},
		Plans: []gobench.Benchmark{
			{Name: "Plan/1000x4000/quiet", Nanos: []float64{4e6, 1e6, 2e6}, CPU: []float64{1e6, 9e5, 1.1e6}, Bytes: none, Allocs: none},
			{Name: "Plan/1000x4000/busy", Nanos: []float64{4e6, 1e6, 2e6}, CPU: []float64{1.2e6, 9e5, 1.1e6}, Bytes: none, Allocs: none},
		},
	}
}

func TestReport(t *testing.T) {
	r := example()
	resultstest.Kept(t, r, "core")
	resultstest.Contains(t, r.Markdown(),
		"| 1 at once, 1 functions, mixed false | 5.00 (4.00–10.00) | 4.00 (2.00–5.00) | – |  | 0 |",
		"| exp4 of 4, cache 64 MiB | 0.25 (0.20–0.50) | 0.20 (0.20–0.20) | ≥ 0.4 | **missed** | 0 |",
		"| quiet | 1.00 (0.90–1.10) | 2.00 (1.00–4.00) | ≤ 1 | met | 0 |",
		"| busy | 1.10 (0.90–1.20) | 2.00 (1.00–4.00) | ≤ 1 | **missed** | 0 |",
	)
	if !(&Report{}).Empty() || r.Empty() {
		t.Error("a report is empty if and only if it has no measurement")
	}
}

// TestMeasure runs the real benchmarks for a moment: each package has them, they report CPU time, and each has a target that knows its name.
func TestMeasure(t *testing.T) {
	r, err := measure(t.Context(), config{gotool: "go", root: "../../..", rounds: 1, benchtime: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Scheduler) < 2 || len(r.Path) != len(minPathRates) || len(r.Plans) != 4 {
		t.Errorf("%d benchmarks of the scheduler, %d of the path, %d plans", len(r.Scheduler), len(r.Path), len(r.Plans))
	}
	for _, q := range r.Path {
		if minPathRates[q.Name] == 0 {
			t.Errorf("no target for %s", q.Name)
		}
	}
	for _, all := range [][]gobench.Benchmark{r.Scheduler, r.Path, r.Plans} {
		for _, q := range all {
			if len(q.CPU) != 1 {
				t.Errorf("%s: CPU times %v, expected one", q.Name, q.CPU)
			}
		}
	}
}
