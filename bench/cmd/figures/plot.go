package main

import (
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/plots"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// The figures, arranged as in the paper: panels side by side.

const (
	panelWidth  = 6.2 * vg.Centimeter
	panelHeight = 5 * vg.Centimeter
	barWidth    = 22
)

// Figures implements results.Illustrated.
func (r *Report) Figures() ([]results.Figure, error) {
	return plots.Paper(r.Taken, panelWidth, panelHeight,
		plots.Drawing{Number: "3", Measured: len(r.Profiles) > 0, Panels: r.figure3},
		plots.Drawing{Number: "4", Measured: len(r.Comparisons) > 0, Panels: r.figure4},
		plots.Drawing{Number: "5", Measured: len(r.Delays) > 0, Panels: r.figure5})
}

// figure3 returns a panel for each container: P99 by size of batch, the line through the means, the objective.
func (r *Report) figure3() ([][]*plot.Plot, error) {
	var panels []*plot.Plot
	for _, m := range r.Profiles {
		p := plots.Panel(m.Title, "batch size", "P99 latency, ms")
		var points plotter.XYs
		for _, q := range m.Points {
			points = append(points, plotter.XY{X: float64(q.Queries), Y: q.P99Millis})
		}
		most := points[len(points)-1].X
		if err := plots.Curve(p, points, plots.Style{Color: plots.Ink, OnlyDots: true}, ""); err != nil {
			return nil, err
		}
		if err := plots.Curve(p, plotter.XYs{{X: 0, Y: m.Line.FixedMillis}, {X: most, Y: m.Line.at(most)}}, plots.Style{Color: plots.Ink}, ""); err != nil {
			return nil, err
		}
		if err := plots.Level(p, 0, most, objectiveMillis, plots.Style{Color: plots.Accent}, ""); err != nil {
			return nil, err
		}
		p.X.Min, p.Y.Min = 0, 0
		panels = append(panels, p)
	}
	return plots.Grid(3, panels...), nil
}

// figure4 returns throughput above and P99 below, with a column for each container and a bar for each strategy.
func (r *Report) figure4() ([][]*plot.Plot, error) {
	rows := make([][]*plot.Plot, 2)
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		var names []string
		var qps, p99 plotter.Values
		best := c.best()
		for j := range c.Strategies {
			s := &c.Strategies[j]
			if s.Static > 0 && s != best {
				continue
			}
			names = append(names, s.Name)
			if s == best {
				names[len(names)-1] = "best static"
			}
			qps, p99 = append(qps, results.Median(results.Each(s.Rounds, throughput))/1e3), append(p99, s.P99Millis)
		}
		for k, of := range []struct {
			what   string
			values plotter.Values
		}{{"thousand queries/s", qps}, {"P99 of a batch, ms", p99}} {
			p := plots.Panel(c.Title, "", of.what)
			if err := plots.Bars(p, barWidth, names, plots.Series{Values: of.values, Color: plots.Ink}); err != nil {
				return nil, err
			}
			var tops plotter.XYs
			var texts []string
			for i, v := range of.values {
				tops, texts = append(tops, plotter.XY{X: float64(i), Y: v}), append(texts, short(v))
			}
			if err := plots.Labels(p, tops, texts); err != nil {
				return nil, err
			}
			if k == 1 {
				if err := plots.Level(p, -0.5, float64(len(names))-0.5, objectiveMillis, plots.Style{Color: plots.Accent}, ""); err != nil {
					return nil, err
				}
			}
			p.X.Min, p.X.Max, p.Y.Min = -0.5, float64(len(names))-0.5, 0
			p.Y.Max *= 1.15
			rows[k] = append(rows[k], p)
		}
	}
	return rows, nil
}

// short formats a number with three digits, or all digits before the point.
func short(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// figure5 returns a panel for each of four quantities by delay, with a curve for each model.
func (r *Report) figure5() ([][]*plot.Plot, error) {
	var panels []*plot.Plot
	for _, of := range []struct {
		what  string
		value func(DelaySample) float64
	}{
		{"queries/s", func(s DelaySample) float64 { return s.QPS }},
		{"mean batch", func(s DelaySample) float64 { return s.MeanBatch }},
		{"container's CPU, µs/query", func(s DelaySample) float64 { return s.CPUMicros }},
		{"P99 latency, ms", func(s DelaySample) float64 { return s.P99Millis }},
	} {
		p := plots.Panel("", "delay, ms", of.what)
		for i := range r.Delays {
			d := &r.Delays[i]
			var points plotter.XYs
			for j := range d.Delays {
				points = append(points, plotter.XY{X: d.Delays[j].HoldMillis, Y: d.Delays[j].median(of.value)})
			}
			c := []color.Color{plots.Ink, plots.Accent, plots.Faint}[min(i, 2)]
			if err := plots.Curve(p, points, plots.Style{Color: c, Dots: true}, d.Title); err != nil {
				return nil, err
			}
		}
		p.X.Min, p.Y.Min = 0, 0
		p.Y.Max *= 1.3
		panels = append(panels, p)
	}
	return plots.Grid(2, panels...), nil
}
