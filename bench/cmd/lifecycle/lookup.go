package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Lookup is one of the benchmarks of looking up who serves, with what every run of it said.
type Lookup struct {
	Name   string    `json:"name"`
	Nanos  []float64 `json:"ns"`
	Bytes  []float64 `json:"bytes"`
	Allocs []float64 `json:"allocs"`
}

// lookupBenchmark is in package gateway, for what a request does there is not exported.
const lookupBenchmark = "BenchmarkLookup"

func measureLookup(ctx context.Context, cfg config, report *Report) error {
	cmd := exec.CommandContext(ctx, cfg.gotool, "test", "-run", "^$", "-bench", "^"+lookupBenchmark+"$", "-benchmem",
		"-benchtime", cfg.benchtime.String(), "-count", strconv.Itoa(cfg.rounds), "./gateway")
	cmd.Dir = cfg.root
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, text.String())
	}
	var err error
	report.Lookups, err = parseBenchmarks(text.String())
	return err
}

// benchmarkLine is a line of `go test -bench -benchmem`: the name, the processors, the count, and the three numbers.
var benchmarkLine = regexp.MustCompile(`^` + lookupBenchmark + `/(\S+?)(?:-\d+)?\s+\d+\s+(\S+) ns/op\s+(\S+) B/op\s+(\S+) allocs/op`)

// parseBenchmarks gathers the runs of each benchmark, in the order in which they came.
func parseBenchmarks(text string) ([]Lookup, error) {
	var all []Lookup
	for line := range strings.Lines(text) {
		m := benchmarkLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		var numbers [3]float64
		for i := range numbers {
			var err error
			if numbers[i], err = strconv.ParseFloat(m[2+i], 64); err != nil {
				return nil, fmt.Errorf("benchmark %q: %w", strings.TrimSpace(line), err)
			}
		}
		at := 0
		for at < len(all) && all[at].Name != m[1] {
			at++
		}
		if at == len(all) {
			all = append(all, Lookup{Name: m[1]})
		}
		l := &all[at]
		l.Nanos, l.Bytes, l.Allocs = append(l.Nanos, numbers[0]), append(l.Bytes, numbers[1]), append(l.Allocs, numbers[2])
	}
	if len(all) == 0 {
		return nil, errors.New("package gateway has no " + lookupBenchmark + " with sub-benchmarks, or it printed nothing")
	}
	return all, nil
}
