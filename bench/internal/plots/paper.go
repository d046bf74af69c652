package plots

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Drawing is a figure of the Clipper paper that a report may reproduce.
type Drawing struct {
	Number   string // in the paper
	Measured bool   // otherwise it is left out
	Panels   func() ([][]*plot.Plot, error)
}

// Paper draws the figures that were measured. The report shows each above the Markdown line that starts with "## Figure NUMBER". Width and
// height are those of one panel.
func Paper(t results.Taken, width, height vg.Length, all ...Drawing) ([]results.Figure, error) {
	var figures []results.Figure
	for _, d := range all {
		if !d.Measured {
			continue
		}
		rows, err := d.Panels()
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", d.Number, err)
		}
		svg, err := SVG(width, height, rows)
		if err != nil {
			return nil, fmt.Errorf("figure %s: %w", d.Number, err)
		}
		figures = append(figures, results.Figure{Name: t.Name("figure" + d.Number), Alt: "figure " + d.Number, Before: "## Figure " + d.Number, SVG: svg})
	}
	return figures, nil
}
