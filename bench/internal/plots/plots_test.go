package plots

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/resultstest"
)

func TestPanelsHaveTheirTexts(t *testing.T) {
	lines := Panel("lines", "seconds", "requests")
	points := plotter.XYs{{X: 0, Y: 1}, {X: 1, Y: 2}}
	for label, style := range map[string]Style{"joined": {Color: Ink}, "dotted": {Color: Accent, Dots: true, Dashed: true}, "alone": {Color: Faint, OnlyDots: true}} {
		if err := Curve(lines, points, style, label); err != nil {
			t.Fatal(err)
		}
	}
	if err := Level(lines, 0, 1, 1.5, Style{Color: Accent, Width: 2}, ""); err != nil {
		t.Fatal(err)
	}
	bars := Panel("bars", "", "")
	if err := Bars(bars, 10, []string{"one", "two"}, Series{"left", plotter.Values{1, 2}, Ink}, Series{"right", plotter.Values{3, 4}, Accent}); err != nil {
		t.Fatal(err)
	}
	if err := Labels(bars, points, []string{"low", "high"}); err != nil {
		t.Fatal(err)
	}
	svg, err := SVG(8*vg.Centimeter, 6*vg.Centimeter, Grid(2, lines, bars, Panel("third", "", "")))
	if err != nil {
		t.Fatal(err)
	}
	resultstest.Contains(t, resultstest.Letters(t, string(svg)),
		"lines", "seconds", "requests", "joined", "dotted", "alone", "bars", "one", "two", "left", "right", "low", "high", "third")
}

func TestGridFillsRows(t *testing.T) {
	p := Panel("", "", "")
	for _, c := range []struct{ columns, panels, rows, width, gaps int }{{3, 1, 1, 1, 0}, {3, 3, 1, 3, 0}, {2, 3, 2, 2, 1}, {1, 2, 2, 1, 0}} {
		var panels []*plot.Plot
		for range c.panels {
			panels = append(panels, p)
		}
		grid := Grid(c.columns, panels...)
		gaps := 0
		for _, row := range grid {
			gaps += len(results.Where(row, func(p *plot.Plot) bool { return p == nil }))
		}
		if len(grid) != c.rows || len(grid[0]) != c.width || gaps != c.gaps {
			t.Errorf("%d panels in %d columns: %d rows of %d with %d gaps", c.panels, c.columns, len(grid), len(grid[0]), gaps)
		}
	}
}

func TestPaperDrawsWhatWasMeasured(t *testing.T) {
	taken := results.Taken{When: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)}
	empty := func() ([][]*plot.Plot, error) { return Grid(1, Panel("", "", "")), nil }
	broken := func() ([][]*plot.Plot, error) { return nil, errors.New("no points") }
	figures, err := Paper(taken, 100, 100, Drawing{"3", true, empty}, Drawing{"4", false, broken})
	if err != nil || len(figures) != 1 || figures[0].Name != "2030-01-02-figure3" || figures[0].Before != "## Figure 3" {
		t.Errorf("got %+v, %v", figures, err)
	}
	if _, err := Paper(taken, 100, 100, Drawing{"4", true, broken}); err == nil || !strings.Contains(err.Error(), "figure 4: no points") {
		t.Errorf("got %v", err)
	}
}
