package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// TestCompare: the same seed gives the same table, and the numbers are those of the report's files.
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

func TestTrace(t *testing.T) {
	got := output(t, "-trace", "../../../scheduler/sim/testdata/example.trace")
	if !strings.Contains(got, "## trace") {
		t.Errorf("got %q", got)
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-only", "("}, {"-o", "yaml"}, {"-compare", "-out", t.TempDir()}, {"-trace", "nowhere"}, {"-trace", "main.go"},
	} {
		var b strings.Builder
		if err := run(&b, args); err == nil {
			t.Errorf("sim %v: expected an error", args)
		}
	}
}
