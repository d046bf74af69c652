package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/plots"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report is what a run found.
type Report struct {
	results.Taken
	Seconds float64 `json:"seconds"`
	Seed    uint64  `json:"seed"`
	Store   string  `json:"store"`
	Lives   []Life  `json:"lives"`

	Answers    map[string]map[string]int `json:"answers"`    // by what was asked (a function, feedback, an attack), then by status and code
	Operations map[string]Operation      `json:"operations"` // by name
	Attacks    map[string]int            `json:"attacks"`
	Wrong      int                       `json:"wrong"`
	Examples   []string                  `json:"examples,omitempty"` // of wrong answers
	Unanswered int                       `json:"unanswered"`         // connections that broke while the gateway lived

	tally *tally
}

// Life is the time between two kills of the gateway.
type Life struct {
	Samples []Sample         `json:"samples"`
	Trends  map[string]Trend `json:"trends"`
}

// Operation counts what an operator or a fault did.
type Operation struct {
	Done   int    `json:"done"`
	Failed int    `json:"failed"`
	Last   string `json:"last,omitempty"` // error
}

// tally counts while the players play.
type tally struct {
	mu sync.Mutex
	r  Report
}

func newTally() *tally {
	return &tally{r: Report{Answers: map[string]map[string]int{}, Operations: map[string]Operation{}, Attacks: map[string]int{}}}
}

func (t *tally) answered(function string, status int, code string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.r.Answers[function] == nil {
		t.r.Answers[function] = map[string]int{}
	}
	t.r.Answers[function][strings.TrimSpace(fmt.Sprintf("%d %s", status, code))]++
}

// attackName is what attacks count as, among the functions.
const attackName = "attack"

// maxExamples bounds the examples of wrong answers in a report.
const maxExamples = 20

func (t *tally) wrong(function, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Wrong++
	if len(t.r.Examples) < maxExamples {
		t.r.Examples = append(t.r.Examples, function+": "+what)
	}
}

// broken counts a connection that ended without an answer. That may happen only if the gateway was killed.
func (t *tally) broken(function string, err error, killed bool) {
	if errors.Is(err, errDouble) {
		t.wrong(function, err.Error())
		return
	}
	t.answered(function, 0, "connection broke")
	if !killed && !isRefused(err) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.r.Unanswered++
		if len(t.r.Examples) < maxExamples {
			t.r.Examples = append(t.r.Examples, function+": "+err.Error())
		}
	}
}

func (t *tally) attacked(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Attacks[name]++
}

func (t *tally) operation(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.r.Operations[name]
	o.Done++
	if err != nil {
		o.Failed++
		o.Last = err.Error()
	}
	t.r.Operations[name] = o
}

// curves are what must not grow.
var curves = []struct {
	name, unit string
	of         func(Sample) float64
}{
	{"descriptors", "open", func(s Sample) float64 { return s.Descriptors }},
	{"shared memory", "segments mapped", func(s Sample) float64 { return s.Segments }},
	{"goroutines", "running", func(s Sample) float64 { return s.Goroutines }},
	{"resident memory", "MB", func(s Sample) float64 { return s.Megabytes }},
	{"processes", "below the gateway", func(s Sample) float64 { return s.Processes }},
	{"zombies", "not reaped", func(s Sample) float64 { return s.Zombies }},
}

// finish takes over what was counted, and judges the curves.
func (r *Report) finish() {
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	c := &r.tally.r
	r.Answers, r.Operations, r.Attacks, r.Wrong, r.Examples, r.Unanswered = c.Answers, c.Operations, c.Attacks, c.Wrong, c.Examples, c.Unanswered
	for i := range r.Lives {
		l := &r.Lives[i]
		l.Trends = map[string]Trend{}
		for _, c := range curves {
			l.Trends[c.name] = trend(results.Each(l.Samples, c.of))
		}
	}
}

// Failed returns what must not happen on any machine, or nil.
func (r *Report) Failed() error {
	var errs []error
	if r.Wrong > 0 || r.Unanswered > 0 {
		errs = append(errs, fmt.Errorf("%d wrong answers, %d requests without an answer while the gateway lived: %s", r.Wrong, r.Unanswered, strings.Join(r.Examples, "; ")))
	}
	for i, l := range r.Lives {
		for _, c := range curves {
			if t := l.Trends[c.name]; t.Grows() {
				errs = append(errs, fmt.Errorf("life %d: %s grew by %.1f %% of their mean, %.1f (95 %% interval: %.1f to %.1f %%); a lower end above %.0f %% counts as growth", i+1, c.name, 100*t.Growth, t.Mean, 100*t.Low, 100*t.High, 100*negligible))
			}
		}
		if n := len(l.Samples); n > 0 && lingering(l.Samples) {
			errs = append(errs, fmt.Errorf("life %d: zombies stayed: each of its last %d samples has at least one", i+1, lastSamples))
		}
	}
	return errors.Join(errs...)
}

