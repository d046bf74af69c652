package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/plots"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// The figures, arranged as in the paper: panels side by side.

const (
	panelWidth  = 8 * vg.Centimeter
	panelHeight = 6 * vg.Centimeter
)

// pale is the colour of the queries on which the models do not agree.
var pale = color.RGBA{R: 0xd8, G: 0xc3, B: 0xb3, A: 0xff}

// Figures implements results.Illustrated.
func (r *Report) Figures() ([]results.Figure, error) {
	return plots.Paper(r.Taken, panelWidth, panelHeight,
		plots.Drawing{Number: "7", Measured: len(r.Ensembles) > 0, Panels: r.figure7},
		plots.Drawing{Number: "8", Measured: r.Degradation != nil, Panels: r.figure8},
		plots.Drawing{Number: "9", Measured: r.Stragglers != nil, Panels: r.figure9},
		plots.Drawing{Number: "10", Measured: r.Personal != nil, Panels: r.figure10})
}

// curve adds points whose values are multiplied by scale.
func curve(p *plot.Plot, points []Point, scale float64, s plots.Style, label string) error {
	xys := make(plotter.XYs, len(points))
	for i, q := range points {
		xys[i] = plotter.XY{X: float64(q.After), Y: q.Value * scale}
	}
	return plots.Curve(p, xys, s, label)
}

// bar adds a bar from left to right, with its height written above.
func bar(p *plot.Plot, left, right, height float64, c color.Color) error {
	box, err := plotter.NewPolygon(plotter.XYs{{X: left, Y: 0}, {X: right, Y: 0}, {X: right, Y: height}, {X: left, Y: height}})
	if err != nil {
		return err
	}
	box.Color, box.LineStyle.Width = c, 0
	p.Add(box)
	return plots.Labels(p, plotter.XYs{{X: (left + right) / 2, Y: height}}, []string{fmt.Sprintf("%.1f", height)})
}

// figure7 returns a panel for each data set: the best single model, the ensemble, and the queries on which at least four and all five models
// agree or do not agree. The width of those bars is their share.
func (r *Report) figure7() ([][]*plot.Plot, error) {
	var panels []*plot.Plot
	for i := range r.Ensembles {
		e := &r.Ensembles[i]
		p := plots.Panel(e.Title, "", "error, %")
		ensemble := e.Policies[0]
		for _, b := range []struct {
			left, right, error float64
			color              color.Color
		}{{0, 1, e.best().Error, plots.Faint}, {1.2, 2.2, ensemble.Error, plots.Ink}} {
			if err := bar(p, b.left, b.right, 100*b.error, b.color); err != nil {
				return nil, err
			}
		}
		ticks := []plot.Tick{{Value: 0.5, Label: "best single"}, {Value: 1.7, Label: "ensemble"}}
		left := 2.4
		for k := len(e.Models) - 1; k <= len(e.Models); k++ {
			sure, unsure := split(ensemble.Groups, k)
			ticks = append(ticks, plot.Tick{Value: left + 0.6, Label: map[bool]string{true: "all agree | not", false: fmt.Sprintf("%d+ agree | not", k)}[k == len(e.Models)]})
			if err := bar(p, left, left+1.2*sure.Share, 100*sure.Error, plots.Accent); err != nil {
				return nil, err
			}
			if err := bar(p, left+1.2*sure.Share, left+1.2, 100*unsure.Error, pale); err != nil {
				return nil, err
			}
			left += 1.4
		}
		p.X.Tick.Marker = plot.ConstantTicks(ticks)
		p.X.Min, p.X.Max, p.Y.Min = -0.1, left, 0
		p.Y.Max *= 1.15
		panels = append(panels, p)
	}
	return [][]*plot.Plot{panels}, nil
}

