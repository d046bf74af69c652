package main

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/bench/internal/gobench"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

func TestAnswers(t *testing.T) {
	begin := time.Unix(1000, 0)
	var all answers
	for i := range 200 {
		all = append(all, one{begin.Add(time.Duration(i) * time.Second), float64(200 - i)})
	}
	first := all.until(begin.Add(100 * time.Second))
	if len(first) != 100 {
		t.Fatalf("%d answers before the moment, expected 100", len(first))
	}
	if p50, p99 := first.quantiles(); p50 != 150 || p99 != 199 {
		t.Errorf("P50 %v and P99 %v of 101 to 200, expected 150 and 199", p50, p99)
	}
	if p50, _ := answers(nil).quantiles(); !math.IsNaN(p50) {
		t.Errorf("P50 %v of none", p50)
	}
}

// The gateway must accept the manifests.
func TestManifests(t *testing.T) {
	cfg := config{worker: "/bin/worker", demo: "../../../deploy/demo/models"}
	all := []workload{workloadOf(t, cfg, 0), workloadOf(t, cfg, 1)}
	texts := []string{sleepers(3, "m"), strings.Replace(loggingManifest, "%s", `["/bin/worker"]`, 1), strings.Replace(takeoverModels, "%s", `["/bin/worker"]`, 1)}
	for _, w := range all {
		texts = append(texts, w.manifest(7)+declarations)
	}
	for _, text := range texts {
		if _, err := manifest.Decode("manifest", []byte(text)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	set, err := manifest.Decode("manifest", []byte(sleepers(3, "m")))
	if err != nil || len(set.Models) != 3 || set.Models[2].Name != "m00002" || set.Models[0].Replicas.Min != 0 {
		t.Errorf("%+v, %v", set, err)
	}
}

// workloadOf returns a workload without the trained model that measuring needs.
func workloadOf(t *testing.T, cfg config, i int) workload {
	t.Helper()
	all, err := workloadsOf(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return all[i]
}

func TestPing(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if err := ping(s.Listener.Addr().String()); err == nil {
		t.Error("an HTTP server was taken for Redis")
	}
}

func testReport() *Report {
	return &Report{
		Taken: results.Taken{When: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}, Rounds: 2, WindowSeconds: 5, Connections: 32,
		Rollouts: []Rollout{{Workload: "SVM", Load: "open", RateRPS: 700, Changes: []Change{
			{Kind: "roll-out", QuietP99: 10, P99: 12, ServeSeconds: 3}, {Kind: "rollback", QuietP99: 10, P99: 20, ServeSeconds: 2},
			{Kind: "roll-out", QuietP99: 10, P99: 14, ServeSeconds: 5, Failed: 3, FailedWhy: "3 of status 503"}, {Kind: "rollback", QuietP99: 10, P99: 30, ServeSeconds: 2},
		}}},
		Lookups:  []gobench.Benchmark{{Name: "models=10/quiet", Nanos: []float64{30, 32}, Bytes: []float64{0, 0}, Allocs: []float64{0, 0}}},
		Declared: []Declared{{Models: 10_000, From: "manifests", StartSeconds: 2, ReadyMegabytes: 200, SettledMegabytes: 160}, {Models: 10_000, From: "store after kill -9", StartSeconds: 4, SettledMegabytes: 100}},
		Applied:  []Applied{{Store: "bbolt", How: "one manifest", Models: 1000, Seconds: 1}, {Store: "bbolt", How: "one by one", Models: 1000, Seconds: 6}},
		Logged: []Logged{{Name: "40 B JSON", Pairs: []LoggedPair{{PlainRPS: 1000, LoggedRPS: 950}}, LogBytes: 2e6}, {Name: "3 KiB binary", Pairs: []LoggedPair{{PlainRPS: 1000, LoggedRPS: 850, Failed: 1}}},
			{Name: "3 KiB of noise", Pairs: []LoggedPair{{PlainRPS: 1000, LoggedRPS: 800, FloorRPS: 920}}}},
		Takeovers: []Takeover{{Kind: "none", Kept: Half{Queries: 5000, P50: 0.5, P99: 2, Max: 9}, Fresh: Half{Queries: 5000, P50: 0.7, P99: 3, Max: 8}},
			{Kind: "takeover", Seconds: 0.5, EndSeconds: 2.75, Kept: Half{Queries: 5100, P50: 0.5, P99: 4, Max: 19}, Fresh: Half{Queries: 4900, Failed: 2, FailedWhy: "2 × reset", P50: 0.75, P99: 5, Max: 29}}},
	}
}

func TestReport(t *testing.T) {
	r := testReport()
	resultstest.Contains(t, r.Markdown(),
		"| SVM | open, 700/s | roll-out | 10.00 (10.00–10.00) | 13.00 (12.00–14.00) | 1.30 (1.20–1.40) | ≤ 1.5 | met | 3 (**missed**) | 4.00 (3.00–5.00) |",
		"| rollback | 10.00 (10.00–10.00) | 25.00 (20.00–30.00) | 2.50 (2.00–3.00) | ≤ 1.5 | **missed** | 0 (met) |",
		"| models=10/quiet | 31.0 (30.0–32.0) | 0 | 0 |",
		"| manifests | 2.00 (2.00–2.00) | ≤ 3 | met | 200 (200–200) | 160 (160–160) | ≤ 150 | **missed** |",
		"| store after kill -9 | 4.00 (4.00–4.00) | ≤ 3 | **missed** |",
		"| bbolt | one by one | 6.00 (6.00–6.00) | ≤ 5 | **missed** |",
		"| 40 B JSON | 1000 (1000–1000) | 950 (950–950) | 0.950 (0.950–0.950) | ≥ 0.95 | met | 2.0 | – | 5.0 % |",
		"| 3 KiB of noise | 1000 (1000–1000) | 800 (800–800) | 0.800 (0.800–0.800) | ≥ 0.95 | **missed** | 0.0 | 0.920 (0.920–0.920) | 20.0 %, 2.5 × |",
		"| 1 | 0.50 | 2.75 | 5100 | 0.50 | 4.00 | 19.0 | 0 | 4900 | 0.75 | 5.00 | 29.0 | 2 |", "Failed: 2 of 20000 (**missed**).",
	)
	err := r.unexpected()
	if err == nil || !strings.Contains(err.Error(), "3 queries failed at a roll-out: 3 of status 503") || !strings.Contains(err.Error(), "3 KiB binary, pair 1: 1 queries failed") || !strings.Contains(err.Error(), "takeover 1: 2 queries failed: kept connections: none; fresh ones: 2 × reset") {
		t.Errorf("unexpected: %v", err)
	}
	if (&Report{}).unexpected() != nil || !(&Report{}).Empty() || r.Empty() {
		t.Error("an empty report is not taken for one")
	}
	// The report leaves out parts that were not measured.
	if text := (&Report{Lookups: r.Lookups}).Markdown(); strings.Contains(text, "roll-out") || strings.Contains(text, "inference") {
		t.Errorf("parts that were not measured:\n%s", text)
	}
}

func TestReportIsKept(t *testing.T) {
	resultstest.Kept(t, testReport(), "lifecycle")
}
