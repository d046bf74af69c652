package top

import (
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

const (
	// minFlexible is the smallest width of a column of names. Before it gets narrower, other columns are left out.
	minFlexible = 16
	columnGap   = 2
)

// column is a column of a table of T.
type column[T any] struct {
	title string
	right bool
	// A flexible column gets narrower on a narrow screen. If that is not enough, columns are left out in the order of
	// drop, the highest first. A column with drop 0 stays.
	flexible bool
	drop     int
	cell     func(*T) span
}

var functionColumns = []column[Function]{
	{title: "FUNCTION", flexible: true, cell: func(f *Function) span {
		if !f.Ready {
			return span{f.Name + " (not ready)", sgrRed}
		}
		return span{text: f.Name}
	}},
	{title: "QUERIES/S", right: true, cell: func(f *Function) span { return span{text: rate(f.QueriesPerSecond)} }},
	{title: "P50 MS", right: true, drop: 2, cell: func(f *Function) span { return span{text: milliseconds(f.P50MS)} }},
	{title: "P99 MS", right: true, cell: func(f *Function) span { return span{text: milliseconds(f.P99MS)} }},
	{title: "ERRORS/S", right: true, drop: 1, cell: func(f *Function) span { return alarming(f.ErrorsPerSecond, sgrRed) }},
	{title: "DEFAULTS/S", right: true, drop: 3, cell: func(f *Function) span { return alarming(f.DefaultsPerSecond, sgrYellow) }},
	{title: "POLICY", drop: 4, cell: func(f *Function) span { return span{text: f.Policy} }},
	{title: "SHARES", flexible: true, drop: 5, cell: func(f *Function) span {
		var parts []string
		for _, s := range f.Shares {
			if s.Share != nil {
				parts = append(parts, s.Candidate+" "+wholePercent(s.Share))
			} else {
				parts = append(parts, s.Candidate)
			}
		}
		return span{text: strings.Join(parts, ", ")}
	}},
}

var modelColumns = []column[Model]{
	{title: "MODEL", flexible: true, cell: func(m *Model) span { return span{text: m.Model} }},
	{title: "SERVES", drop: 3, cell: func(m *Model) span {
		if m.Serving {
			return span{"*", sgrBold}
		}
		return span{}
	}},
	{title: "PHASE", cell: func(m *Model) span {
		if m.State == api.ModelFailed {
			return span{string(m.Phase) + ", failed", sgrRed}
		}
		return span{string(m.Phase), phaseColour(m)}
	}},
	{title: "READY", right: true, drop: 1, cell: func(m *Model) span {
		s := plain("%d/%d", m.Ready, m.Wanted)
		if m.Ready < m.Wanted {
			s.colour = sgrYellow
		}
		return s
	}},
	{title: "QUERIES/S", right: true, cell: func(m *Model) span { return span{text: rate(m.QueriesPerSecond)} }},
	{title: "P99 MS", right: true, cell: func(m *Model) span { return span{text: milliseconds(m.P99MS)} }},
	{title: "QUEUE", right: true, drop: 2, cell: func(m *Model) span { return span{text: thousands(m.Queue)} }},
	{title: "BATCH", right: true, drop: 6, cell: func(m *Model) span { return span{text: optionalRate(m.MeanBatch)} }},
	{title: "CAP", right: true, drop: 8, cell: func(m *Model) span { return span{text: thousands(m.Cap)} }},
	{title: "BUSY", right: true, drop: 5, cell: func(m *Model) span {
		s := span{text: wholePercent(m.Busy)}
		if m.Busy != nil && *m.Busy > 0.9 {
			s.colour = sgrYellow
		}
		return s
	}},
	{title: "RESTARTS", right: true, drop: 7, cell: func(m *Model) span {
		s := span{text: thousands(m.Restarts)}
		if m.Restarts > 0 {
			s.colour = sgrRed
		}
		return s
	}},
	{title: "TRAFFIC", drop: 4, cell: func(m *Model) span {
		var parts []string
		for _, a := range m.Arms {
			parts = append(parts, a.Rule+" "+numerals.Percent(a.Share))
		}
		return span{text: strings.Join(parts, ", ")}
	}},
	{title: "SOURCE", flexible: true, drop: 9, cell: func(m *Model) span { return span{text: m.Source} }},
}

// alarming colours a rate that should be 0.
func alarming(x *float64, colour string) span {
	s := span{text: optionalRate(x)}
	if x != nil && *x > 0 {
		s.colour = colour
	}
	return s
}

// drawTable draws titles and rows, within width unless it is 0.
func drawTable[T any](columns []column[T], rows []T, width int, colour bool) []string {
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

// padded pads or cuts a cell to the width of its column.
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

// fit narrows flexible columns and leaves others out (width 0) until the table is within width.
func fit[T any](columns []column[T], widths []int, width int) {
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

// narrow shortens flexible columns by excess in all, always the widest one next.
func narrow[T any](columns []column[T], widths []int, excess int) {
	for ; excess > 0; excess-- {
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
