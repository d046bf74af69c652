package gobench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const text = `goos: linux
BenchmarkLookup/models=10/quiet-2         	 8289357	        30.50 ns/op	       0 B/op	       0 allocs/op
BenchmarkLookup/models=10/quiet-2         	 5600745	        38.28 ns/op	       0 B/op	       0 allocs/op
BenchmarkLookup/models=10/changing 	 3831386	        70.61 ns/op	       8 B/op	       1 allocs/op
BenchmarkDecide-2   	   18812	     64012 ns/op	        64.01 ns/model	       0 B/op	       0 allocs/op
BenchmarkPlan/quiet   	   18812	     64012 ns/op	        5012 cpu-ns/op	       0 B/op	       0 allocs/op
BenchmarkTimeAlone-2   	   18812	     64012 ns/op
PASS
`
	got, err := parse(text)
	want := []Benchmark{
		{Name: "Lookup/models=10/quiet", Nanos: []float64{30.5, 38.28}, Bytes: []float64{0, 0}, Allocs: []float64{0, 0}},
		{Name: "Lookup/models=10/changing", Nanos: []float64{70.61}, Bytes: []float64{8}, Allocs: []float64{1}},
		{Name: "Decide", Nanos: []float64{64012}, Bytes: []float64{0}, Allocs: []float64{0}},
		{Name: "Plan/quiet", Nanos: []float64{64012}, Bytes: []float64{0}, Allocs: []float64{0}, CPU: []float64{5012}},
	}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if _, err := parse("BenchmarkX-2 1 1 ns/op x cpu-ns/op 0 B/op 0 allocs/op\n"); err == nil {
		t.Error("no number of CPU time: expected an error")
	}
	if _, err := parse("BenchmarkX-2 1 x ns/op 0 B/op 0 allocs/op\n"); err == nil || !strings.Contains(err.Error(), "BenchmarkX") {
		t.Errorf("no number: %v, expected an error that has the line", err)
	}
}

func TestRun(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/m\n\ngo 1.24\n",
		"few/x_test.go":  "package few\n\nimport \"testing\"\n\nfunc BenchmarkX(b *testing.B) {\n\tb.Run(\"a\", func(*testing.B) {})\n\tb.Run(\"b\", func(*testing.B) {})\n}\n",
		"fail/x_test.go": "package fail\n\nimport \"testing\"\n\nfunc BenchmarkX(b *testing.B) { b.Fatal(\"it broke\") }\n",
	} {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Go: "go", Root: root, Package: "./few", Pattern: "^BenchmarkX$/^b$", Benchtime: time.Nanosecond, Runs: 2, Procs: 1}
	if all, err := Run(t.Context(), o); err != nil || len(all) != 1 || all[0].Name != "X/b" || len(all[0].Nanos) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	o.Pattern = "^BenchmarkY$"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "./few has no benchmark ^BenchmarkY$") {
		t.Errorf("no such benchmark: %v", err)
	}
	o.Package, o.Pattern = "./fail", "."
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "it broke") {
		t.Errorf("a benchmark that fails: %v", err)
	}
}

func TestMerge(t *testing.T) {
	a, b := Benchmark{Name: "a", Nanos: []float64{1}, CPU: []float64{2}}, Benchmark{Name: "b", Nanos: []float64{3}, Bytes: []float64{4}, Allocs: []float64{5}}
	got := Merge(Merge(nil, []Benchmark{a}), []Benchmark{b, {Name: "a", Nanos: []float64{6}, CPU: []float64{7}}})
	if want := []Benchmark{{Name: "a", Nanos: []float64{1, 6}, CPU: []float64{2, 7}}, b}; !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
