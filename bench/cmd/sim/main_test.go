package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

func output(t *testing.T, args ...string) string {
	t.Helper()
	var b strings.Builder
	if err := run(&b, args); err != nil {
		t.Fatalf("sim %v: %v", args, err)
	}
	return b.String()
}

func TestRandomWorlds(t *testing.T) {
	if got := output(t, "-seed", "3", "-seeds", "2"); !strings.Contains(got, "2 random worlds from seed 3 on") {
		t.Errorf("got %q", got)
	}
	if got := output(t, "-seed", "3", "-v"); !strings.Contains(got, "> send r") || got != output(t, "-seed", "3", "-v") {
		t.Error("the transcript of seed 3 has no batch, or is not the same each time")
	}
}

// TestCompare checks that the same seed gives the same table, and that the report has its files.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-compare", "-only", "^recovery$", "-o", "json"}
	first := output(t, append(args, "-out", dir, "-date", "2026-01-02")...)
	if again := output(t, args...); again != first {
		t.Error("two comparisons with one seed differ")
	}
	steady := []string{"-compare", "-only", "^steady$"}
	if output(t, steady...) == output(t, append(steady, "-seed", "2")...) {
		t.Error("another seed gives the same numbers")
	}
	var rows []struct {
		OfPossible     float64 `json:"of_possible"`
		RecoveryMillis float64 `json:"recovery_ms"`
	}
	if err := json.Unmarshal([]byte(first), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 6 || rows[0].OfPossible < 0.5 || rows[0].RecoveryMillis < 0 {
		t.Errorf("%d rows, the first %+v", len(rows), rows[0])
	}
	for _, name := range []string{"2026-01-02-sim.md", "2026-01-02-sim.json", "2026-01-02-sim-goodput.svg", "2026-01-02-sim-cost.svg", "2026-01-02-sim-recovery.svg"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(data) < 500 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
}

// TestDelay: a container that is busy nearly all the time gets its batches without a delay, and the report has its files.
func TestDelay(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-delay", "-only", "^10 ms .* 200 µs × n, load 0.3$", "-seeds", "2"}
	first := output(t, append(args, "-out", dir, "-date", "2026-01-02")...)
	if again := output(t, args...); again != first {
		t.Error("two comparisons with the same seeds differ")
	}
	if !strings.Contains(first, "some delay somewhere: ≥ 3.3× the throughput | 1.00") || strings.Count(first, "**does not hold**") != 2 || !strings.Contains(first, "| 10 ms + 200 µs × n | 0.3 |") {
		t.Error(first)
	}
	data, err := os.ReadFile(filepath.Join(dir, "2026-01-02-delay.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cells []delayCell
	if err := json.Unmarshal(data, &cells); err != nil || len(cells) != 1 || len(cells[0].Delays) != len(holds) {
		t.Fatalf("%d cells, %v", len(cells), err)
	}
	none, longest := cells[0].Delays[0], cells[0].Delays[len(holds)-1]
	if none.Goodput != (results.Interval{Value: 1, Low: 1, High: 1}) || none.AnsweredQPS[0] < 0.9*cells[0].OfferedQPS || longest.MeanBatch[0] < none.MeanBatch[0] {
		t.Errorf("no delay: %+v, the longest: %+v", none, longest)
	}
	for _, wrong := range [][]string{{"-delay", "-seeds", "1"}, {"-delay", "-only", "^nothing$"}} {
		var b strings.Builder
		if err := run(&b, wrong); err == nil {
			t.Errorf("sim %v: expected an error", wrong)
		}
	}
}

func TestTrace(t *testing.T) {
	got := output(t, "-trace", "../../../scheduler/sim/testdata/example.trace")
	if !strings.Contains(got, "## trace") {
		t.Errorf("got %q", got)
	}
}

// TestScale checks that the same seeds give the same table, every scaler gets the same queries, and the report has its files.
func TestScale(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-scale", "-only", "^step-quick$", "-seeds", "1", "-o", "json"}
	first := output(t, append(args, "-out", dir, "-date", "2026-01-02")...)
	if again := output(t, args...); again != first {
		t.Error("two comparisons with one seed differ")
	}
	var rows []scaleRow
	if err := json.Unmarshal([]byte(first), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(contenders) {
		t.Fatalf("%d rows for %d scalers", len(rows), len(contenders))
	}
	for _, r := range rows {
		offered := r.Load * r.ReplicaSeconds
		if r.ReplicaSeconds < 5000 || r.ColdStarts != 1 || r.RecoverySeconds <= 0 || r.Peak < 10 || math.Abs(offered/(rows[0].Load*rows[0].ReplicaSeconds)-1) > 1e-9 {
			t.Errorf("%s: %+v", r.Scaler, r.scaleRun)
		}
	}
	for _, name := range []string{"2026-01-02-autoscale.md", "2026-01-02-autoscale.json", "2026-01-02-autoscale-step-quick.svg"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(data) < 500 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	table := output(t, "-scale", "-only", "^step-quick$", "-seeds", "1", "-seed", "2")
	same := fmt.Sprintf("| %.0f |", rows[0].Missed)
	if !strings.Contains(table, "## step-quick") || !strings.Contains(table, "xebec against knative-rate") || strings.Contains(table, same) {
		t.Errorf("with another seed: %s", table)
	}
}

// always is a scaler that wants a constant number of replicas.
type always int

func (n always) Decide(*autoscale.Sample) autoscale.Decision {
	return autoscale.Decision{Replicas: int(n)}
}

// TestWhatAReplicaServes measures replicaServes, on which the traces and Knative's target are based.
func TestWhatAReplicaServes(t *testing.T) {
	const n = 4
	tr := trace{duration: 2 * minute, initial: n, traffic: func(c float64) []sim.Traffic { return []sim.Traffic{steady(2 * n * c)} }}
	f := tr.forecast(&contender{scaler: func() sim.Scaler { return always(n) }}, 1)
	r, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(r.Offered-r.Missed) / n / 120; math.Abs(got-replicaServes) > 0.3 {
		t.Errorf("a replica that has twice as much as it can do serves %.2f queries a second within the objective, expected %v", got, replicaServes)
	}
}

// TestFewMissByChance checks that at a steady rate hardly any query misses its objective, even if the rate is so low that one or two replicas are
// enough. With a utilization of 70 % of a single replica more than one in a hundred would miss.
func TestFewMissByChance(t *testing.T) {
	for _, needs := range []float64{0.3, 0.45, 0.55, 0.65, 1, 1.3} {
		tr := trace{duration: 20 * minute, initial: 2, startNanos: slowStart, traffic: func(c float64) []sim.Traffic { return []sim.Traffic{steady(needs * c)} }}
		r, err := tr.forecast(&contenders[0], 1).Run()
		if err != nil {
			t.Fatal(err)
		}
		if part := results.Ratio(r.Missed, r.Offered); part > 0.001 || r.ReplicaSeconds > 2.1*20*60 {
			t.Errorf("what %v replicas serve: %.5f missed, in %.0f replica seconds", needs, part, r.ReplicaSeconds)
		}
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-scale", "-o", "yaml"}, {"-scale", "-out", t.TempDir()}, {"-scale", "-only", "nothing"}, {"-only", "("}, {"-o", "yaml"}, {"-compare", "-out", t.TempDir()}, {"-trace", "nowhere"}, {"-trace", "main.go"},
	} {
		var b strings.Builder
		if err := run(&b, args); err == nil {
			t.Errorf("sim %v: expected an error", args)
		}
	}
}
