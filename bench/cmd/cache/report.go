package main

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/plots"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Requests           int     `json:"requests"`
	Seed               uint64  `json:"seed"`
	Rounds             int     `json:"rounds"`
	OtterOverheadBytes float64 `json:"otter_overhead_bytes"`
	Ratios             []Ratio `json:"ratios"`
	Costs              []Cost  `json:"costs"`
}

const preface = `Made by ` + "`bin/cache`" + `. Ours is package gateway/cache: CLOCK with a probation before it (S3-FIFO). The library is otter v2 (W-TinyLFU),
wrapped in what a prediction cache needs: a 128-bit key, inputs compared byte by byte, entries weighed by their bytes. Plain CLOCK is simulated, with entries
as large as ours.

`

const needs = `## What a prediction cache needs

| | ours | otter |
|---|---|---|
| bound in bytes, with bookkeeping | counted exactly | a weigher, which has to estimate the bookkeeping; exceeded for moments |
| 128-bit key, verified by equality | in the look-up | on top of it |
| identical queries in flight, each with its own deadline | a flight with waiters that can be cancelled | its loader blocks each caller: to be built beside it |
| a pending entry is never evicted, a failed one never stays | yes | to be built beside it |
| all entries of a version dropped at once | a flag, then a sweep | to be built beside it: the version in the key, and a walk |
| no allocation, nothing for the collector to look at | blocks, reused | an entry, a body and a node for each miss |

`

// Empty implements results.Report.
func (r *Report) Empty() bool { return len(r.Ratios) == 0 && len(r.Costs) == 0 }

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("The prediction cache against a library"))
	b.WriteString(preface)
	fmt.Fprintf(&b, "## Hit ratios at equal bytes\n\n%d requests each, seed %d; the first tenth is not counted. An output has %d B. "+
		"Otter's entries are weighed with %d B of bookkeeping each (measured: %.0f). *heap* is its growth at the end of the run.\n\n",
		r.Requests, r.Seed, outputBytes, otterOverheadBytes, r.OtterOverheadBytes)
	for _, w := range workloads(shiftEvery, r.Seed) {
		fmt.Fprintf(&b, "* **%s**: %s\n", w.Name, w.About)
	}
	for _, z := range sizings {
		fmt.Fprintf(&b, "* sizes **%s**: %s\n", z.Name, z.About)
	}
	b.WriteByte('\n')
	columns := []string{"requests", "sizes", "bytes"}
	for _, c := range ratioContenders {
		columns = append(columns, c.name)
	}
	results.TableHead(&b, append(columns, "heap, xebec", "heap, otter")...)
	for _, x := range r.Ratios {
		fmt.Fprintf(&b, "| %s | %s | %d MiB |", x.Workload, x.Sizes, x.MaxMebibytes)
		for _, c := range ratioContenders {
			fmt.Fprintf(&b, " %.3f |", x.HitRatio[c.name])
		}
		fmt.Fprintf(&b, " %.1f MiB | %.1f MiB |\n", x.HeapMebibytes[ours.name], x.HeapMebibytes[library.name])
	}
	fmt.Fprintf(&b, "\n## Costs of one operation\n\nMedians of %d rounds with least and most; each includes the hash of the input. *CPU* is that of the process, including the garbage collector. "+
		"Misses go to a full cache of %d MiB.\n\n| operation | cache | ns | CPU ns | allocations | bytes allocated |\n|---|---|---|---|---|---|\n", r.Rounds, costMebibytes)
	for _, c := range r.Costs {
		for _, name := range []string{ours.name, library.name} {
			of := func(f func(Sample) float64) []float64 {
				return results.Each(c.Rounds, func(m map[string]Sample) float64 { return f(m[name]) })
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f | %.0f |\n", c.costKind, name,
				results.Spread(0, of(func(s Sample) float64 { return s.Nanos })), results.Spread(0, of(func(s Sample) float64 { return s.CPUNanos })),
				results.Median(of(func(s Sample) float64 { return s.Allocs })), results.Median(of(func(s Sample) float64 { return s.HeapBytes })))
		}
	}
	b.WriteString("\n" + needs)
	return b.String()
}

// Figures implements results.Illustrated. The figure has a panel for each bound, with a group of bars for each workload and sizing.
func (r *Report) Figures() ([]results.Figure, error) {
	var panels []*plot.Plot
	for _, mebibytes := range cacheMebibytes {
		p, err := r.panel(mebibytes)
		if err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	svg, err := plots.SVG(30*vg.Centimeter, 8*vg.Centimeter, plots.Grid(1, panels...))
	return []results.Figure{{Name: r.Name("cache"), Alt: "hit ratios", SVG: svg}}, err
}

func (r *Report) panel(mebibytes int) (*plot.Plot, error) {
	p := plots.Panel(fmt.Sprintf("hit ratio in %d MiB", mebibytes), "", "hits / requests")
	p.Y.Max = 1
	rows := results.Where(r.Ratios, func(x Ratio) bool { return x.MaxMebibytes == mebibytes })
	var labels []string
	for _, x := range rows {
		labels = append(labels, x.Workload+"\n"+x.Sizes)
	}
	var all []plots.Series
	for i, c := range ratioContenders {
		all = append(all, plots.Series{Label: c.name, Values: results.Each(rows, func(x Ratio) float64 { return x.HitRatio[c.name] }), Color: plots.Palette[i]})
	}
	return p, plots.Bars(p, 14, labels, all...)
}
