package main

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The figures, arranged as in the paper: panels side by side.

const (
	panelWidth  = 8 * vg.Centimeter
	panelHeight = 6 * vg.Centimeter
)

var (
	ink    = color.RGBA{R: 0x1f, G: 0x3b, B: 0x73, A: 0xff}
	second = color.RGBA{R: 0xb3, G: 0x54, B: 0x1e, A: 0xff}
	faint  = color.RGBA{R: 0xaa, G: 0xaa, B: 0xaa, A: 0xff}
	pale   = color.RGBA{R: 0xd8, G: 0xc3, B: 0xb3, A: 0xff}
	// palette is of policies, in their order.
	palette = []color.Color{
		ink, second, color.RGBA{R: 0x2e, G: 0x8b, B: 0x57, A: 0xff}, color.RGBA{R: 0x80, G: 0x3f, B: 0x98, A: 0xff}, color.RGBA{R: 0xc0, G: 0x90, B: 0x00, A: 0xff},
	}
)

// panel is an empty plot with small letters.
func panel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size = 10
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = 8, 8
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 7, 7
	p.Legend.TextStyle.Font.Size = 7
	p.Legend.Top = true
	p.X.Min, p.Y.Min = 0, 0
	return p
}

// svg draws panels side by side.
func svg(panels ...*plot.Plot) ([]byte, error) {
	canvas := vgsvg.New(panelWidth*vg.Length(len(panels)), panelHeight)
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: 4 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter}
	for i, c := range plot.Align([][]*plot.Plot{panels}, tiles, draw.New(canvas))[0] {
		panels[i].Draw(c)
	}
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

// style is how a curve is drawn.
type style struct {
	color  color.Color
	dashed bool
	dots   bool
}

func curve(p *plot.Plot, points []Point, scale float64, s style, label string) error {
	xys := make(plotter.XYs, len(points))
	for i, q := range points {
		xys[i] = plotter.XY{X: float64(q.After), Y: q.Value * scale}
	}
	l, err := plotter.NewLine(xys)
	if err != nil {
		return err
	}
	l.Color = s.color
	if s.dashed {
		l.Dashes = []vg.Length{3, 2}
	}
	p.Add(l)
	thumbs := []plot.Thumbnailer{l}
	if s.dots {
		dots, err := plotter.NewScatter(xys)
		if err != nil {
			return err
		}
		dots.Color, dots.Shape, dots.Radius = s.color, draw.CircleGlyph{}, 2
		p.Add(dots)
		thumbs = append(thumbs, dots)
	}
	if label != "" {
		p.Legend.Add(label, thumbs...)
	}
	return nil
}

// level is a value that does not change between two places.
func level(p *plot.Plot, from, to int, value, scale float64, s style, label string) error {
	return curve(p, []Point{{from, value}, {to, value}}, scale, s, label)
}

// bar stands from left to right, with its height written above.
func bar(p *plot.Plot, left, right, height float64, c color.Color) error {
	box, err := plotter.NewPolygon(plotter.XYs{{X: left, Y: 0}, {X: right, Y: 0}, {X: right, Y: height}, {X: left, Y: height}})
	if err != nil {
		return err
	}
	box.Color, box.LineStyle.Width = c, 0
	p.Add(box)
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: (left + right) / 2, Y: height}}, Labels: []string{fmt.Sprintf("%.1f", height)}})
	if err != nil {
		return err
	}
	labels.TextStyle[0].Font.Size, labels.TextStyle[0].XAlign = 7, draw.XCenter
	labels.Offset.Y = 2
	p.Add(labels)
	return nil
}