// figure8 returns the cumulative errors, and how often policies that choose one model chose the one that was degraded.
func (r *Report) figure8() ([][]*plot.Plot, error) {
	d := r.Degradation
	errors, shares := plots.Panel("error so far", "queries", "error, %"), plots.Panel("share of the model that is degraded", "queries", "%")
	for i := range d.Statics {
		label := ""
		if i == 0 {
			label = "static choices"
		}
		if err := curve(errors, d.Statics[i].Curve, 100, plots.Style{Color: plots.Faint}, label); err != nil {
			return nil, err
		}
	}
	for i := range d.Policies {
		c := plots.Palette[i%len(plots.Palette)]
		if err := curve(errors, d.Policies[i].Curve, 100, plots.Style{Color: c}, d.Policies[i].Name); err != nil {
			return nil, err
		}
		if len(d.Policies[i].Best) > 0 {
			if err := curve(shares, d.Policies[i].Best, 100, plots.Style{Color: c}, d.Policies[i].Name); err != nil {
				return nil, err
			}
		}
	}
	errors.Y.Min, shares.Y.Min, shares.Y.Max = 0, 0, 140 // room for the legends
	errors.Y.Max *= 1.5
	return [][]*plot.Plot{{errors, shares}}, nil
}

// figure9 returns latency, missing predictions and accuracy by the size of the ensemble.
func (r *Report) figure9() ([][]*plot.Plot, error) {
	latency, missing, accuracy := plots.Panel("latency", "members", "ms"), plots.Panel("missing predictions", "members", "%"), plots.Panel("accuracy", "members", "%")
	series := func(mitigated bool, value func(StragglerPoint) float64) (out []Point) {
		for _, p := range r.Stragglers.Points {
			if p.Mitigated == mitigated {
				out = append(out, Point{p.Members, value(p)})
			}
		}
		return out
	}
	for _, c := range []struct {
		on        *plot.Plot
		mitigated bool
		value     func(StragglerPoint) float64
		style     plots.Style
		label     string
	}{
		{latency, false, func(p StragglerPoint) float64 { return p.Latency.P99 }, plots.Style{Color: plots.Accent, Dots: true}, "waits for all, P99"},
		{latency, false, func(p StragglerPoint) float64 { return p.Latency.Mean }, plots.Style{Color: plots.Accent, Dashed: true, Dots: true}, "waits for all, mean"},
		{latency, true, func(p StragglerPoint) float64 { return p.Latency.P99 }, plots.Style{Color: plots.Ink, Dots: true}, "by 20 ms, P99"},
		{latency, true, func(p StragglerPoint) float64 { return p.Latency.Mean }, plots.Style{Color: plots.Ink, Dashed: true, Dots: true}, "by 20 ms, mean"},
		{missing, true, func(p StragglerPoint) float64 { return 100 * p.MissingP99 }, plots.Style{Color: plots.Ink, Dots: true}, "P99 of queries"},
		{missing, true, func(p StragglerPoint) float64 { return 100 * p.Missing }, plots.Style{Color: plots.Ink, Dashed: true, Dots: true}, "mean"},
		{accuracy, false, func(p StragglerPoint) float64 { return 100 * p.Accuracy }, plots.Style{Color: plots.Accent, Dots: true}, "waits for all"},
		{accuracy, true, func(p StragglerPoint) float64 { return 100 * p.Accuracy }, plots.Style{Color: plots.Ink, Dots: true}, "by 20 ms"},
	} {
		if err := curve(c.on, series(c.mitigated, c.value), 1, c.style, c.label); err != nil {
			return nil, err
		}
	}
	latency.Y.Min, missing.Y.Min = 0, 0
	latency.Y.Max *= 1.35
	missing.Y.Max *= 1.2
	accuracy.Legend.Top = false
	return [][]*plot.Plot{{latency, missing, accuracy}}, nil
}

// figure10 returns the error by feedback.
func (r *Report) figure10() ([][]*plot.Plot, error) {
	p := r.Personal
	f := plots.Panel("", "feedback of a user so far", "error, %")
	for i := range p.Policies {
		if err := curve(f, p.Policies[i].Curve, 100, plots.Style{Color: plots.Palette[i%len(plots.Palette)], Dots: true}, p.Policies[i].Name); err != nil {
			return nil, err
		}
	}
	for _, s := range []struct {
		value float64
		style plots.Style
		label string
	}{{p.Global, plots.Style{Color: plots.Faint}, "global model"}, {p.Reported, plots.Style{Color: plots.Accent, Dashed: true}, "reported group's model"}} {
		if err := plots.Level(f, 0, float64(p.FeedbackPerUser), 100*s.value, s.style, s.label); err != nil {
			return nil, err
		}
	}
	f.Y.Min = 0
	f.Y.Max *= 1.4
	return [][]*plot.Plot{{f}}, nil
}
