package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// fixedLines are the lines of a screen that are not rows: two for the gateway, the tabs, the column titles, and the
// keys.
const fixedLines = 5

// Colours are parameters of ECMA-48's SELECT GRAPHIC RENDITION.
const (
	sgrNone    = ""
	sgrBold    = "1"
	sgrReverse = "7"
	sgrRed     = "31"
	sgrGreen   = "32"
	sgrYellow  = "33"
)

// span is a piece of a line in one colour.
type span struct{ text, colour string }

func plain(format string, args ...any) span { return span{text: fmt.Sprintf(format, args...)} }

// assemble makes a line of at most width columns; 0 means any width. It counts a rune as one column. Control characters
// become dots: the names of sources and stores are not ours, and could carry escape sequences.
func assemble(spans []span, width int, colour bool) string {
	var b strings.Builder
	left := width
	for i, s := range spans {
		text := []rune(s.text)
		if width > 0 && len(text) > left {
			text = append(text[:max(0, left-1):max(0, left-1)], '…')[:left]
		}
		left -= len(text)
		for j, r := range text {
			if !unicode.IsPrint(r) {
				text[j] = '·'
			}
		}
		if i == len(spans)-1 && (!colour || s.colour == sgrNone) {
			text = []rune(strings.TrimRight(string(text), " "))
		}
		if colour && s.colour != sgrNone && len(text) > 0 {
			b.WriteString("\x1b[" + s.colour + "m" + string(text) + "\x1b[0m")
		} else {
			b.WriteString(string(text))
		}
	}
	return b.String()
}

// page is the number of rows that fit on a screen.
func (v view) page(height int) int { return max(1, height-fixedLines) }

// render draws a frame for a screen: height lines of at most width columns, the last one without a line feed.
func (v view) render(f *Frame, width, height int) string {
	line := func(spans ...span) string { return assemble(spans, width, v.colour) }
	head := f.Gateway.head(f.Time)
	if v.problem != "" {
		head[1] = []span{{"NO ANSWER: " + v.problem, sgrRed}}
	}
	lines := []string{line(head[0]...), line(head[1]...)}
	page := v.page(height)
	if v.tab == tabModels {
		lines = append(lines, body(v, f, modelColumns, selected(v, f.Models), width, page)...)
	} else {
		lines = append(lines, body(v, f, functionColumns, selected(v, f.Functions), width, page)...)
	}
	lines = lines[:min(len(lines), max(0, height-1))]
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	keys := "q quit  f functions  m models  s sort  / filter  ↑ ↓ PgUp PgDn Home End scroll"
	if v.editing {
		keys = "type part of a name, then Enter; Esc shows all"
	}
	return strings.Join(append(lines, line(span{keys, sgrReverse})), "\n")
}

// body is the tab bar and the rows of the open tab that fit.
func body[T any](v view, f *Frame, columns []column[T], rows []T, width, page int) []string {
	first := max(0, min(v.offset, len(rows)-page))
	shown := rows[first:min(first+page, len(rows))]
	below := len(rows) - first - len(shown)
	if below > 0 && len(shown) > 1 { // the line that counts them takes the place of a row
		shown = shown[:len(shown)-1]
		below++
	}
	lines := append([]string{assemble(v.tabBar(f, first, len(shown), len(rows)), width, v.colour)}, drawTable(columns, shown, width, v.colour)...)
	if below > 0 {
		lines = append(lines, assemble([]span{moreRows(below)}, width, v.colour))
	}
	return lines
}

func moreRows(n int) span { return plain("… and %s more", thousands(n)) }

func (v view) tabBar(f *Frame, first, shown, rows int) []span {
	title := func(t tab, name string, rows int) span {
		if t == v.tab {
			return span{fmt.Sprintf("[%s %s]", name, thousands(rows)), sgrReverse}
		}
		return plain(" %s %s ", name, thousands(rows))
	}
	bar := []span{title(tabFunctions, "functions", len(f.Functions)), plain("  "), title(tabModels, "models", len(f.Models)), plain("  by %s", v.order)}
	if v.editing || v.filter != "" {
		cursor := ""
		if v.editing {
			cursor = "_"
		}
		bar = append(bar, span{fmt.Sprintf("  filter /%s%s", v.filter, cursor), sgrYellow})
	}
	if shown < rows {
		bar = append(bar, plain("  %s to %s of %s", thousands(first+1), thousands(first+shown), thousands(rows)))
	}
	return bar
}