// lastSamples is how many samples at the end of a life, one a second, must all have a zombie.
const lastSamples = 5

// lingering reports whether there were zombies in each of the last samples: one that stays for a moment is about to be reaped.
func lingering(samples []Sample) bool {
	if len(samples) < lastSamples {
		return false
	}
	return !slices.ContainsFunc(samples[len(samples)-lastSamples:], func(s Sample) bool { return s.Zombies == 0 })
}

// Empty implements results.Report.
func (r *Report) Empty() bool { return len(r.Lives) == 0 }

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("A soak: everything at once, for a long time"))
	total, ok := 0, 0
	for asked, by := range r.Answers {
		if asked == attackName {
			continue
		}
		for what, n := range by {
			total += n
			if strings.HasPrefix(what, "200") {
				ok += n
			}
		}
	}
	fmt.Fprintf(&b, "Made by `bin/soak`: %.0f s in %d lives of the gateway, with its state in %s, seed %d. %d requests by careful clients, %d of them answered with 200. **%d wrong answers, %d requests without an answer while the gateway lived.**\n\n"+
		"A careful client knows the one correct output of its query. An answer is wrong if it has status 200 and another output or a default, if its status is not one that the faults explain "+
		"(502, 503, 504; 404 before a model is deployed), or if bytes follow it. Queries are answered by deadline or refused, so a refusal is not wrong: the table of answers counts them.\n\n",
		r.Seconds, len(r.Lives), r.Store, r.Seed, total, ok, r.Wrong, r.Unanswered)
	results.TableHead(&b, "life", "what", "mean", "growth in this life, 95 % interval", "")
	for i, l := range r.Lives {
		for _, c := range curves {
			t := l.Trends[c.name]
			fmt.Fprintf(&b, "| %d | %s | %.1f | %+.1f %% (%+.1f to %+.1f) | %s |\n", i+1, c.name, t.Mean, 100*t.Growth, 100*t.Low, 100*t.High, flat(t))
		}
	}
	b.WriteString("\n")
	results.TableHead(&b, "asked", "answers")
	for _, f := range slices.Sorted(maps.Keys(r.Answers)) {
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(r.Answers[f])) {
			parts = append(parts, fmt.Sprintf("%s: %d", what, r.Answers[f][what]))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", f, strings.Join(parts, ", "))
	}
	b.WriteString("\n")
	results.TableHead(&b, "what an operator or a fault did", "times", "failed", "last error")
	for _, name := range slices.Sorted(maps.Keys(r.Operations)) {
		o := r.Operations[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", name, o.Done, o.Failed, cell(fmt.Sprintf("%.160s", o.Last)))
	}
	b.WriteString("\n")
	results.TableHead(&b, "attack", "times")
	for _, name := range slices.Sorted(maps.Keys(r.Attacks)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, r.Attacks[name])
	}
	for _, e := range r.Examples {
		fmt.Fprintf(&b, "\n- %s", e)
	}
	return b.String()
}

// cell is text as a cell of a table has it: in one line.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

func flat(t Trend) string {
	if t.Grows() {
		return "**grows**"
	}
	return "flat"
}

// Figures implements results.Illustrated.
func (r *Report) Figures() ([]results.Figure, error) {
	var panels []*plot.Plot
	for _, c := range curves {
		p := plots.Panel(c.name, "seconds of a life", c.unit)
		for i, l := range r.Lives {
			points := make(plotter.XYs, len(l.Samples))
			for j, s := range l.Samples {
				points[j].X, points[j].Y = s.Seconds, c.of(s)
			}
			if len(points) == 0 {
				continue
			}
			if err := plots.Curve(p, points, plots.Style{Color: plots.Palette[i%len(plots.Palette)]}, fmt.Sprintf("life %d", i+1)); err != nil {
				return nil, err
			}
		}
		panels = append(panels, p)
	}
	svg, err := plots.SVG(8*vg.Centimeter, 5*vg.Centimeter, plots.Grid(3, panels...))
	return []results.Figure{{Name: r.Name("soak"), Alt: "What the gateway holds over time", Before: "| asked |", SVG: svg}}, err
}
