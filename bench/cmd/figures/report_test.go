package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

func sampleReport() *Report {
	linear := points(1, 0.2, 2, 0.3, 8192, 10, 16384, 30)
	kernel := points(1, 0.7, 32, 18, 64, 38)
	profile := func(name, title string, p []ProfilePoint) Profile {
		out := Profile{Model: name, Title: title, What: "something", Points: p, Line: fitLine(p)}
		out.Largest, out.Beyond = largestWithin(p, objectiveMillis)
		out.ByRound = []int{out.Largest, out.Largest * 9 / 10, out.Largest * 11 / 10}
		return out
	}
	aimd := strategy("aimd", 0, 20.5, 100000, 90000, 110000)
	aimd.SettledSeconds, aimd.SettledCap, aimd.LateShare, aimd.Batches = 1.25, 2000, 0.013, 1000
	slow := strategy("aimd", 0, 19, 1500, 1500, 1500)
	slow.SettledSeconds, slow.SettledCap, slow.LateShare, slow.Batches = 1, 30, 0.05, 1000
	delay := func(millis, qps, busy float64) Delay {
		sample := DelaySample{QPS: qps, MeanBatch: 2, P50Millis: 1, P99Millis: 2 + millis, CPUMicros: 10, Busy: busy}
		return Delay{HoldMillis: millis, Rounds: []DelaySample{sample, sample}}
	}
	for _, s := range []*Strategy{&aimd, &slow} {
		s.Finals = s.Rounds
	}
	quick, slight := strategy("static 1000", 1000, 12, 80000, 90000, 100000), strategy("static 20", 20, 12, 2000, 2000, 2000)
	quick.Batches, slight.Batches = 1000, 100
	quick.Finals, slight.Finals = quick.Rounds, slight.Rounds
	return &Report{
		Taken: results.Taken{When: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}, Rounds: 3, DurationSeconds: 0.7,
		Profiles: []Profile{profile(linearSVM, "linear SVM", linear), profile(kernelSVM, "kernel SVM", kernel)},
		Comparisons: []Comparison{
			{linearSVM, "linear SVM", []Strategy{aimd, strategy("quantile", 0, 18, 90000, 90000, 90000), strategy("none", 0, 0.3, 2000, 2000, 2000), quick, strategy("static 3000", 3000, 30, 120000)}},
			{kernelSVM, "kernel SVM", []Strategy{slow, strategy("none", 0, 1, 1000, 1000, 1000), slight}},
		},
		Delays: []DelayCurve{
			{linearSVM, "linear SVM", 5000, 90000, 15000, []Delay{delay(0, 14000, 0.9), delay(2, 15000, 0.15)}},
			{rowByRow, "row by row", 40000, 90000, 15000, []Delay{delay(0, 15000, 0.3), delay(2, 15000, 0.2)}},
		},
	}
}

func TestMarkdown(t *testing.T) {
	text := sampleReport().Markdown()
	resultstest.Contains(t, text,
		"| largest batches within 20 ms differ by 241× between linear and kernel SVM | 241×, give or take a quarter | 354.50 (347.09–362.06) | **does not hold** | 12288 against 35 queries |",
		"| nearly 30,000 queries/s against 200 (150×), linear and kernel SVM | ≥ 150× | 66.44 (51.78–85.26) | **does not hold** | 100000 against 1500 queries/s, AIMD |",
		"| batching gains up to 26× (linear SVM) | ≥ 26× | 49.83 (38.83–63.95) | holds | AIMD |",
		"| AIMD and quantile regression perform nearly identically | 1, give or take a tenth | 0.90 (0.70–1.16) | cannot be told | linear SVM, quantile ÷ AIMD |",
		"| 2 ms of delay: 3.3× the throughput (linear SVM) | ≥ 3.3× | 1.07 (1.07–1.07) | **does not hold** | the container is busy 15 % of the time instead of 90 %: 6.0× less |",
		"| no gain where a batch has no fixed cost (Spark SVM) | 1, give or take a tenth | 1.00 (1.00–1.00) | holds | the container is busy 20 % of the time instead of 30 %: 1.5× less |",
		"| 32 | | 18.00 / 18.00 |",
		"| linear SVM | aimd | 100000 (90000–110000) | 1 | 20.50 | 1.3 % | 50.0 (45.0–55.0) | 1.10 (1.00–1.25) | 1.2 s |",
		"| linear SVM | best static 1000 | 90000 (80000–100000) |",
		"| linear SVM | aimd | 1.3 (0.7–2.2) | cannot be told | 1.11 (0.84–1.47) | cannot be told | cannot be told |",
		"| linear SVM | static 1000 | 0.0 (0.0–0.4) | holds | – | – | – |",
		"| kernel SVM | static 20 | 0.0 (0.0–3.6) | cannot be told | – | – | – |",
		"| kernel SVM | aimd | 5.0 (3.7–6.5) | **does not hold** | 0.75 (0.75–0.75) | **does not hold** | **does not hold** |",
		"| linear SVM | 1000: 90000, 12.0 · 3000: 120000, 30.0 |",
		"**linear SVM**: 15000 queries/s offered; the container does at most 5000 one by one, and 90000 in batches of 512.",
		"| 2 | 15000 (15000–15000) | 2.0 | 1.00 | 4.00 (4.00–4.00) | 10.0 (10.0–10.0) | 15 % |",
	)
	for _, not := range []string{"NaN", "mean nothing", "| linear SVM | static 3000 |"} {
		if strings.Contains(text, not) {
			t.Errorf("%q in\n%s", not, text)
		}
	}
}

// Any choice of figures has a report. The report of a smoke test says so.
func TestMarkdownOfAPart(t *testing.T) {
	whole := sampleReport()
	for _, r := range []Report{{Profiles: whole.Profiles[:1]}, {Comparisons: whole.Comparisons[1:]}, {Delays: whole.Delays[1:], Quick: true}} {
		text := r.Markdown()
		if strings.Contains(text, "NaN") || strings.Contains(text, "mean nothing") != r.Quick {
			t.Error(text)
		}
	}
}

func TestWriteKeepsReportAndFigures(t *testing.T) {
	dir := resultstest.Kept(t, sampleReport(), "figures")
	for number, words := range map[string][]string{"3": {"linear SVM", "kernel SVM", "batch size"}, "4": {"aimd", "best static", "thousand queries/s"}, "5": {"row by row", "delay, ms"}} {
		resultstest.Shows(t, dir, "2026-11-21-figures", "2026-11-21-figure"+number, "## Figure "+number, words...)
	}
}

// TestAgain: the report of an earlier measurement is written again, with the same JSON.
func TestAgain(t *testing.T) {
	kept := resultstest.Kept(t, sampleReport(), "figures")
	again := t.TempDir()
	if err := publishAgain(filepath.Join(kept, "2026-11-21-figures.json"), again); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2026-11-21-figures.json", "2026-11-21-figures.md"} {
		before, err := os.ReadFile(filepath.Join(kept, name))
		if err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(filepath.Join(again, name)); err != nil || string(after) != string(before) {
			t.Errorf("%s differs, or %v", name, err)
		}
	}
	bad := filepath.Join(again, "bad.json")
	if err := os.WriteFile(bad, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{bad, filepath.Join(again, "none.json")} {
		if err := publishAgain(file, again); err == nil {
			t.Errorf("%s: expected an error", file)
		}
	}
}
