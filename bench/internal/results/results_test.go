package results

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

func TestQuantilesAreByNearestRank(t *testing.T) {
	var hundred []int64
	for i := range int64(100) {
		hundred = append(hundred, 100-i)
	}
	for _, c := range []struct {
		values  []int64
		q, want float64
	}{{[]int64{7}, 0, 7}, {[]int64{7}, 1, 7}, {hundred, 0, 1}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {[]int64{2, 1}, 0.99, 2}} {
		if got := Quantiles(c.values)(c.q); got != c.want {
			t.Errorf("%v of %d values: got %v, want %v", c.q, len(c.values), got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the argument was sorted")
	}
	if got := Quantiles([]float64{0.5, 0.25})(0.5); got != 0.25 {
		t.Errorf("of fractions: got %v", got)
	}
	if !math.IsNaN(Quantiles([]int64{})(0.5)) {
		t.Error("a quantile of no values is a number")
	}
}

func TestMeanAndRatio(t *testing.T) {
	if Mean([]int64{1, 2}) != 1.5 || Mean([]float64{}) != 0 {
		t.Errorf("means %v and %v", Mean([]int64{1, 2}), Mean([]float64{}))
	}
	if Ratio(1, 4) != 0.25 || Ratio(1.0, 0) != 0 {
		t.Errorf("ratios %v and %v", Ratio(1, 4), Ratio(1.0, 0))
	}
}

func TestWhereAndFind(t *testing.T) {
	rows := []int{1, 2, 3, 4}
	even := func(n int) bool { return n%2 == 0 }
	if got := Where(rows, even); !slices.Equal(got, []int{2, 4}) {
		t.Errorf("got %v", got)
	}
	if got := Find(rows, even); got != &rows[1] {
		t.Errorf("got %v, want a pointer to the second row", got)
	}
	if Find(rows, func(n int) bool { return n > 4 }) != nil {
		t.Error("found a row that does not exist")
	}
}

func TestTableHead(t *testing.T) {
	var b strings.Builder
	TableHead(&b, "a", "b")
	if b.String() != "| a | b |\n|---|---|\n" {
		t.Errorf("got %q", b.String())
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
	figures := []Figure{{Name: "last", Alt: "the last", SVG: []byte("<svg/>")}, {Name: "first", Alt: "the first", Before: "## Part", SVG: []byte("<svg></svg>")}}
	paths, err := Write(dir, report.Name("kind"), report, "# A title\n\n## Part 1\n", figures...)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(dir, "2030-01-02-kind")
	if want := []string{base + ".json", base + ".md", filepath.Join(dir, "last.svg"), filepath.Join(dir, "first.svg")}; !slices.Equal(paths, want) {
		t.Errorf("files %q, want %q", paths, want)
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
	const wantMarkdown = "# A title\n\n![the first](first.svg)\n\n## Part 1\n\n![the last](last.svg)\n"
	for i, want := range []string{wantJSON, wantMarkdown, "<svg/>", "<svg></svg>"} {
		if got, err := os.ReadFile(paths[i]); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", paths[i], got, err, want)
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
