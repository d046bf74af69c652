package main

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

func TestParseBenchmarks(t *testing.T) {
	const text = `goos: linux
BenchmarkLookup/models=10/quiet-2         	 8289357	        30.50 ns/op	       0 B/op	       0 allocs/op
BenchmarkLookup/models=10/quiet-2         	 5600745	        38.28 ns/op	       0 B/op	       0 allocs/op
BenchmarkLookup/models=10/changing 	 3831386	        70.61 ns/op	       8 B/op	       1 allocs/op
BenchmarkOther/models=10-2 	 3831386	        70.61 ns/op	       8 B/op	       1 allocs/op
PASS
`
	got, err := parseBenchmarks(text)
	want := []Lookup{
		{Name: "models=10/quiet", Nanos: []float64{30.5, 38.28}, Bytes: []float64{0, 0}, Allocs: []float64{0, 0}},
		{Name: "models=10/changing", Nanos: []float64{70.61}, Bytes: []float64{8}, Allocs: []float64{1}},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if _, err := parseBenchmarks("PASS\n"); err == nil || !strings.Contains(err.Error(), lookupBenchmark) {
		t.Errorf("no benchmarks: error %v, expected one that names what is missing", err)
	}
}

func TestParseResident(t *testing.T) {
	got, err := parseResident("Name:\txebec\nVmHWM:\t  999 kB\nVmRSS:\t  146485 kB\nThreads:\t9\n")
	if err != nil || math.Abs(got-150.00064) > 1e-9 {
		t.Errorf("%v MB, %v: expected 150.00064", got, err)
	}
	for _, bad := range []string{"", "VmRSS: much kB\n"} {
		if _, err := parseResident(bad); err == nil {
			t.Errorf("%q: expected an error", bad)
		}
	}
}

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

func TestFailures(t *testing.T) {
	r := &loadgen.Result{
		Status: map[int]uint64{200: 100, 503: 2, 504: 3}, Defaults: 5, Wrong: 7, Unanswered: 11, Dropped: 13, Errors: map[string]uint64{"reset": 17, "refused": 19},
	}
	if got := failures(r); got != 77 {
		t.Errorf("%d failures, expected 77", got)
	}
	if got := failures(&loadgen.Result{Status: map[int]uint64{200: 100}}); got != 0 {
		t.Errorf("%d failures of a clean run", got)
	}
}

// What is applied must be what a gateway takes.
func TestManifests(t *testing.T) {
	cfg := config{worker: "/bin/worker", demo: "../../../deploy/demo/models"}
	all := []workload{workloadOf(t, cfg, 0), workloadOf(t, cfg, 1)}
	texts := []string{sleepers(3, "m"), strings.Replace(loggingManifest, "%s", `["/bin/worker"]`, 1)}
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

// workloadOf is one of the workloads, without the trained model that measuring needs.
func workloadOf(t *testing.T, cfg config, i int) workload {
	t.Helper()
	all, err := workloadsOf(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return all[i]
}

func TestAdminClient(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/traffic/changing":
			_, _ = w.Write([]byte(`{"traffic": [{"serving": "2"}]}`))
		case r.URL.Path == "/v1/models":
			_, _ = w.Write([]byte(`{"models": [{}, {}, {}]}`))
		case r.URL.Path == "/v1/apply" && r.Header.Get("Content-Type") == "application/yaml":
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error": "somebody else was faster"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	g := &gateway{admin: strings.TrimPrefix(s.URL, "http://"), client: s.Client()}
	if v, err := g.serving(t.Context(), "changing"); err != nil || v != "2" {
		t.Errorf("serving %q, %v", v, err)
	}
	if n, err := g.models(t.Context()); err != nil || n != 3 {
		t.Errorf("%d models, %v", n, err)
	}
	if err := g.apply(t.Context(), "kind: Model\n"); err == nil || !strings.Contains(err.Error(), "409") || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("apply: %v, expected the status and the text", err)
	}
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
		Lookups:  []Lookup{{Name: "models=10/quiet", Nanos: []float64{30, 32}, Bytes: []float64{0, 0}, Allocs: []float64{0, 0}}},
		Declared: []Declared{{Models: 10_000, From: "manifests", StartSeconds: 2, ReadyMegabytes: 200, SettledMegabytes: 160}, {Models: 10_000, From: "store after kill -9", StartSeconds: 4, SettledMegabytes: 100}},
		Applied:  []Applied{{Store: "bbolt", How: "one manifest", Models: 1000, Seconds: 1}, {Store: "bbolt", How: "one by one", Models: 1000, Seconds: 6}},
		Logged:   []Logged{{Name: "40 B JSON", Pairs: []LoggedPair{{PlainRPS: 1000, LoggedRPS: 950}}, LogBytes: 2e6}, {Name: "3 KiB binary", Pairs: []LoggedPair{{PlainRPS: 1000, LoggedRPS: 850, Failed: 1}}}},
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
		"| 40 B JSON | 1000 (1000–1000) | 950 (950–950) | 0.950 (0.950–0.950) | ≥ 0.9 | met | 2.0 |",
	)
	err := r.unexpected()
	if err == nil || !strings.Contains(err.Error(), "3 queries failed at a roll-out: 3 of status 503") || !strings.Contains(err.Error(), "3 KiB binary, pair 1: 1 queries failed") {
		t.Errorf("unexpected: %v", err)
	}
	if (&Report{}).unexpected() != nil || !(&Report{}).empty() || r.empty() {
		t.Error("an empty report is not taken for one")
	}
	// Parts that were not measured are not in it.
	if text := (&Report{Lookups: r.Lookups}).Markdown(); strings.Contains(text, "roll-out") || strings.Contains(text, "inference") {
		t.Errorf("parts that were not measured:\n%s", text)
	}
}

func TestReportIsKept(t *testing.T) {
	r, dir := testReport(), t.TempDir()
	if _, err := results.Write(dir, r.Name("lifecycle"), r, r.Markdown()); err != nil {
		t.Fatal(err)
	}
	got := resultstest.Read[Report](t, dir, "2026-11-22-lifecycle")
	want, _ := json.Marshal(r)
	have, _ := json.Marshal(got)
	if string(want) != string(have) {
		t.Errorf("kept %s\nread %s", want, have)
	}
}
