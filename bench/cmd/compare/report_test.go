package main

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

func sample(cpu, p50 float64) Sample {
	return Sample{CPUMicros: cpu, P50Micros: p50, P99Micros: 2 * p50, RPS: 1e6 / cpu}
}

// The ratio is taken within each pair: a machine that is twice as slow in the second pair changes nothing.
func TestRatiosArePaired(t *testing.T) {
	r := Report{Taken: results.Taken{When: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}, Pairs: 3, Scenarios: []Measurement{
		{Name: "good", MaxCPURatio: 1.4, Pairs: []Pair{{Floor: sample(8, 100), Xebec: sample(10, 110)}, {Floor: sample(16, 200), Xebec: sample(20, 220)}, {Floor: sample(8, 100), Xebec: sample(8, 90)}}},
		{Name: "bad", MaxP50Ratio: 1.6, Profile: "10ms main.main\n", Pairs: []Pair{{Floor: sample(8, 100), Xebec: sample(10, 170)}}},
	}}
	text := r.Markdown()
	resultstest.Contains(t, text,
		"# The whole path against bare Hertz, 2 January 2030",
		"| good | 8.00 | 10.00 | 1.25 (1.00–1.25) | ≤ 1.40: met | 100 | 110 | 1.10 (0.90–1.10) | – |",
		"| bad | 8.00 | 10.00 | 1.25 (1.25–1.25) | – | 100 | 170 | 1.70 (1.70–1.70) | ≤ 1.60: **missed** |",
		"## Where the gateway's CPU time goes: bad\n\n```\n10ms main.main\n```\n",
	)
}

// With an old gateway there is a table more. Memory is compared in each.
func TestOldGateway(t *testing.T) {
	pair := Pair{Floor: sample(8, 100), Xebec: sample(9, 100), Old: &Sample{CPUMicros: 10, P50Micros: 80, PeakMiB: 300}}
	pair.Floor.PeakMiB, pair.Xebec.PeakMiB = 100, 150
	r := Report{Pairs: 1, Scenarios: []Measurement{{Name: "m", MaxMemRatio: 1.4, Pairs: []Pair{pair}}}}
	resultstest.Contains(t, r.Markdown(),
		"| m | 100 | 150 | 1.50 (1.50–1.50) | ≤ 1.40: **missed** |",
		"| m | 0.90 (0.90–0.90) | 1.25 (1.25–1.25) | 0.50 (0.50–0.50) |")
}

func TestMissed(t *testing.T) {
	pairs := []Pair{{Floor: sample(10, 100), Xebec: sample(15, 100)}}
	for _, c := range []struct {
		cpu, p50 float64
		want     bool
	}{{0, 0, false}, {1.5, 0, false}, {1.4, 0, true}, {0, 1, false}, {2, 0.9, true}} {
		m := Measurement{Pairs: pairs, MaxCPURatio: c.cpu, MaxP50Ratio: c.p50}
		if m.missed() != c.want {
			t.Errorf("targets %v and %v: missed is %v", c.cpu, c.p50, !c.want)
		}
	}
}

func TestProfileWithoutItsHeading(t *testing.T) {
	in := "File: xebec\nTime: 2030-01-02\nShowing top 1\n      flat  flat%   sum%        cum   cum%\n     90ms 45.00% 45.00%      100ms 50.00%  main.main\n\n"
	want := "      flat  flat%   sum%        cum   cum%\n     90ms 45.00% 45.00%      100ms 50.00%  main.main\n"
	if got := table(in); got != want {
		t.Errorf("got %q", got)
	}
}

func TestScenariosAreWhatTheySay(t *testing.T) {
	if len(smallJSON) != 40 {
		t.Errorf("the 40-byte body has %d bytes", len(smallJSON))
	}
	names := map[string]bool{}
	for _, s := range scenarios {
		if names[s.name] {
			t.Errorf("two scenarios are called %q", s.name)
		}
		names[s.name] = true
	}
}
