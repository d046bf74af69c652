package gobench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Benchmark is one benchmark or sub-benchmark, with the results of every run.
type Benchmark struct {
	// Name is without "Benchmark" and without the number of processors: "Plan/1000x4000/busy".
	Name   string    `json:"name"`
	Nanos  []float64 `json:"ns"`
	Bytes  []float64 `json:"bytes"`
	Allocs []float64 `json:"allocs"`
	// CPU is the process's CPU time per operation, of benchmarks that report it in the unit cpu-ns/op. Other users of the cores change it
	// much less than they change Nanos.
	CPU []float64 `json:"cpu_ns,omitempty"`
}

// Options say what to run.
type Options struct {
	Go      string // the Go tool
	Root    string // folder of the module
	Package string // "./scheduler/planner"
	// Pattern is -bench: regular expressions for the parts of a name, with slashes between them.
	Pattern   string
	Benchtime time.Duration // of each run
	Runs      int
	Procs     int // GOMAXPROCS; 0: all
}

// Run runs the benchmarks. It fails if none matches. The compiler's errors go to stderr.
func Run(ctx context.Context, o Options) ([]Benchmark, error) {
	args := []string{"test", "-run", "^$", "-bench", o.Pattern, "-benchmem", "-benchtime", o.Benchtime.String(), "-count", strconv.Itoa(o.Runs)}
	if o.Procs > 0 {
		args = append(args, "-cpu", strconv.Itoa(o.Procs))
	}
	cmd := exec.CommandContext(ctx, o.Go, append(args, o.Package)...)
	cmd.Dir = o.Root
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, text.String())
	}
	all, err := parse(text.String())
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s has no benchmark %s, or it printed nothing", o.Package, o.Pattern)
	}
	return all, err
}

// line matches a line of `go test -bench -benchmem`: the name, the processors, the count, and numbers with their units, which may include a
// benchmark's own.
var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(\S+) ns/op\s+(?:.*\s)?(\S+) B/op\s+(\S+) allocs/op`)

var cpuTime = regexp.MustCompile(`\s(\S+) cpu-ns/op\s`)

// parse collects the runs of each benchmark, in the order of their first line.
func parse(text string) ([]Benchmark, error) {
	var all []Benchmark
	at := map[string]int{}
	for l := range strings.Lines(text) {
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		var numbers [3]float64
		for i := range numbers {
			var err error
			if numbers[i], err = strconv.ParseFloat(m[2+i], 64); err != nil {
				return nil, fmt.Errorf("benchmark %q: %w", strings.TrimSpace(l), err)
			}
		}
		i, known := at[m[1]]
		if !known {
			i = len(all)
			at[m[1]] = i
			all = append(all, Benchmark{Name: m[1]})
		}
		b := &all[i]
		if m := cpuTime.FindStringSubmatch(l); m != nil {
			cpu, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return nil, fmt.Errorf("benchmark %q: %w", strings.TrimSpace(l), err)
			}
			b.CPU = append(b.CPU, cpu)
		}
		b.Nanos, b.Bytes, b.Allocs = append(b.Nanos, numbers[0]), append(b.Bytes, numbers[1]), append(b.Allocs, numbers[2])
	}
	return all, nil
}

// Merge appends the runs of more to those of the benchmarks with the same names in all. Other benchmarks follow at the end.
func Merge(all, more []Benchmark) []Benchmark {
	for _, m := range more {
		i := slices.IndexFunc(all, func(b Benchmark) bool { return b.Name == m.Name })
		if i < 0 {
			all = append(all, m)
			continue
		}
		b := &all[i]
		b.Nanos, b.Bytes, b.Allocs, b.CPU = append(b.Nanos, m.Nanos...), append(b.Bytes, m.Bytes...), append(b.Allocs, m.Allocs...), append(b.CPU, m.CPU...)
	}
	return all
}
