package results

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/machine"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{1, 1, 100}, 1}} {
		in := slices.Clone(c.in)
		if got := Median(in); got != c.want || !slices.Equal(in, c.in) {
			t.Errorf("median of %v: got %v, want %v; afterwards they are %v", c.in, got, c.want, in)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	var hundred []int64
	for i := range int64(100) {
		hundred = append(hundred, i+1)
	}
	for _, c := range []struct {
		rising  []int64
		q, want float64
	}{{[]int64{7}, 0, 7}, {[]int64{7}, 1, 7}, {hundred, 0, 1}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {[]int64{1, 2}, 0.99, 2}} {
		if got := Quantile(c.rising, c.q); got != c.want {
			t.Errorf("%v of %d values: got %v, want %v", c.q, len(c.rising), got, c.want)
		}
	}
	if got := Quantile([]float64{0.25, 0.5}, 0.5); got != 0.25 {
		t.Errorf("of fractions: got %v", got)
	}
	if !math.IsNaN(Quantile([]int64{}, 0.5)) {
		t.Error("a quantile of nothing is a number")
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		digits int
		values []float64
		want   string
	}{{1, nil, "–"}, {2, []float64{2}, "2.00 (2.00–2.00)"}, {1, []float64{3, 1, 2}, "2.0 (1.0–3.0)"}, {0, []float64{4, 1, 2, 5}, "3 (1–5)"}} {
		if got := Spread(c.digits, c.values); got != c.want {
			t.Errorf("%v: got %s, want %s", c.values, got, c.want)
		}
	}
}

func TestEachKeepsTheOrder(t *testing.T) {
	got := Each([]int{3, 1, 2}, func(n int) float64 { return float64(n) / 2 })
	if !slices.Equal(got, []float64{1.5, 0.5, 1}) {
		t.Errorf("got %v", got)
	}
}

func TestVerdict(t *testing.T) {
	if Verdict(true) != "met" || Verdict(false) != "**missed**" {
		t.Errorf("got %q and %q", Verdict(true), Verdict(false))
	}
}

func TestHeadingAndName(t *testing.T) {
	taken := Taken{time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC), machine.Machine{CPU: "a CPU", Cores: 3, Kernel: "7.1", Go: "go2", Load1: 0.5}}
	if got, want := taken.Heading("A title"), "# A title, 2 January 2030\n\na CPU, 3 cores, Linux 7.1, go2; load of the machine when it began: 0.50.\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := taken.Name("path"); got != "2030-01-02-path" {
		t.Errorf("got %q", got)
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "results")
	report := struct {
		Taken
		Rounds int `json:"rounds"`
	}{Taken: Taken{When: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}, Rounds: 3}
	base, err := Write(dir, report.Name("kind"), report, "# A title\n")
	if err != nil || base != filepath.Join(dir, "2030-01-02-kind") {
		t.Fatalf("got %q, %v", base, err)
	}
	const wantJSON = `{
  "when": "2030-01-02T00:00:00Z",
  "machine": {
    "cpu": "",
    "cores": 0,
    "kernel": "",
    "go": "",
    "load_1min_at_start": 0
  },
  "rounds": 3
}
`
	for ending, want := range map[string]string{".json": wantJSON, ".md": "# A title\n"} {
		if got, err := os.ReadFile(base + ending); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", ending, got, err, want)
		}
	}
}

func TestWriteOfWhatIsNoJSONLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	if _, err := Write(dir, "name", math.NaN(), "text"); err == nil {
		t.Error("a NaN was accepted")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
