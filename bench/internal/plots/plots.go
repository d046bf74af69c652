package plots

import (
	"bytes"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours of single series: Ink for the main one, Accent for what it is compared with, Faint for the background.
var (
	Ink    = color.RGBA{R: 0x1f, G: 0x3b, B: 0x73, A: 0xff}
	Accent = color.RGBA{R: 0xb3, G: 0x54, B: 0x1e, A: 0xff}
	Faint  = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}
)

// Palette holds the colours of several contenders. Colour-blind readers can tell them apart (Okabe and Ito).
var Palette = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{213, 94, 0, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{120, 120, 120, 255},
}

const padding = 2 * vg.Millimeter

// Panel returns an empty plot with small fonts. Both axes start at 0.
func Panel(title, x, y string) *plot.Plot {
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

// Grid arranges panels in rows of at most columns. The last row may have gaps, which are nil.
func Grid(columns int, panels ...*plot.Plot) [][]*plot.Plot {
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

// SVG draws rows of panels; width and height are those of one panel. The rows have the same length, and nil is a gap.
func SVG(width, height vg.Length, rows [][]*plot.Plot) ([]byte, error) {
	canvas := vgsvg.New(width*vg.Length(len(rows[0])), height*vg.Length(len(rows)))
	tiles := draw.Tiles{
		Rows: len(rows), Cols: len(rows[0]), PadX: 2 * padding, PadY: 2 * padding,
		PadTop: padding, PadBottom: padding, PadLeft: padding, PadRight: 2 * padding,
	}
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

// Style says how a curve is drawn: as a line, with dots at its points, or only as dots.
type Style struct {
	Color                  color.Color
	Width                  vg.Length // of the line; 0 means gonum's default
	Dashed, Dots, OnlyDots bool
}

// Curve adds points to a plot. An empty label leaves the curve out of the legend.
func Curve(p *plot.Plot, points plotter.XYs, s Style, label string) error {
	var thumbs []plot.Thumbnailer
	if !s.OnlyDots {
		l, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		l.Color = s.Color
		if s.Width > 0 {
			l.Width = s.Width
		}
		if s.Dashed {
			l.Dashes = []vg.Length{3, 2}
		}
		p.Add(l)
		thumbs = append(thumbs, l)
	}
	if s.Dots || s.OnlyDots {
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.Color, dots.Shape, dots.Radius = s.Color, draw.CircleGlyph{}, 2
		p.Add(dots)
		thumbs = append(thumbs, dots)
	}
	if label != "" {
		p.Legend.Add(label, thumbs...)
	}
	return nil
}

// Level adds a horizontal line at y between two places.
func Level(p *plot.Plot, from, to, y float64, s Style, label string) error {
	return Curve(p, plotter.XYs{{X: from, Y: y}, {X: to, Y: y}}, s, label)
}

// Series is one contender's bars, one for each group.
type Series struct {
	Label  string // in the legend; may be empty
	Values plotter.Values
	Color  color.Color
}

// Bars adds groups of bars, a bar for each series side by side. Names are those of the groups.
func Bars(p *plot.Plot, width vg.Length, names []string, all ...Series) error {
	for i, s := range all {
		bars, err := plotter.NewBarChart(s.Values, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = s.Color, 0
		bars.Offset = width * (vg.Length(i) - vg.Length(len(all)-1)/2)
		p.Add(bars)
		if s.Label != "" {
			p.Legend.Add(s.Label, bars)
		}
	}
	p.NominalX(names...)
	return nil
}

// Labels writes a text right above each of the points, centred.
func Labels(p *plot.Plot, points plotter.XYs, texts []string) error {
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: points, Labels: texts})
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
