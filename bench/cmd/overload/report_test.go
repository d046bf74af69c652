package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// sample is a round that meets all targets.
func sample(setting string, capacity float64) Round {
	good := Capacity{Load{Function: flood, GoodputRPS: capacity, InTime: 1000}, CPU{Generator: 0.1, Gateway: 0.2, Workers: 1}}
	r := Round{Setting: setting, CapacityRPS: capacity, CapacityBefore: good, CapacityAfter: good, Recovery: Recovery{FloodSeconds: 3, Recovered: true, AfterMillis: 20}}
	for _, factor := range overloads {
		r.Overloads = append(r.Overloads, Overload{factor, Load{
			Function: flood, OfferedRPS: factor * capacity, GoodputRPS: 0.98 * capacity, InTime: 980, Refused: 4000, Accepted: Latency{40, 49, 50}, Refusals: Latency{0.1, 0.4, 2},
		}, CPU{Workers: 0.5}, nil})
	}
	r.Fairness.Alone = Load{Function: quiet, InTime: 200, Accepted: Latency{2, 5, 6}}
	r.Fairness.Beside = Load{Function: quiet, InTime: 199, Refused: 1, SteadyAll: 150, Accepted: Latency{20, 40, 45}}
	r.Deadline.Client = Latency{0.3, 0.9, 1.5}
	return r
}

func TestReportSaysWhatWasMetAndWhatMissed(t *testing.T) {
	report := &Report{Taken: results.Taken{When: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}, ObjectiveMillis: 50, Rounds: []Round{sample("planner off", 1000), sample("planner off", 1200), sample("planner on", 1100)}}
	text := report.Markdown()
	resultstest.Contains(t, text,
		"# Overload, 21 November 2026",
		"## Planner off (2 rounds)\n\nCapacity: 1100 (1000–1200) queries/s.",
		"| goodput at 5 × capacity, of capacity | 0.98 (0.98–0.98) | ≥ 0.95 | met |",
		"| part of the worker's CPU time there that answers in time | 1.96 (1.96–1.96) | – | |", // half the time for the same
		"| well again after the flood, ms | 20 (20–20) | < 1000 | met |",
		"## Planner on (1 rounds)\n\nCapacity: 1100 queries/s.",
		"| P99 of refusals there | 0.40 | about 1 | met |",
		"| quiet function's answers in time beside the flood, of alone | 0.995 | ≥ 0.95 | met |",
		"| its P99 beside the flood, × alone | 8.0 | – | |",
		"| 5 × | 5500 | 1078 | 0.98 | 40.0 | 49.0 | 0 | 0 | 4000 | 0.10 | 0.40 | 0.00 | 0 |",
	)
	if strings.Contains(text, "missed**") || strings.Contains(text, "should not have happened") || report.unexpected() != nil {
		t.Errorf("something is said to be wrong (%v):\n%s", report.unexpected(), text)
	}

	bad := sample("planner on", 1000)
	last := &bad.Overloads[len(overloads)-1].Load
	last.GoodputRPS, last.Accepted.P99, last.Expired, last.Refusals.P99, last.Others, last.OthersWhy = 900, 51, 100, 20, 7, "7 of status 502"
	bad.Recovery.Recovered = false
	bad.Fairness.Beside.Refused, bad.Fairness.Beside.SteadyLost = 100, 30
	bad.Deadline.Client.P99 = 9
	report.Rounds = []Round{bad}
	text = report.Markdown()
	if n := strings.Count(text, "**missed**"); n != 8 {
		t.Errorf("%d targets are said to be missed, want all 8:\n%s", n, text)
	}
	if err := report.unexpected(); err == nil || !strings.Contains(err.Error(), "7 of status 502") || !strings.Contains(text, "7 of status 502") {
		t.Errorf("the wrong answers are not named (%v):\n%s", err, text)
	}
}

func TestReportIsKept(t *testing.T) {
	report := &Report{Taken: results.Taken{When: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}, Rounds: []Round{sample("planner off", 1000)}}
	resultstest.Kept(t, report, "overload")
}

func TestASingleRoundHasNoSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{{nil, "–"}, {[]float64{2}, "2.0"}, {[]float64{3, 1, 2}, "2.0 (1.0–3.0)"}} {
		if got := spread(1, c.values); got != c.want {
			t.Errorf("%v: got %s, want %s", c.values, got, c.want)
		}
	}
}

// The first moments of a load are in the counts but not in the rates.
func TestLoad(t *testing.T) {
	h := heard{
		stream: stream{function: flood, rate: 100, duration: time.Second}, begin: 100 * ms, end: 1100 * ms,
		trace: trace{
			{100 * ms, 290 * ms, late}, // while the load is new: 200 ms
			{260 * ms, 300 * ms, inTime}, {400 * ms, 410 * ms, inTime}, {500 * ms, 560 * ms, late}, {600 * ms, 601 * ms, refused},
			{700 * ms, 750 * ms, expired}, {1090 * ms, 1110 * ms, inTime},
		},
		result: &loadgen.Result{
			Status: map[int]uint64{200: 4, 503: 1, 504: 1, 502: 2}, Errors: map[string]uint64{"the server closed the connection": 1}, SendDelay: &loadgen.Distribution{P99: 1500},
		},
	}
	want := Load{
		Function: flood, OfferedRPS: 100, GoodputRPS: 2 / 0.8, InTime: 3, Late: 2, Expired: 1, Refused: 1, SteadyLost: 3, SteadyAll: 5, Others: 3, OthersWhy: "1 the server closed the connection, 2 of status 502",
		Accepted: Latency{40, 60, 60}, Refusals: Latency{1, 1, 1}, SendDelayP99: 1.5,
	}
	if diff := cmp.Diff(want, h.load()); diff != "" {
		t.Error(diff)
	}
	if got, want := want.kept(), 0.3; got != want {
		t.Errorf("%v had their prediction in time, want %v", got, want)
	}
	if got, want := want.missed(), 0.5; got != want {
		t.Errorf("of the admitted %v were late or expired, want %v", got, want)
	}
	if got := (Load{}).kept() + (Load{}).missed(); got != 0 {
		t.Errorf("without requests: %v", got)
	}
}
