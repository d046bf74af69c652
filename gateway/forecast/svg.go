package forecast

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// The picture in pixels. It has three panels below each other, over the same time.
const (
	figureWidth, figureHeight = 960, 700
	panelLeft, panelWidth     = 80, 850
	panelTop, panelHeight     = 84, 160
	panelPitch                = 192
)

// These are colours of Okabe and Ito, which colour-blind people can tell apart, darkened for a white background.
const (
	blue, orange, green, red = "#0072B2", "#F0B040", "#007050", "#C04A00"
	ink, pale                = "#222222", "#DDDDDD"
)

// curve is one line of a panel.
type curve struct {
	name, colour string
	dashed       bool
	width        float64
	// steps draws right angles between points: a count jumps.
	steps  bool
	values []float64
}

// panel is a diagram in the picture.
type panel struct {
	title  string
	curves []curve
	// least is the smallest value at the top of the axis.
	least float64
	whole bool // ticks are whole numbers
}

// SVG draws the day: the queries, the replicas and the missed queries.
func (p *Plan) SVG() []byte {
	n := len(p.Day.Series)
	rate, missed, wanted, ready, fixed := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	for i, s := range p.Day.Series {
		rate[i], missed[i], wanted[i], ready[i], fixed[i] = s.Rate, s.Missed, float64(s.Wanted), float64(s.Ready), float64(p.Recommended.Replicas)
	}
	panels := []panel{
		{title: "Queries (per second)", curves: []curve{{name: "arrivals", colour: blue, width: 1.6, values: rate}}, least: 1e-3},
		{title: "Replicas", whole: true, least: 1, curves: []curve{
			{name: "fixed number", colour: ink, width: 1.6, dashed: true, steps: true, values: fixed},
			{name: "wanted by the autoscaler", colour: orange, width: 4, steps: true, values: wanted}, // wide, so that it shows behind the next curve
			{name: "ready", colour: green, width: 1.6, steps: true, values: ready},
		}},
		{title: "Missed (queries per second)", curves: []curve{{name: "missed under the autoscaler", colour: red, width: 1.6, steps: true, values: missed}}, least: 1},
	}
	d := drawing{span: time.Duration(p.Traffic.Seconds * float64(time.Second))}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">`,
		figureWidth, figureHeight, figureWidth, figureHeight, ink)
	d.put(`<title>%s</title>`, text(p.headline()))
	d.put(`<rect width="100%%" height="100%%" fill="white"/>`)
	d.put(`<text x="%d" y="28" font-size="16" font-weight="bold">%s</text>`, panelLeft, text(p.headline()))
	d.put(`<text x="%d" y="48">%s</text>`, panelLeft, text(p.summary()))
	for i := range panels {
		d.panel(&panels[i], panelTop+i*panelPitch, i == len(panels)-1)
	}
	d.put(`</svg>`)
	return d.Bytes()
}

func (p *Plan) headline() string {
	traffic := fmt.Sprintf("%s to %s queries per second, %s", numerals.Short(p.Traffic.Low), numerals.Short(p.Traffic.Peak), p.Traffic.Shape)
	if p.Traffic.Low == p.Traffic.Peak {
		traffic = fmt.Sprintf("%s queries per second, %s", numerals.Short(p.Traffic.Peak), p.Traffic.Shape)
	}
	return fmt.Sprintf("%s; a batch takes %s, %s%% within %s", traffic, p.Profile.Profile(), numerals.Short(p.Percentile), millis(p.SLOMillis))
}

func (p *Plan) summary() string {
	a, f := &p.Day.Autoscaler, &p.Day.Fixed
	return fmt.Sprintf("Autoscaler: %s replica-hours, at most %d replicas, %s missed. Fixed at %d: %s replica-hours, %s missed. Rates are means over %s.",
		numerals.Short(a.ReplicaHours), a.Peak, Percent(a.MissedPart), p.Recommended.Replicas, numerals.Short(f.ReplicaHours), Percent(f.MissedPart),
		span(p.Traffic.Seconds*1e9/points))
}

func millis(ms float64) string { return time.Duration(ms * 1e6).String() }

// Percent writes a fraction for a column of them. Only 0 is written as 0.
func Percent(fraction float64) string {
	switch {
	case fraction > 0 && fraction < 0.00005:
		return "<0.01%"
	case fraction < 0.0995:
		return fmt.Sprintf("%.2f%%", 100*fraction)
	}
	return fmt.Sprintf("%.1f%%", 100*fraction)
}

