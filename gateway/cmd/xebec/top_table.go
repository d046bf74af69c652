package main

import (
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

const (
	// minFlexible is how narrow a column of names may become before others are left out for it.
	minFlexible = 16
	columnGap   = 2
)

// topColumn is a column of a table of T.
type topColumn[T any] struct {
	title string
	right bool
	// flexible columns are cut where the screen is too narrow; of the others those with the highest drop are left out first, and 0 never.
	flexible bool
	drop     int
	cell     func(*T) span
}

var topFunctionColumns = []topColumn[topFunction]{
	{title: "FUNCTION", flexible: true, cell: func(f *topFunction) span {
		if !f.Ready {
			return span{f.Name + " (not ready)", sgrRed}
		}
		return span{text: f.Name}
	}},
	{title: "QUERIES/S", right: true, cell: func(f *topFunction) span { return span{text: rateText(f.QueriesPerSecond)} }},
	{title: "P50 MS", right: true, drop: 2, cell: func(f *topFunction) span { return span{text: milliseconds(f.P50MS)} }},
	{title: "P99 MS", right: true, cell: func(f *topFunction) span { return span{text: milliseconds(f.P99MS)} }},
	{title: "ERRORS/S", right: true, drop: 1, cell: func(f *topFunction) span { return alarming(f.ErrorsPerSecond, sgrRed) }},
	{title: "DEFAULTS/S", right: true, drop: 3, cell: func(f *topFunction) span { return alarming(f.DefaultsPerSecond, sgrYellow) }},
	{title: "POLICY", drop: 4, cell: func(f *topFunction) span { return span{text: f.Policy} }},
	{title: "SHARES", flexible: true, drop: 5, cell: func(f *topFunction) span {
		var parts []string
		for _, s := range f.Shares {
			if s.Share != nil {
				parts = append(parts, s.Candidate+" "+part100(s.Share))
			} else {
				parts = append(parts, s.Candidate)
			}
		}
		return span{text: strings.Join(parts, ", ")}
	}},
}

var topModelColumns = []topColumn[topModel]{
	{title: "MODEL", flexible: true, cell: func(m *topModel) span { return span{text: m.Model} }},
	{title: "SERVES", drop: 3, cell: func(m *topModel) span {
		if m.Serving {
			return span{"*", sgrBold}
		}
		return span{}
	}},
	{title: "PHASE", cell: func(m *topModel) span {
		if m.State == api.ModelFailed {
			return span{string(m.Phase) + ", failed", sgrRed}
		}
		return span{string(m.Phase), phaseColour(m)}
	}},
	{title: "READY", right: true, drop: 1, cell: func(m *topModel) span {
		s := plain("%d/%d", m.Ready, m.Wanted)
		if m.Ready < m.Wanted {
			s.colour = sgrYellow
		}
		return s
	}},
	{title: "QUERIES/S", right: true, cell: func(m *topModel) span { return span{text: rateText(m.QueriesPerSecond)} }},
	{title: "P99 MS", right: true, cell: func(m *topModel) span { return span{text: milliseconds(m.P99MS)} }},
	{title: "QUEUE", right: true, drop: 2, cell: func(m *topModel) span { return span{text: thousands(float64(m.Queue))} }},
	{title: "BATCH", right: true, drop: 6, cell: func(m *topModel) span { return span{text: optional(m.MeanBatch)} }},
	{title: "CAP", right: true, drop: 8, cell: func(m *topModel) span { return span{text: thousands(float64(m.Cap))} }},
	{title: "BUSY", right: true, drop: 5, cell: func(m *topModel) span {
		s := span{text: part100(m.Busy)}
		if m.Busy != nil && *m.Busy > 0.9 {
			s.colour = sgrYellow
		}
		return s
	}},
	{title: "RESTARTS", right: true, drop: 7, cell: func(m *topModel) span {
		s := span{text: thousands(float64(m.Restarts))}
		if m.Restarts > 0 {
			s.colour = sgrRed
		}
		return s
	}},
	{title: "TRAFFIC", drop: 4, cell: func(m *topModel) span {
		var parts []string
		for _, a := range m.Arms {
			parts = append(parts, a.Rule+" "+percent(a.Share))
		}
		return span{text: strings.Join(parts, ", ")}
	}},
	{title: "SOURCE", flexible: true, drop: 9, cell: func(m *topModel) span { return span{text: m.Source} }},
}

// alarming is a rate that is better 0.
func alarming(x *float64, colour string) span {
	s := span{text: optional(x)}
	if x != nil && *x > 0 {
		s.colour = colour
	}
	return s
}

// drawTable draws titles and rows, within width where it is not 0.
func drawTable[T any](columns []topColumn[T], rows []T, width int, colour bool) []string {
	cells := make([][]span, len(rows)+1)
	widths := make([]int, len(columns))
	for c, col := range columns {
		cells[0] = append(cells[0], span{col.title, sgrBold})
		widths[c] = utf8.RuneCountInString(col.title)
		for r := range rows {
			s := col.cell(&rows[r])
			cells[r+1] = append(cells[r+1], s)
			widths[c] = max(widths[c], utf8.RuneCountInString(s.text))
		}
	}
	fit(columns, widths, width)
	lines := make([]string, len(cells))
	for r, row := range cells {
		var spans []span
		for c, s := range row {
			if widths[c] == 0 {
				continue
			}
			if len(spans) > 0 {
				spans = append(spans, span{text: strings.Repeat(" ", columnGap)})
			}
			spans = append(spans, padded(s, widths[c], columns[c].right)...)
		}
		lines[r] = strings.TrimRight(assemble(spans, width, colour), " ")
	}
	return lines
}

// padded makes a cell as wide as its column.
func padded(s span, width int, right bool) []span {
	n := utf8.RuneCountInString(s.text)
	if n > width {
		s.text = string([]rune(s.text)[:width-1]) + "…"
		return []span{s}
	}
	blank := span{text: strings.Repeat(" ", width-n)}
	if right {
		return []span{blank, s}
	}
	return []span{s, blank}
}

// fit narrows flexible columns, and leaves others out (width 0), until all is within width.
func fit[T any](columns []topColumn[T], widths []int, width int) {
	if width == 0 {
		return
	}
	for {
		total, excess, worst := -columnGap, 0, -1
		for c, col := range columns {
			if widths[c] == 0 {
				continue
			}
			total += widths[c] + columnGap
			if col.flexible {
				excess += max(0, widths[c]-minFlexible)
			}
			if col.drop > 0 && (worst < 0 || col.drop > columns[worst].drop) {
				worst = c
			}
		}
		if total <= width {
			return
		}
		if total-excess <= width || worst < 0 {
			narrow(columns, widths, total-width)
			return
		}
		widths[worst] = 0
	}
}

// narrow takes so many columns from the flexible ones, from the widest first.
func narrow[T any](columns []topColumn[T], widths []int, tooMany int) {
	for ; tooMany > 0; tooMany-- {
		widest := -1
		for c, col := range columns {
			if col.flexible && widths[c] > minFlexible && (widest < 0 || widths[c] > widths[widest]) {
				widest = c
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}
