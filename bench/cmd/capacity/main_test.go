package main

import (
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/bench/internal/gobench"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

// demoFolder has the parameters and the picture that `make demo` would have made.
func demoFolder(t *testing.T, digit string) string {
	t.Helper()
	demo := t.TempDir()
	if err := os.Mkdir(filepath.Join(demo, demoModel), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{filepath.Join(demoModel, "digits.joblib"): "parameters", "digit.json": digit} {
		if err := os.WriteFile(filepath.Join(demo, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return demo
}

// The gateway must accept the manifests.
func TestManifests(t *testing.T) {
	cfg := config{worker: "/bin/worker", demo: demoFolder(t, ""), root: "../../..", image: "xebec-python:latest", starts: 200, containers: 40, declared: 3}
	folder := t.TempDir()
	models, err := sleepies(cfg, folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	boxed, err := contained(cfg, folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	bounded, preloaded, images := 0, 0, 0
	for _, m := range slices.Concat(models, boxed) {
		set, err := manifest.Decode("manifest", []byte(m.manifest))
		if err != nil || len(set.Models) != 1 || len(set.Functions) != 1 {
			t.Errorf("%s: %v\n%s", m.name, err, m.manifest)
			continue
		}
		spec := set.Models[0]
		if spec.Replicas.Min != 0 || spec.Replicas.Idle != 200*time.Millisecond {
			t.Errorf("%s: replicas %+v: it does not sleep soon", m.name, spec.Replicas)
		}
		if spec.Run.Env["MARKS"].Value != m.marks {
			t.Errorf("%s: marks in %q, expected %q", m.name, spec.Run.Env["MARKS"].Value, m.marks)
		}
		if m.maxP50 > 0 {
			bounded++
		}
		if len(spec.Preload) > 0 {
			preloaded++
		}
		if m.waits != (spec.Run.Image != "" && len(spec.Preload) > 0) {
			t.Errorf("%s: waits %v: expected it where a container has a preload", m.name, m.waits)
		}
		if spec.Run.Image != "" {
			images++
		}
	}
	if bounded != 2 || preloaded != 4 || images != 5 || models[0].maxP50 != maxColdP50 || models[0].starts != 200 || boxed[0].maxP50 != maxWarmP50 || boxed[0].starts != 40 {
		t.Errorf("%d with targets, %d with a zygote, %d in containers: %+v, %+v", bounded, preloaded, images, models, boxed)
	}
	for _, program := range []string{"marked", "printing"} {
		if _, err := os.Stat(filepath.Join(folder, program, "model.py")); err != nil {
			t.Error(err)
		}
	}
	set, err := manifest.Decode("manifest", []byte(sleepersManifest(cfg)))
	if err != nil || len(set.Models) != 3 || set.Models[2].Name != "m00002" || set.Models[0].Replicas.Min != 0 {
		t.Errorf("%+v, %v", set, err)
	}
	set, err = manifest.Decode("manifest", []byte(stepManifest(cfg)))
	if err != nil || len(set.Models) != 1 || set.Models[0].Batching.Max != 1 || set.Models[0].Replicas.Max != stepMax {
		t.Errorf("%+v, %v", set, err)
	}
}

func TestDigitBody(t *testing.T) {
	pixels := "[1" + strings.Repeat(",2", 63) + "]"
	got, err := digitBody(config{demo: demoFolder(t, `{"label": 0, "pixels": `+pixels+`}`)})
	if err != nil || string(got) != `{"input":`+pixels+`}` {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "{}", `{"label": 1, "pixels": ` + pixels + `}`} {
		if _, err := digitBody(config{demo: demoFolder(t, bad)}); err == nil || !strings.Contains(err.Error(), "make demo") {
			t.Errorf("%q: %v, expected an error that says what to do", bad, err)
		}
	}
}

func TestAsker(t *testing.T) {
	answer := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Xebec-Slo-Ms") != "20000" || r.URL.Path != "/f/predict" && r.URL.Path != "/v2/models/f/infer" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer s.Close()
	a := &asker{s.Client(), s.URL}
	answer = `{"query_id": "x", "output": 0, "default": false}`
	if q, err := a.function(t.Context(), "f", nil); err != nil || q.millis() <= 0 {
		t.Errorf("%+v, %v", q, err)
	}
	for _, answer = range []string{`{"output": 0, "default": true}`, `{"output": 3, "default": false}`, `{"default": false}`, `0`} {
		if _, err := a.function(t.Context(), "f", nil); err == nil || !strings.Contains(err.Error(), answer) {
			t.Errorf("%s was taken for a right answer: %v", answer, err)
		}
	}
	answer = `{"outputs": [{"name": "output", "data": [0]}]}`
	if _, err := a.model(t.Context(), "f", nil); err != nil {
		t.Error(err)
	}
	for _, answer = range []string{`{"outputs": [{"data": [1]}]}`, `{"outputs": [{"data": []}]}`, `{"outputs": []}`, `no`} {
		if _, err := a.model(t.Context(), "f", nil); err == nil {
			t.Errorf("%s was taken for a right answer", answer)
		}
	}
	if _, err := a.model(t.Context(), "other", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("status 404: %v", err)
	}
}

func TestSplitOf(t *testing.T) {
	began := time.Unix(1000, 0)
	q := &asked{began: began, done: began.Add(50 * time.Millisecond)}
	for _, c := range []struct {
		text string
		want Split
		ok   bool
	}{
		{"1000020000000 1000030000000", Split{20, 10, 20}, true},
		{"999999999999 1000030000000", Split{}, false}, // of the start before
		{"1000020000000 1000060000000", Split{}, false},
		{"1000030000000 1000020000000", Split{}, false},
		{"1000020000000", Split{}, false},
		{"", Split{}, false},
	} {
		if got, err := splitOf("marks", c.text, q); got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
}

// due returns answers that were due every 10 ms for two seconds. how decides the outcome of each.
func due(began time.Time, how func(second float64) (took time.Duration, right bool)) (all []answered) {
	for i := range 200 {
		at := time.Duration(i) * 10 * time.Millisecond
		took, right := how(at.Seconds())
		all = append(all, answered{began.Add(at), took, right})
	}
	return all
}

func TestRecovery(t *testing.T) {
	const quick, slow = time.Millisecond, stepSLOMillis*time.Millisecond + 1
	began := time.Unix(1000, 0)
	for _, c := range []struct {
		name         string
		how          func(second float64) (time.Duration, bool)
		first, again float64
		good         bool
	}{
		{"always in time", func(float64) (time.Duration, bool) { return quick, true }, 0, 0, true},
		{"just in time", func(float64) (time.Duration, bool) { return stepSLOMillis * time.Millisecond, true }, 0, 0, true},
		{"late for a second", func(s float64) (time.Duration, bool) { return max(quick, time.Duration((1-s)*1e12)), true }, 1, 1, true},
		{"failed until 0.6 s", func(s float64) (time.Duration, bool) { return quick, s > 0.6 }, 1, 1, true},
		{"late once more in the third window", func(s float64) (time.Duration, bool) {
			if s < 0.5 || s == 1.25 {
				return slow, true
			}
			return quick, true
		}, 0.5, 1.5, true},
		{"never", func(float64) (time.Duration, bool) { return slow, true }, 2, 2, false},
		{"good, and bad in the end", func(s float64) (time.Duration, bool) { return quick, s < 1.5 }, 0, 2, false},
	} {
		if first, again, good := recovery(due(began, c.how), began, 2*time.Second); first != c.first || again != c.again || good != c.good {
			t.Errorf("%s: first good after %v, again after %v, %v; expected %v, %v, %v", c.name, first, again, good, c.first, c.again, c.good)
		}
	}
	// One in a hundred may be late. Queries that were due before the step or after the end do not count.
	all := make([]answered, 0, 102)
	for i := range 100 {
		all = append(all, answered{began, quick, i > 0})
	}
	all = append(all, answered{began.Add(-time.Millisecond), slow, false}, answered{began.Add(time.Second), slow, false})
	if first, again, good := recovery(all, began, time.Second); first != 0 || again != 0 || !good {
		t.Errorf("one of a hundred: first good after %v, again after %v, %v", first, again, good)
	}
}

func rising(n int) (values []float64) {
	for i := range n {
		values = append(values, float64(i+1))
	}
	return values
}

func testReport() *Report {
	return &Report{
		Taken: results.Taken{When: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}, Rounds: 2,
		ColdStarts: []ColdStart{
			{Name: "forked", MaxP50: maxColdP50, MaxP99: maxColdP99, Millis: rising(300), GatewayMillis: rising(199), StartMillis: rising(99)},
			{Name: "the same", Millis: rising(4), GatewayMillis: rising(4), StartMillis: rising(4), Splits: []Split{{20, 10, 5}, {30, 12, 7}}},
			{Name: "contained", NotMeasured: "no engine"},
		},
		Sleepers: &Sleepers{
			Models: 10_000, StartSeconds: 2, Before: Asleep{140, 0.5, 10}, After: Asleep{160, 0.6, 10}, AsleepSeconds: 1.5,
			Woken: []Woken{{AtOnce: 1, Millis: rising(100)}, {AtOnce: 20, Millis: rising(98), Failed: 2}},
		},
		Decisions: []Decision{{"a plan", gobench.Benchmark{Name: "Plan/busy", Nanos: []float64{9e5, 1.2e6, 8e5}, Bytes: []float64{0, 0, 0}, Allocs: []float64{0, 0, 0}}}},
		Steps: []Step{
			{
				BeforeRPS: 20, RPS: 400, SLOMillis: 100, Seconds: 15, BeforeMissed: 0.02, Queries: 6000, Failed: 300, Late: 60, FirstGood: 1, GoodAgain: 1.5,
				Replicas: []Counted{{Seconds: 0.01, Ready: 1, Wanted: 1}, {Seconds: 0.9, Ready: 8, Wanted: 12, Panic: true}, {Seconds: 4, Ready: 12, Wanted: 11}},
			},
			{Seconds: 15, FirstGood: 15, GoodAgain: 15, NeverGood: true, Queries: 6000, Failed: 6000},
		},
	}
}

func TestReport(t *testing.T) {
	r := testReport()
	resultstest.Contains(t, r.Markdown(),
		"| forked | 300 | 150.0 | 270.0 | 285.0 | 297.0 | 300.0 | p50 ≤ 100, p99 ≤ 250 | **missed**, **missed** | 100.0 | 50.0 |",
		"| the same | 4 | 2.0 | 4.0 | 4.0 | – | 4.0 |  |  | 2.0 | – |",
		"| contained | not measured: no engine |",
		"| forked | 2 | 25.0 (20.0–30.0) | 11.0 (10.0–12.0) | 6.0 (5.0–7.0) |",
		"| before any was asked | 140 | ≤ 150 | met | 0.50 |",
		"| again, 1.5 s after the last answer | 160 | | | 0.60 |",
		"| one after the other | 100 | 0 (met) | 50.0 | 90.0 | 99.0 | 100.0 |",
		"| 20 at once | 98 | 2 (**missed**) | 49.0 | 89.0 | – | 98.0 |",
		"| a plan | Plan/busy | 900.0 (800.0–1200.0) | ≤ 1000 | met | 0 |",
		"window is 10s and its delay 5s: shorter than the defaults",
		"| 1 | 2.0 % | 1.0 | 1.5 | 6000 | 300 (5.0 %) | 60 (1.0 %) | 12 |",
		"| 2 | 0.0 % | 15.0 | not within 15 | 6000 | 6000 (100.0 %) |",
		"| 1 | 1 of 1 | 8 of 12 | 12 of 11 | 12 of 11 | 12 of 11 | 12 of 11 | – | – |",
	)
	if !(&Report{}).Empty() || r.Empty() {
		t.Error("an empty report is not taken for one")
	}
	// The report leaves out parts that were not measured.
	if text := (&Report{Decisions: r.Decisions}).Markdown(); strings.Contains(text, "Cold") || strings.Contains(text, "sleep") || strings.Contains(text, "Poisson") {
		t.Errorf("parts that were not measured:\n%s", text)
	}
	// There is no p99 of few values, and no verdict on it.
	r.ColdStarts[0].Millis = rising(50)
	resultstest.Contains(t, r.Markdown(), "| forked | 50 | 25.0 | 45.0 | 48.0 | – | 50.0 | p50 ≤ 100 | met |")
}

func TestReportIsKept(t *testing.T) {
	resultstest.Kept(t, testReport(), "capacity")
}

func TestCell(t *testing.T) {
	if got := cell("a | b\n  c"); got != "a / b c" {
		t.Errorf("%q", got)
	}
	if q := results.Quantiles[float64](nil)(0.5); !math.IsNaN(q) {
		t.Errorf("median of none: %v", q)
	}
}
