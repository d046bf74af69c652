package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

// The gateway must accept the manifests.
func TestManifests(t *testing.T) {
	set, err := manifest.Decode("manifest", []byte(manifests(config{model: "/models/step"}, 32)))
	if err != nil || len(set.Models) != 2 || len(set.Functions) != 2 {
		t.Fatalf("%+v, %v", set, err)
	}
	step, whole := set.Models[0], set.Models[1]
	if !step.Stream || step.Name != stepModel || step.Run.Env["PLACES"].Value != "32" || whole.Stream || whole.Batching.Max != 32 {
		t.Errorf("%+v\n%+v", step, whole)
	}
}

func TestLengths(t *testing.T) {
	all := lengths(100_000, 1)
	_, outputs, longest := summary(all)
	if mean := float64(outputs) / 1e5; mean < 19.5 || mean > 20.5 || longest != longestLength || slices.Min(all) != 1 {
		t.Errorf("mean %.2f, from %d to %d", mean, slices.Min(all), longest)
	}
	if !slices.Equal(all[:100], lengths(100, 1)) || slices.Equal(all[:100], lengths(100, 2)) {
		t.Error("the lengths are not those of the seed")
	}
}

// Two places, three callers, sequences of 3, 1, 2 and 1 outputs.
func TestIdeal(t *testing.T) {
	millis := func(r Run) string {
		return fmt.Sprintf("%.1f: p50 %.1f, p99 %.1f, first %.1f, %.1f; %.0f requests/s, %.0f outputs/s", r.Seconds*1e3, r.P50Millis, r.P99Millis, r.FirstP50Millis, r.FirstP99Millis, r.RequestsPerS, r.OutputsPerS)
	}
	all := []int{3, 1, 2, 1}
	// Steps: {0,1} {0,2} {0,2} end at 5.2, 10.4, 15.6; sequence 3, asked for at 5.2, has the step to 20.7 for itself.
	// Until the last outputs: 15.6, 5.2, 15.6, 15.5; until the first: 5.2, 5.2, 10.4, 15.5.
	if got, want := millis(idealStep(all, 3, 2)), "20.7: p50 15.5, p99 15.6, first 5.2, 15.5; 193 requests/s, 338 outputs/s"; got != want {
		t.Errorf("in steps %s, expected %s", got, want)
	}
	// Batches: {0,1} takes 5.2+5.1+5.1, {2,3} 5.2+5.1. Sequence 3 was asked for at 15.4.
	if got, want := millis(idealWhole(all, 3, 2)), "25.7: p50 15.4, p99 25.7, first 15.4, 25.7; 156 requests/s, 272 outputs/s"; got != want {
		t.Errorf("whole %s, expected %s", got, want)
	}
	// A single place leaves nothing to choose.
	if a, b := idealStep(all, 3, 1), idealWhole(all, 3, 1); a.Seconds != b.Seconds || a.P99Millis != b.P99Millis || a.Seconds != 7*stepTime(1).Seconds() {
		t.Errorf("with one place %+v and %+v", a, b)
	}
}

// server answers a query of id and length with what answer makes of them.
func server(t *testing.T, answer func(w io.Writer, stream bool, id, length int)) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id, length int
		if _, err := fmt.Fscanf(r.Body, `{"input":"%d %d"}`, &id, &length); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, r.URL.Path == "/step/predict" && r.Header.Get("Accept") == "application/jsonl", id, length)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func right(w io.Writer, stream bool, id, length int) {
	var outputs []string
	for k := range length {
		outputs = append(outputs, fmt.Sprintf("%d.%d", id, k))
	}
	if !stream {
		fmt.Fprintf(w, `{"query_id":1,"output":"%s","default":false}`, strings.Join(outputs, " "))
		return
	}
	for _, o := range outputs {
		fmt.Fprintf(w, "{\"output\":\"%s\"}\n", o)
	}
	fmt.Fprintf(w, "{\"end\":true,\"query_id\":1,\"outputs\":%d,\"models\":[\"step@1\"]}\n", length)
}

