package main

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/plots"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

const figureHeight = 9 * vg.Centimeter

// drawing is a figure before it becomes SVG.
type drawing struct {
	name  string // file name without date and kind
	width vg.Length
	plot  func() (*plot.Plot, error)
}

// drawAll draws figures that are called DATE-kind-NAME.
func drawAll(cfg *config, kind string, all []drawing) ([]results.Figure, error) {
	var figures []results.Figure
	for _, d := range all {
		p, err := d.plot()
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", d.name, err)
		}
		svg, err := plots.SVG(d.width, figureHeight, [][]*plot.Plot{{p}})
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", d.name, err)
		}
		name := cfg.date + "-" + kind + "-" + d.name
		figures = append(figures, results.Figure{Name: name, Alt: name, SVG: svg})
	}
	return figures, nil
}

// drawFigures draws the figures of -compare.
func drawFigures(cfg *config, list []scenario, rows []row) ([]results.Figure, error) {
	width := vg.Length(4+2.6*float64(len(list))) * vg.Centimeter
	all := []drawing{
		{"goodput", width, func() (*plot.Plot, error) {
			return bars(list, rows, "answers in time, of those that were possible", "%", func(r row) float64 { return 100 * r.OfPossible })
		}},
		{"cost", width, func() (*plot.Plot, error) {
			return bars(list, rows, "replica seconds for 1,000 answers in time (at most 2 shown)", "s", func(r row) float64 {
				if r.SecondsPerThousand == 0 {
					return 2 // no answer at all
				}
				return min(2, r.SecondsPerThousand)
			})
		}},
	}
	for i := range list {
		s := &list[i]
		switch {
		case len(s.bursts) > 0:
			all = append(all, drawing{s.name, 24 * vg.Centimeter, func() (*plot.Plot, error) { return timeline(s, rows) }})
		case s.name == "overload":
			all = append(all, drawing{"overload-latency", 16 * vg.Centimeter, func() (*plot.Plot, error) { return distribution(s, rows) }})
		}
	}
	return drawAll(cfg, "sim", all)
}

// bars returns a group of bars for each scenario, with a bar for each policy.
func bars(list []scenario, rows []row, title, unit string, value func(row) float64) (*plot.Plot, error) {
	p := plots.Panel(title, "", unit)
	if len(list) == 0 {
		return p, nil
	}
	var all []plots.Series
	for i, policy := range sim.Policies {
		values := results.Each(results.Where(rows, func(r row) bool { return r.Policy == policy }), value)
		all = append(all, plots.Series{Label: policy.String(), Values: values, Color: plots.Palette[i]})
	}
	var names []string
	for i := range list {
		names = append(names, list[i].name)
	}
	err := plots.Bars(p, vg.Points(9), names, all...)
	p.X.Max = float64(len(list)) + 1 // room for the legend
	return p, err
}

// curves adds a curve for each policy in a scenario.
func curves(p *plot.Plot, s *scenario, rows []row, points func(r *row) plotter.XYs) error {
	for i := range rows {
		if r := &rows[i]; r.Scenario == s.name {
			line := points(r)
			if len(line) == 0 {
				continue // no answer in time
			}
			if err := plots.Curve(p, line, plots.Style{Color: plots.Palette[slices.Index(sim.Policies[:], r.Policy)], Width: vg.Points(1.5)}, r.Policy.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// timeline returns the answers in time over the run, for each policy.
func timeline(s *scenario, rows []row) (*plot.Plot, error) {
	p := plots.Panel(s.what, "s", "answers in time per second")
	const slots = 10 // 100 ms
	err := curves(p, s, rows, func(r *row) (line plotter.XYs) {
		for at := 0; at+slots <= len(r.total.Series); at += slots {
			sum := 0.0
			for _, slot := range r.total.Series[at : at+slots] {
				sum += float64(slot.Good)
			}
			line = append(line, plotter.XY{X: float64(at) * sim.SlotNanos / 1e9, Y: sum * 1e9 / (slots * sim.SlotNanos)})
		}
		return line
	})
	p.X.Max *= 1.2 // room for the legend
	return p, err
}

// distribution returns, for each policy, the fraction of the offered queries that were answered within a time.
func distribution(s *scenario, rows []row) (*plot.Plot, error) {
	p := plots.Panel(s.what, "ms", "% of the offered queries answered by then")
	p.Legend.Left = true
	const points = 100
	err := curves(p, s, rows, func(r *row) (line plotter.XYs) {
		for n := range points + 1 {
			part := float64(n) / points
			nanos := r.total.Quantile(part * float64(r.total.Good) / math.Max(1, float64(r.total.Good+r.total.Missed)))
			if nanos != math.MaxInt64 {
				line = append(line, plotter.XY{X: float64(nanos) / 1e6, Y: 100 * part * float64(r.total.Good) / float64(r.total.Offered)})
			}
		}
		return line
	})
	return p, err
}