// drawing collects SVG.
type drawing struct {
	bytes.Buffer
	span time.Duration
}

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// text escapes a string.
func text(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // writing to a buffer does not fail
	return b.String()
}

func (d *drawing) panel(p *panel, top int, last bool) {
	most := p.least
	for _, c := range p.curves {
		for _, v := range c.values {
			most = max(most, v)
		}
	}
	step := tick(most, 4)
	if p.whole {
		step = max(1, math.Round(step))
	}
	most = math.Ceil(most/step-1e-9) * step
	if p.whole {
		most += step // a line along the edge would be hard to see
	}
	bottom := float64(top + panelHeight)
	y := func(v float64) float64 { return bottom - v/most*panelHeight }
	d.put(`<g>`)
	d.put(`<text x="%d" y="%d" font-weight="bold">%s</text>`, panelLeft, top-8, text(p.title))
	for v := 0.0; v <= most*(1+1e-9); v += step {
		d.put(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s"/>`, panelLeft, panelLeft+panelWidth, y(v), y(v), pale)
		d.put(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`, panelLeft-8, y(v)+4, strconv.FormatFloat(v, 'g', 6, 64))
	}
	d.times(bottom, top, last)
	legend := float64(panelLeft + panelWidth)
	for i := len(p.curves) - 1; i >= 0; i-- {
		c := &p.curves[i]
		legend -= 6.5*float64(len(c.name)) + 44
		d.put(`<line x1="%.0f" x2="%.0f" y1="%d" y2="%d" stroke="%s" stroke-width="%g"%s/>`, legend, legend+24, top-12, top-12, c.colour, c.width, c.dashes())
		d.put(`<text x="%.0f" y="%d">%s</text>`, legend+30, top-8, text(c.name))
	}
	for i := range p.curves {
		d.curve(&p.curves[i], y)
	}
	d.put(`</g>`)
}

func (c *curve) dashes() string {
	if c.dashed {
		return ` stroke-dasharray="6 4"`
	}
	return ""
}

func (d *drawing) curve(c *curve, y func(float64) float64) {
	d.put(`<path data-series="%s" fill="none" stroke="%s" stroke-width="%g"%s d="`, text(c.name), c.colour, c.width, c.dashes())
	width := panelWidth / float64(len(c.values))
	for i, v := range c.values {
		left := panelLeft + float64(i)*width
		switch {
		case c.steps && i == 0:
			d.put("M%.1f %.1f H%.1f", left, y(v), left+width)
		case c.steps:
			if v != c.values[i-1] {
				d.put("V%.1f", y(v))
			}
			d.put("H%.1f", left+width)
		case i == 0:
			d.put("M%.1f %.1f", left+width/2, y(v))
		default:
			d.put("L%.1f %.1f", left+width/2, y(v))
		}
	}
	d.put(`"/>`)
}

// times draws the time axis. Only the last panel has numbers.
func (d *drawing) times(bottom float64, top int, numbers bool) {
	unit, name := time.Hour, "hours"
	switch {
	case d.span < 10*time.Minute:
		unit, name = time.Second, "seconds"
	case d.span < 5*time.Hour:
		unit, name = time.Minute, "minutes"
	case d.span > 7*day:
		unit, name = day, "days"
	}
	all := float64(d.span) / float64(unit)
	step := tick(all, 10)
	if unit == time.Hour && all <= 24 { // hours are easiest to read in threes
		step = max(1, math.Ceil(all/8))
	}
	for v := 0.0; v <= all*(1+1e-9); v += step {
		x := panelLeft + v/all*panelWidth
		d.put(`<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke="%s"/>`, x, x, top, bottom, pale)
		if numbers {
			d.put(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x, bottom+18, strconv.FormatFloat(v, 'g', 6, 64))
		}
	}
	if numbers {
		d.put(`<text x="%d" y="%.1f" text-anchor="middle" font-weight="bold">Time (%s)</text>`, panelLeft+panelWidth/2, bottom+38, name)
	}
}

// tick is 1, 2 or 5 times a power of ten, chosen so that at most count ticks reach up to most.
func tick(most, count float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most/count)))
	for _, times := range []float64{1, 2, 5} {
		if most/(unit*times) <= count+1e-9 {
			return unit * times
		}
	}
	return 10 * unit
}