// figure7 has a panel for each set of data: the best single model, the ensemble, and for at least four and for all five models
// that agree the queries where they do and where they do not, as wide as their share.
func (r *Report) figure7() ([]byte, error) {
	var panels []*plot.Plot
	for i := range r.Ensembles {
		e := &r.Ensembles[i]
		p := panel(e.Title, "", "error, %")
		ensemble := e.Policies[0]
		for _, b := range []struct {
			left, right, error float64
			color              color.Color
		}{{0, 1, e.best().Error, faint}, {1.2, 2.2, ensemble.Error, ink}} {
			if err := bar(p, b.left, b.right, 100*b.error, b.color); err != nil {
				return nil, err
			}
		}
		ticks := []plot.Tick{{Value: 0.5, Label: "best single"}, {Value: 1.7, Label: "ensemble"}}
		left := 2.4
		for k := len(e.Models) - 1; k <= len(e.Models); k++ {
			sure, unsure := split(ensemble.Groups, k)
			ticks = append(ticks, plot.Tick{Value: left + 0.6, Label: map[bool]string{true: "all agree | not", false: fmt.Sprintf("%d+ agree | not", k)}[k == len(e.Models)]})
			if err := bar(p, left, left+1.2*sure.Share, 100*sure.Error, second); err != nil {
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
	return svg(panels...)
}

// figure8 has the errors so far, and how often policies that choose one model chose the one that was bad for a while.
func (r *Report) figure8() ([]byte, error) {
	d := r.Degradation
	errors, shares := panel("error so far", "queries", "error, %"), panel("share of the model that is degraded", "queries", "%")
	for i := range d.Statics {
		label := ""
		if i == 0 {
			label = "static choices"
		}
		if err := curve(errors, d.Statics[i].Curve, 100, style{color: faint}, label); err != nil {
			return nil, err
		}
	}
	for i := range d.Policies {
		c := palette[i%len(palette)]
		if err := curve(errors, d.Policies[i].Curve, 100, style{color: c}, d.Policies[i].Name); err != nil {
			return nil, err
		}
		if len(d.Policies[i].Best) > 0 {
			if err := curve(shares, d.Policies[i].Best, 100, style{color: c}, d.Policies[i].Name); err != nil {
				return nil, err
			}
		}
	}
	errors.Y.Min, shares.Y.Min, shares.Y.Max = 0, 0, 140 // room for the legends
	errors.Y.Max *= 1.5
	return svg(errors, shares)
}

// figure9 has latency, missing predictions and accuracy by the size of the ensemble.
func (r *Report) figure9() ([]byte, error) {
	latency, missing, accuracy := panel("latency", "members", "ms"), panel("missing predictions", "members", "%"), panel("accuracy", "members", "%")
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
		style     style
		label     string
	}{
		{latency, false, func(p StragglerPoint) float64 { return p.Latency.P99 }, style{second, false, true}, "waits for all, P99"},
		{latency, false, func(p StragglerPoint) float64 { return p.Latency.Mean }, style{second, true, true}, "waits for all, mean"},
		{latency, true, func(p StragglerPoint) float64 { return p.Latency.P99 }, style{ink, false, true}, "by 20 ms, P99"},
		{latency, true, func(p StragglerPoint) float64 { return p.Latency.Mean }, style{ink, true, true}, "by 20 ms, mean"},
		{missing, true, func(p StragglerPoint) float64 { return 100 * p.MissingP99 }, style{ink, false, true}, "P99 of queries"},
		{missing, true, func(p StragglerPoint) float64 { return 100 * p.Missing }, style{ink, true, true}, "mean"},
		{accuracy, false, func(p StragglerPoint) float64 { return 100 * p.Accuracy }, style{second, false, true}, "waits for all"},
		{accuracy, true, func(p StragglerPoint) float64 { return 100 * p.Accuracy }, style{ink, false, true}, "by 20 ms"},
	} {
		if err := curve(c.on, series(c.mitigated, c.value), 1, c.style, c.label); err != nil {
			return nil, err
		}
	}
	latency.Y.Min, missing.Y.Min = 0, 0
	latency.Y.Max *= 1.35
	missing.Y.Max *= 1.2
	accuracy.Legend.Top = false
	return svg(latency, missing, accuracy)
}

// figure10 has the error by feedback.
func (r *Report) figure10() ([]byte, error) {
	p := r.Personal
	f := panel("", "feedback of a user so far", "error, %")
	for i := range p.Policies {
		if err := curve(f, p.Policies[i].Curve, 100, style{palette[i%len(palette)], false, true}, p.Policies[i].Name); err != nil {
			return nil, err
		}
	}
	for _, s := range []struct {
		value float64
		style style
		label string
	}{{p.Global, style{color: faint}, "global model"}, {p.Reported, style{color: second, dashed: true}, "reported group's model"}} {
		if err := level(f, 0, p.FeedbackPerUser, s.value, 100, s.style, s.label); err != nil {
			return nil, err
		}
	}
	f.Y.Min = 0
	f.Y.Max *= 1.4
	return svg(f)
}
