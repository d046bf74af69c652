package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/xebec-serving/xebec/api"
)

// topFixedLines are the lines that are no rows: two of the gateway, the tabs, the columns' titles, and the keys.
const topFixedLines = 5

// Colours are parameters of ECMA-48's SELECT GRAPHIC RENDITION.
const (
	sgrNone    = ""
	sgrBold    = "1"
	sgrReverse = "7"
	sgrRed     = "31"
	sgrGreen   = "32"
	sgrYellow  = "33"
)

// span is some text of a line in one colour.
type span struct{ text, colour string }

func plain(format string, args ...any) span { return span{text: fmt.Sprintf(format, args...)} }

// assemble makes a line of at most width columns, 0: any number. A rune is taken to be as wide as a column; what a terminal would take for
// more than text is shown as a dot, for names of sources and stores are what somebody else has chosen.
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

// page is how many rows fit on a screen.
func (v topView) page(height int) int { return max(1, height-topFixedLines) }

// render draws a frame for a screen: height lines of at most width columns, the last one without a line feed.
func (v topView) render(f *topFrame, width, height int) string {
	line := func(spans ...span) string { return assemble(spans, width, v.colour) }
	gateway := f.Gateway.lines(f.Time)
	if v.problem != "" {
		gateway[1] = []span{{"NO ANSWER: " + v.problem, sgrRed}}
	}
	lines := []string{line(gateway[0]...), line(gateway[1]...)}
	page := v.page(height)
	if v.tab == tabModels {
		lines = append(lines, part(v, f, topModelColumns, chosen(v, f.Models), width, page)...)
	} else {
		lines = append(lines, part(v, f, topFunctionColumns, chosen(v, f.Functions), width, page)...)
	}
	lines = lines[:min(len(lines), max(0, height-1))]
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	keys := "q quit  f functions  m models  s sort  / filter  ↑ ↓ PgUp PgDn Home End scroll"
	if v.editing {
		keys = "type a part of a name, then Enter; Esc shows all"
	}
	return strings.Join(append(lines, line(span{keys, sgrReverse})), "\n")
}

// part is the tabs and the rows of one that fit.
func part[T any](v topView, f *topFrame, columns []topColumn[T], rows []T, width, page int) []string {
	first := max(0, min(v.offset, len(rows)-page))
	shown := rows[first:min(first+page, len(rows))]
	below := len(rows) - first - len(shown)
	if below > 0 && len(shown) > 1 { // the line that counts them takes a row's place
		shown = shown[:len(shown)-1]
		below++
	}
	lines := append([]string{assemble(v.tabBar(f, first, len(shown), len(rows)), width, v.colour)}, drawTable(columns, shown, width, v.colour)...)
	if below > 0 {
		lines = append(lines, assemble([]span{moreRows(below)}, width, v.colour))
	}
	return lines
}

func moreRows(n int) span { return plain("… and %s more", thousands(float64(n))) }

func (v topView) tabBar(f *topFrame, first, shown, rows int) []span {
	tab := func(t topTab, name string, rows int) span {
		if t == v.tab {
			return span{fmt.Sprintf("[%s %s]", name, thousands(float64(rows))), sgrReverse}
		}
		return plain(" %s %s ", name, thousands(float64(rows)))
	}
	bar := []span{tab(tabFunctions, "functions", len(f.Functions)), plain("  "), tab(tabModels, "models", len(f.Models)), plain("  by %s", v.order)}
	if v.editing || v.filter != "" {
		cursor := ""
		if v.editing {
			cursor = "_"
		}
		bar = append(bar, span{fmt.Sprintf("  filter /%s%s", v.filter, cursor), sgrYellow})
	}
	if shown < rows {
		bar = append(bar, plain("  %s to %s of %s", thousands(float64(first+1)), thousands(float64(first+shown)), thousands(float64(rows))))
	}
	return bar
}

// text draws a frame for what is no screen: both tables, of each at most so many rows, 0: all.
func (v topView) text(f *topFrame, rows int) string {
	var b strings.Builder
	for _, l := range f.Gateway.lines(f.Time) {
		fmt.Fprintln(&b, assemble(l, 0, false))
	}
	v.colour = false
	write := func(lines []string, left int) {
		fmt.Fprintf(&b, "\n%s\n", strings.Join(lines, "\n"))
		if left > 0 {
			fmt.Fprintln(&b, moreRows(left).text)
		}
	}
	bound := func(n int) int {
		if rows > 0 {
			return min(rows, n)
		}
		return n
	}
	functions, models := chosen(v, f.Functions), chosen(v, f.Models)
	n, m := bound(len(functions)), bound(len(models))
	write(drawTable(topFunctionColumns, functions[:n], 0, false), len(functions)-n)
	write(drawTable(topModelColumns, models[:m], 0, false), len(models)-m)
	return b.String()
}

// lines are the gateway's, which are always two.
func (g *topGateway) lines(now time.Time) [2][]span {
	state := span{"ready", sgrGreen}
	switch {
	case g.Draining:
		state = span{"draining", sgrYellow}
	case !g.Ready:
		state = span{"not ready", sgrRed}
	}
	up, replicas := uptime(now.Sub(g.Started)), thousands(float64(g.Replicas))
	first := []span{{"xebec " + g.Version, sgrBold}, plain("  up %s  ", up), state, plain("  %s replicas", replicas)}
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
		cache = part100(g.CacheHits) + " hits"
	case g.CacheOn:
		cache = "idle"
	}
	second := []span{plain("%s queries/s  %s in flight  cache %s", rateText(g.QueriesPerSecond), thousands(float64(g.Inflight)), cache)}
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

// uptime has the two largest units.
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

// thousands writes a number without a fraction, in groups of three digits.
func thousands(x float64) string {
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// rateText writes small numbers with a digit more.
func rateText(x float64) string {
	if x > 0 && x < 9.95 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return thousands(x)
}

// optional writes a rate that may not be known.
func optional(x *float64) string {
	if x == nil {
		return "-"
	}
	return rateText(*x)
}

// part100 writes a part of one in percent.
func part100(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(100**x, 'f', 0, 64) + "%"
}

// milliseconds writes a percentile with three digits; that of nothing is 0 and has none.
func milliseconds(x float64) string {
	switch {
	case x <= 0:
		return "-"
	case x < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return thousands(x)
}

func phaseColour(m *topModel) string {
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
