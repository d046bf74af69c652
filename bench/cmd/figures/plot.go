package main

import (
	"bytes"
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// The figures, arranged as in the paper: panels side by side.

const (
	panelWidth  = 6.2 * vg.Centimeter
	panelHeight = 5 * vg.Centimeter
	barWidth    = 22
)

var (
	ink    = color.RGBA{R: 0x1f, G: 0x3b, B: 0x73, A: 0xff}
	second = color.RGBA{R: 0xb3, G: 0x54, B: 0x1e, A: 0xff}
	faint  = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}
)

// panel is an empty plot with small letters.
func panel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size = 10
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = 8, 8
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 7, 7
	p.Legend.TextStyle.Font.Size = 7
	p.X.Min, p.Y.Min = 0, 0
	return p
}

// svg draws panels row by row.
func svg(rows [][]*plot.Plot) ([]byte, error) {
	canvas := vgsvg.New(panelWidth*vg.Length(len(rows[0])), panelHeight*vg.Length(len(rows)))
	tiles := draw.Tiles{Rows: len(rows), Cols: len(rows[0]), PadX: 4 * vg.Millimeter, PadY: 4 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter}
	for i, row := range plot.Align(rows, tiles, draw.New(canvas)) {
		for j, c := range row {
			if rows[i][j] != nil {
				rows[i][j].Draw(c)
			}
		}
	}
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

// grid arranges panels in rows of at most columns; the last row may have gaps.
func grid(panels []*plot.Plot, columns int) [][]*plot.Plot {
	columns = min(columns, len(panels))
	var rows [][]*plot.Plot
	for len(panels) > 0 {
		row := make([]*plot.Plot, columns)
		n := copy(row, panels)
		panels = panels[n:]
		rows = append(rows, row)
	}
	return rows
}

// curve adds points joined by a line, or alone.
func curve(p *plot.Plot, points plotter.XYs, c color.Color, joined, dots bool, label string) error {
	var thumbs []plot.Thumbnailer
	if joined {
		l, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		l.Color = c
		p.Add(l)
		thumbs = append(thumbs, l)
	}
	if dots {
		s, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		s.Color, s.Shape, s.Radius = c, draw.CircleGlyph{}, 2
		p.Add(s)
		thumbs = append(thumbs, s)
	}
	if label != "" {
		p.Legend.Add(label, thumbs...)
	}
	return nil
}

// figure3 has a panel for each container: P99 by size of batch, the line through the means, the objective.
func (r *Report) figure3() ([]byte, error) {
	var panels []*plot.Plot
	for _, m := range r.Profiles {
		p := panel(m.Title, "batch size", "P99 latency, ms")
		var points plotter.XYs
		for _, q := range m.Points {
			points = append(points, plotter.XY{X: float64(q.Queries), Y: q.P99Millis})
		}
		most := points[len(points)-1].X
		if err := curve(p, points, ink, false, true, ""); err != nil {
			return nil, err
		}
		if err := curve(p, plotter.XYs{{X: 0, Y: m.Line.FixedMillis}, {X: most, Y: m.Line.at(most)}}, ink, true, false, ""); err != nil {
			return nil, err
		}
		if err := curve(p, plotter.XYs{{X: 0, Y: objectiveMillis}, {X: most, Y: objectiveMillis}}, second, true, false, ""); err != nil {
			return nil, err
		}
		p.X.Min, p.Y.Min = 0, 0
		panels = append(panels, p)
	}
	return svg(grid(panels, 3))
}

// figure4 has throughput above and P99 below, a column for each container, a bar for each strategy.
func (r *Report) figure4() ([]byte, error) {
	rows := make([][]*plot.Plot, 2)
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		var names []string
		var qps, p99 plotter.Values
		best := bestStatic(c.Strategies, objectiveMillis)
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
			p := panel(c.Title, "", of.what)
			bars, err := plotter.NewBarChart(of.values, barWidth)
			if err != nil {
				return nil, err
			}
			bars.Color, bars.LineStyle.Width = ink, 0
			p.Add(bars)
			if err := label(p, of.values); err != nil {
				return nil, err
			}
			if k == 1 {
				if err := curve(p, plotter.XYs{{X: -0.5, Y: objectiveMillis}, {X: float64(len(names)) - 0.5, Y: objectiveMillis}}, second, true, false, ""); err != nil {
					return nil, err
				}
			}
			p.NominalX(names...)
			p.X.Min, p.X.Max, p.Y.Min = -0.5, float64(len(names))-0.5, 0
			p.Y.Max *= 1.15
			rows[k] = append(rows[k], p)
		}
	}
	return svg(rows)
}

// label writes each value above its bar.
func label(p *plot.Plot, values plotter.Values) error {
	text := plotter.XYLabels{}
	for i, v := range values {
		text.XYs = append(text.XYs, plotter.XY{X: float64(i), Y: v})
		text.Labels = append(text.Labels, short(v))
	}
	labels, err := plotter.NewLabels(text)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Size, labels.TextStyle[i].XAlign = 7, draw.XCenter
	}
	labels.Offset.Y = 2
	p.Add(labels)
	return nil
}

// short is a number with three digits or all before the point.
func short(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// figure5 has a panel for each of four things by delay, a curve for each model.
func (r *Report) figure5() ([]byte, error) {
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
		p := panel("", "delay, ms", of.what)
		for i := range r.Delays {
			d := &r.Delays[i]
			var points plotter.XYs
			for j := range d.Delays {
				points = append(points, plotter.XY{X: d.Delays[j].HoldMillis, Y: d.Delays[j].median(of.value)})
			}
			c := []color.Color{ink, second, faint}[min(i, 2)]
			if err := curve(p, points, c, true, true, d.Title); err != nil {
				return nil, err
			}
		}
		p.X.Min, p.Y.Min = 0, 0
		p.Y.Max *= 1.3
		p.Legend.Top = true
		panels = append(panels, p)
	}
	return svg(grid(panels, 2))
}