// Text draws a frame for a file or a pipe: both tables, each with at most so many rows; 0 means all.
func (f *Frame) Text(rows int) string {
	var v view
	var b strings.Builder
	for _, l := range f.Gateway.head(f.Time) {
		fmt.Fprintln(&b, assemble(l, 0, false))
	}
	writeTable(&b, functionColumns, selected(v, f.Functions), rows)
	writeTable(&b, modelColumns, selected(v, f.Models), rows)
	return b.String()
}

func writeTable[T any](b *strings.Builder, columns []column[T], all []T, rows int) {
	shown := all
	if rows > 0 {
		shown = all[:min(rows, len(all))]
	}
	fmt.Fprintf(b, "\n%s\n", strings.Join(drawTable(columns, shown, 0, false), "\n"))
	if left := len(all) - len(shown); left > 0 {
		fmt.Fprintln(b, moreRows(left).text)
	}
}

// head is the two lines about the gateway.
func (g *Gateway) head(now time.Time) [2][]span {
	state := span{"ready", sgrGreen}
	switch {
	case g.Draining:
		state = span{"draining", sgrYellow}
	case !g.Ready:
		state = span{"not ready", sgrRed}
	}
	first := []span{{"xebec " + g.Version, sgrBold}, plain("  up %s  ", uptime(now.Sub(g.Started))), state, plain("  %s replicas", thousands(g.Replicas))}
	if g.Revision > 0 {
		first = append(first, plain("  revision %d", g.Revision))
	}
	if g.Problems > 0 {
		text := "  sources have a problem: see describe gateway"
		if g.Problems > 1 {
			text = fmt.Sprintf("  sources have %d problems: see describe gateway", g.Problems)
		}
		first = append(first, span{text, sgrRed})
	}
	cache := "off"
	switch {
	case g.CacheHits != nil:
		cache = wholePercent(g.CacheHits) + " hits"
	case g.CacheOn:
		cache = "idle"
	}
	second := []span{plain("%s queries/s  %s in flight  cache %s", rate(g.QueriesPerSecond), thousands(g.Inflight), cache)}
	switch {
	case g.Store == "":
		second = append(second, plain("  no store"))
	case g.StoreAway:
		second = append(second, span{"  store away: " + g.Store, sgrRed})
	default:
		second = append(second, plain("  store %s", g.Store))
	}
	return [2][]span{first, second}
}

// uptime shows the two largest units.
func uptime(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	switch days := int(d.Hours()) / 24; {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, int(d.Hours())%24)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return d.String()
}

func thousands(n int) string { return numerals.Thousands(float64(n)) }

// rate shows one decimal below 10.
func rate(x float64) string {
	if x > 0 && x < 9.95 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return numerals.Thousands(x)
}

// optionalRate shows an unknown rate as a dash.
func optionalRate(x *float64) string {
	if x == nil {
		return "-"
	}
	return rate(*x)
}

func wholePercent(fraction *float64) string {
	if fraction == nil {
		return "-"
	}
	return strconv.FormatFloat(100**fraction, 'f', 0, 64) + "%"
}

// milliseconds shows three digits. A percentile of 0 means that there were no queries.
func milliseconds(x float64) string {
	switch {
	case x <= 0:
		return "-"
	case x < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return numerals.Thousands(x)
}

func phaseColour(m *Model) string {
	switch m.Phase {
	case api.PhaseAvailable:
		return sgrGreen
	case api.PhaseRejected:
		return sgrRed
	case api.PhaseLoading, api.PhaseValidating, api.PhaseDraining:
		return sgrYellow
	}
	return sgrNone
}
