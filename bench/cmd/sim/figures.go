package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"

	"github.com/xebec-serving/xebec/scheduler/sim"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// colours of the policies, in their order; safe for colour-blind readers (Okabe and Ito).
var colours = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{213, 94, 0, 255},
	color.RGBA{230, 159, 0, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{120, 120, 120, 255},
}

const figureHeight = 9 * vg.Centimeter

// drawFigures writes the figures of a report, as SVG, and returns their names.
func drawFigures(cfg *config, list []scenario, rows []row) ([]string, error) {
	var names []string
	save := func(name string, width vg.Length, p *plot.Plot) error {
		name = fmt.Sprintf("%s-sim-%s.svg", cfg.date, name)
		names = append(names, name)
		return p.Save(width, figureHeight, filepath.Join(cfg.out, name))
	}
	width := vg.Length(4+2.6*float64(len(list))) * vg.Centimeter
	goodput := bars(list, rows, "answers in time, of those that were possible", "%", func(r *row) float64 { return 100 * r.OfPossible })
	if err := save("goodput", width, goodput); err != nil {
		return nil, err
	}
	cost := bars(list, rows, "replica seconds for 1,000 answers in time (at most 2 shown)", "s", func(r *row) float64 {
		if r.SecondsPerThousand == 0 {
			return 2 // no answer at all
		}
		return min(2, r.SecondsPerThousand)
	})
	if err := save("cost", width, cost); err != nil {
		return nil, err
	}
	for i := range list {
		s := &list[i]
		switch {
		case len(s.bursts) > 0:
			if err := save(s.name, 24*vg.Centimeter, timeline(s, rows)); err != nil {
				return nil, err
			}
		case s.name == "overload":
			if err := save("overload-latency", 16*vg.Centimeter, distribution(s, rows)); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

// bars has a group for each scenario and a bar for each policy.
func bars(list []scenario, rows []row, title, unit string, value func(*row) float64) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, unit
	p.Y.Min = 0
	p.Legend.Top = true
	const wide = 9
	for i, policy := range sim.Policies {
		var values plotter.Values
		for j := range rows {
			if rows[j].Policy == policy {
				values = append(values, value(&rows[j]))
			}
		}
		b, err := plotter.NewBarChart(values, vg.Points(wide))
		if err != nil {
			continue // no scenario
		}
		b.LineStyle.Width = 0
		b.Color = colours[i]
		b.Offset = vg.Points(wide * (float64(i) - float64(len(sim.Policies)-1)/2))
		p.Add(b)
		p.Legend.Add(policy.String(), b)
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	p.NominalX(names...)
	p.X.Max = float64(len(list)) + 1 // room for the legend
	return p
}

// timeline has the answers in time, for each policy, over the run.
func timeline(s *scenario, rows []row) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = s.what, "s", "answers in time per second"
	p.Y.Min = 0
	p.Legend.Top = true
	const slots = 10 // 100 ms
	for i := range rows {
		r := &rows[i]
		if r.Scenario != s.name {
			continue
		}
		var line plotter.XYs
		for at := 0; at+slots <= len(r.total.Series); at += slots {
			sum := 0.0
			for _, slot := range r.total.Series[at : at+slots] {
				sum += float64(slot.Good)
			}
			line = append(line, plotter.XY{X: float64(at) * sim.SlotNanos / 1e9, Y: sum * 1e9 / (slots * sim.SlotNanos)})
		}
		addLine(p, r.Policy, line)
	}
	p.X.Max *= 1.2 // room for the legend
	return p
}

// distribution has, for each policy, the part of the offered queries that was answered within a time.
func distribution(s *scenario, rows []row) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = s.what, "ms", "% of what was offered, answered by then"
	p.Legend.Top, p.Legend.Left = true, true
	p.Y.Min = 0
	const points = 100
	for i := range rows {
		r := &rows[i]
		if r.Scenario != s.name {
			continue
		}
		var line plotter.XYs
		for n := range points + 1 {
			part := float64(n) / points
			nanos := r.total.Quantile(part * float64(r.total.Good) / math.Max(1, float64(r.total.Good+r.total.Missed)))
			if nanos != math.MaxInt64 {
				line = append(line, plotter.XY{X: float64(nanos) / 1e6, Y: 100 * part * float64(r.total.Good) / float64(r.total.Offered)})
			}
		}
		addLine(p, r.Policy, line)
	}
	return p
}

func addLine(p *plot.Plot, policy sim.Policy, points plotter.XYs) {
	l, err := plotter.NewLine(points)
	if err != nil {
		return // no point
	}
	l.Color = colours[policy]
	l.Width = vg.Points(1.5)
	p.Add(l)
	p.Legend.Add(policy.String(), l)
}
