package resultstest

import (
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// recorder records the failures of a test.
type recorder struct {
	testing.TB
	missing []any
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(_ string, args ...any) { r.missing = append(r.missing, args[0]) }

func TestContainsNamesWhatIsMissing(t *testing.T) {
	r := &recorder{TB: t}
	Contains(r, "| a | 1 |\n| b | 2 |\n", "| a | 1 |", "| c |", "b | 2", "| d |")
	if !slices.Equal(r.missing, []any{"| c |", "| d |"}) {
		t.Errorf("got %v", r.missing)
	}
}

func TestReadIsWhatWasWritten(t *testing.T) {
	type report struct{ Rounds []float64 }
	dir := t.TempDir()
	if _, err := results.Write(dir, "name", report{[]float64{1, 2.5}}, ""); err != nil {
		t.Fatal(err)
	}
	if got := Read[report](t, dir, "name"); !slices.Equal(got.Rounds, []float64{1, 2.5}) {
		t.Errorf("got %+v", got)
	}
}