func TestPlay(t *testing.T) {
	addr := server(t, right)
	for _, model := range []string{stepModel, wholeModel} {
		run, err := play(t.Context(), addr, model, 3, []int{1, 5, 2, 100, 7})
		if err != nil || run.RequestsPerS*run.Seconds < 4.99 || run.OutputsPerS*run.Seconds < 114.9 || run.FirstP50Millis <= 0 || run.P99Millis < run.FirstP99Millis {
			t.Errorf("%s: %+v, %v", model, run, err)
		}
	}
}

func TestPlayFindsWrongAnswers(t *testing.T) {
	for name, answer := range map[string]func(w io.Writer, stream bool, id, length int){
		"another sequence's": func(w io.Writer, stream bool, id, length int) { right(w, stream, id+1, length) },
		"one too few":        func(w io.Writer, stream bool, id, length int) { right(w, stream, id, length-1) },
		"one too many":       func(w io.Writer, stream bool, id, length int) { right(w, stream, id, length+1) },
		"nothing":            func(io.Writer, bool, int, int) {},
		"an error": func(w io.Writer, _ bool, _, _ int) {
			w.(http.ResponseWriter).WriteHeader(http.StatusServiceUnavailable)
		},
		"no end": func(w io.Writer, stream bool, id, length int) {
			var text strings.Builder
			right(&text, stream, id, length)
			_, _ = io.WriteString(w, text.String()[:strings.LastIndexByte(strings.TrimSpace(text.String()), '{')])
		},
		"the default": func(w io.Writer, stream bool, id, length int) {
			var text strings.Builder
			right(&text, stream, id, length)
			_, _ = io.WriteString(w, strings.ReplaceAll(strings.ReplaceAll(text.String(), `"default":false`, `"default":true`), `"end":true`, `"default":true`))
		},
		"more after the end": func(w io.Writer, stream bool, id, length int) {
			right(w, stream, id, length)
			right(w, stream, id, length)
		},
	} {
		addr := server(t, answer)
		for _, model := range []string{stepModel, wholeModel} {
			if _, err := play(t.Context(), addr, model, 2, []int{2, 3, 4}); err == nil || !strings.Contains(err.Error(), "sequence ") {
				t.Errorf("%s, %s: %v", name, model, err)
			}
		}
	}
}

func TestReport(t *testing.T) {
	r := &Report{Taken: results.Taken{When: time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)}, Callers: 64, Sequences: 1000, Outputs: 20_000, Longest: 100, Seed: 1}
	if !r.Empty() {
		t.Error("nothing was measured, and the report is not empty")
	}
	r.Settings = []Setting{{
		Places: 8,
		Ideal:  Pair{Run{10, 100, 2000, 500, 900, 100, 200, 0, 0}, Run{20, 50, 1000, 1000, 1000, 1000, 1000, 0, 0}},
		Pairs: []Pair{
			{Run{12, 80, 1600, 600, 990, 110, 250, 40, 90}, Run{25, 40, 800, 1200, 1500, 1200, 1500, 5, 9}},
			{Run{11, 90, 1800, 550, 950, 105, 220, 30, 80}, Run{22, 30, 600, 1100, 1900, 1100, 1900, 6, 8}},
		},
	}}
	resultstest.Contains(t, r.Markdown(),
		"the same 1000 sequences with 20000 outputs",
		"| 8 | 2 | 35.0 (30.0–40.0) | 85.0 (80.0–90.0) | 700 (600–800) | 1700 (1600–1800) | 2.50 (2.00–3.00) | 2.00 | 0.70 (0.60–0.80) | 0.85 (0.80–0.90) |",
		"| 8 | p50 | 1150 (1100–1200) | 1000 | 575 (550–600) | 500 | 0.50 (0.50–0.50) | 0.50 |",
		"| 8 | p99 | 1700 (1500–1900) | 1000 | 970 (950–990) | 900 | 0.58 (0.50–0.66) | 0.90 |",
		"| 8 | first output, p50 | 1150 (1100–1200) | 1000 | 108 (105–110) | 100 |",
		"| 8 | 5.5 (5.0–6.0) | 35.0 (30.0–40.0) | 8.5 (8.0–9.0) | 85.0 (80.0–90.0) |",
	)
	if r.Empty() {
		t.Error("the report is empty")
	}
	resultstest.Kept(t, r, "step")
}
