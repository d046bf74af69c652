package main

import (
	"bytes"
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report is what the program saw.
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
called with what a prediction cache needs around it: a 128-bit key, inputs compared byte by byte, entries weighed by their bytes. Plain CLOCK is simulated, with entries
as large as ours.

`

const needs = `## What is needed, and who has it

| | ours | otter |
|---|---|---|
| bound in bytes, with bookkeeping | counted exactly | a weigher, which has to estimate the bookkeeping; passed for moments |
| 128-bit key, verified by equality | in the look-up | on top of it |
| identical queries in flight, each with its own deadline | a flight with waiters that can be cancelled | its loader blocks each caller: to be built beside it |
| a pending entry is never evicted, a failed one never stays | yes | to be built beside it |
| all entries of a version dropped at once | a flag, then a sweep | to be built beside it: the version in the key, and a walk |
| no allocation, nothing for the collector to look at | blocks, reused | an entry, a body and a node for each miss |

`

// Markdown is the report for people.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("The prediction cache against a library"))
	b.WriteString(preface)
	fmt.Fprintf(&b, "## Hit ratios at equal bytes\n\n%d requests each, seed %d; the first tenth is not counted. An output has %d B. "+
		"Otter's entries are weighed with %d B of bookkeeping each (measured: %.0f). *heap* is by how much it had grown at the end.\n\n",
		r.Requests, r.Seed, outputBytes, otterOverheadBytes, r.OtterOverheadBytes)
	for _, w := range workloads(shiftEvery, r.Seed) {
		fmt.Fprintf(&b, "* **%s**: %s\n", w.Name, w.About)
	}
	for _, z := range sizings {
		fmt.Fprintf(&b, "* sizes **%s**: %s\n", z.Name, z.About)
	}
	b.WriteString("\n| requests | sizes | bytes |")
	for _, c := range ratioContenders {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString(" heap, xebec | heap, otter |\n|---|---|---|" + strings.Repeat("---|", len(ratioContenders)) + "---|---|\n")
	for _, x := range r.Ratios {
		fmt.Fprintf(&b, "| %s | %s | %d MiB |", x.Workload, x.Sizes, x.MaxMebibytes)
		for _, c := range ratioContenders {
			fmt.Fprintf(&b, " %.3f |", x.HitRatio[c.name])
		}
		fmt.Fprintf(&b, " %.1f MiB | %.1f MiB |\n", x.HeapMebibytes[ours.name], x.HeapMebibytes[library.name])
	}
	fmt.Fprintf(&b, "\n## Costs of one operation\n\nMedians of %d rounds with least and most; the hash of the input is part of each. *CPU* is the process's, collector included. "+
		"Misses go to a full cache of %d MiB.\n\n| operation | who | ns | CPU ns | allocations | bytes allocated |\n|---|---|---|---|---|---|\n", r.Rounds, costMebibytes)
	for _, c := range r.Costs {
		for _, who := range []string{ours.name, library.name} {
			of := func(f func(Sample) float64) []float64 {
				return results.Each(c.Rounds, func(m map[string]Sample) float64 { return f(m[who]) })
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f | %.0f |\n", c.costKind, who,
				results.Spread(0, of(func(s Sample) float64 { return s.Nanos })), results.Spread(0, of(func(s Sample) float64 { return s.CPUNanos })),
				results.Median(of(func(s Sample) float64 { return s.Allocs })), results.Median(of(func(s Sample) float64 { return s.HeapBytes })))
		}
	}
	b.WriteString("\n" + needs)
	return b.String()
}

// colours of the contenders, in their order; safe for colour-blind readers (Okabe and Ito).
var colours = []color.Color{color.RGBA{0, 114, 178, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{120, 120, 120, 255}}

// figure has a panel for each bound, with a group of bars for each workload and sizing.
func (r *Report) figure() ([]byte, error) {
	const width, height = 30 * vg.Centimeter, 8 * vg.Centimeter
	canvas := vgsvg.New(width, height*vg.Length(len(cacheMebibytes)))
	var rows [][]*plot.Plot
	for _, mebibytes := range cacheMebibytes {
		p, err := r.panel(mebibytes)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []*plot.Plot{p})
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 4 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		rows[i][0].Draw(row[0])
	}
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

func (r *Report) panel(mebibytes int) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = fmt.Sprintf("hit ratio in %d MiB", mebibytes), "hits / requests"
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size, p.X.Tick.Label.Font.Size = 8, 8
	var labels []string
	const barWidth = vg.Length(14)
	for i, c := range ratioContenders {
		var heights plotter.Values
		for _, x := range r.Ratios {
			if x.MaxMebibytes != mebibytes {
				continue
			}
			heights = append(heights, x.HitRatio[c.name])
			if i == 0 {
				labels = append(labels, x.Workload+"\n"+x.Sizes)
			}
		}
		bars, err := plotter.NewBarChart(heights, barWidth)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = colours[i], 0, barWidth*vg.Length(i-1)
		p.Add(bars)
		p.Legend.Add(c.name, bars)
	}
	p.NominalX(labels...)
	return p, nil
}
