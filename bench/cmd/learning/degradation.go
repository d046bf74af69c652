package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Degradation is figure 8.
type Degradation struct {
	Queries int `json:"queries"`
	// The best model is degraded from query From to query Until, counted from 0.
	From     int       `json:"degraded_from"`
	Until    int       `json:"degraded_until"`
	Degraded string    `json:"degraded_model"`
	Models   []Trained `json:"models"`
	Statics  []Run     `json:"statics"`
	Policies []Run     `json:"policies"`
}

// Run is one static choice, or one policy, over the whole sequence of queries.
type Run struct {
	Name  string  `json:"name"`
	Error float64 `json:"error"`
	// Curve is the cumulative error.
	Curve []Point `json:"cumulative_error"`
	// Phases are the error rates before, while and after the best model is degraded.
	Phases [3]float64 `json:"error_by_phase"`
	// Best is the fraction of each window's queries for which the policy chose the best model. Only policies that choose one model have it.
	Best []Point `json:"share_of_best,omitempty"`
	// BesideBest is the error beyond that of the best static choice. Its interval is over stretches of queries.
	BesideBest results.Interval `json:"beside_best_static"`
	Seconds    float64          `json:"seconds,omitempty"`
}

// The axis of figure 8.
const (
	curveEvery  = 100
	shareWindow = 250
)

// switching are the functions of figure 8 with their policies. The paper has the first two, which are ours with their additions; the paper's own
// are the next two.
var switching = []struct{ name, function, policy string }{
	{"exp3", "exp3", "exp3"},
	{"exp4", "exp4", "exp4"},
	{"the paper's Exp3", "paper-exp3", "{name: exp3, eta: 0.01, gamma: 0, floor: 0}"},
	{"the paper's Exp4", "paper-exp4", "{name: exp4, eta: 0.01, floor: 0, vote: 0, boost: 0}"},
	{"epsilon-greedy", "epsilon-greedy", "epsilon-greedy"},
	{"ucb1", "ucb1", "ucb1"},
	{"thompson", "thompson", "thompson"},
}

// sequence returns the image of each query: real images in an order that depends on the seed.
func sequence(queries, images int, seed uint64) []int {
	draw := rand.New(rand.NewPCG(seed, 8))
	out := make([]int, queries)
	for i := range out {
		out[i] = draw.IntN(images)
	}
	return out
}

func (d *Degradation) bad(query int) bool { return query >= d.From && query < d.Until }

// run summarises a sequence of wrong and right answers.
func (d *Degradation) run(name string, wrong []bool) Run {
	r := Run{Name: name, Error: errorRate(wrong), Curve: cumulative(wrong, curveEvery)}
	for i, part := range [][]bool{wrong[:d.From], wrong[d.From:d.Until], wrong[d.Until:]} {
		r.Phases[i] = errorRate(part)
	}
	return r
}

// bestStatic returns the static choice with the fewest errors.
func (d *Degradation) bestStatic() Run {
	return slices.MinFunc(d.Statics, func(a, b Run) int { return cmp.Compare(a.Error, b.Error) })
}

// besideStretches returns the error beyond that of another choice. Its interval is over stretches of shareWindow queries, because the difference
// depends on the phase, and of a policy also on what it has just learned.
func besideStretches(wrong, other []bool) results.Interval {
	var d []float64
	for i, w := range windows(wrong, shareWindow) {
		d = append(d, w.Value-windows(other, shareWindow)[i].Value)
	}
	return results.Average(d)
}

func measureDegradation(ctx context.Context, cfg config) (*Degradation, error) {
	e, err := load(cfg.models, "figure8")
	if err != nil {
		return nil, err
	}
	best := slices.MinFunc(e.Models, func(a, b Trained) int { return cmp.Compare(a.Error, b.Error) }).Name
	degraded, err := e.numbers(best + ".degraded")
	if err != nil {
		return nil, err
	}
	d := &Degradation{Queries: cfg.scaled(20_000), Degraded: best, Models: e.Models}
	d.From, d.Until = d.Queries/4, d.Queries/2
	images := sequence(d.Queries, e.Queries, 1)
	says := func(model string, query int) int64 {
		if model == best && d.bad(query) {
			return degraded[images[query]]
		}
		return e.answers[model][images[query]]
	}
	static := map[string][]bool{}
	for _, m := range e.Models {
		wrong := make([]bool, d.Queries)
		static[m.Name] = wrong
		for i := range wrong {
			wrong[i] = says(m.Name, i) != e.labels[images[i]]
		}
		d.Statics = append(d.Statics, d.run(m.Name, wrong))
	}
	g, err := startGateway(ctx, cfg, func(folder string, m *manifestText) {
		for _, name := range e.names() {
			var env []string
			if name == best {
				env = []string{"DEGRADED_WHILE=" + folder + "/" + switchFile}
			}
			m.model(cfg, e, name, false, env...)
		}
		for _, p := range switching {
			m.function(p.function, e.names(), p.policy, patient)
		}
	})
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	bestWrong := static[d.bestStatic().Name]
	for _, p := range switching {
		r, wrong, err := d.play(ctx, g, e, images, p.function, says)
		if err != nil {
			return nil, fmt.Errorf("figure 8, %s: %w", p.name, err)
		}
		r.Name = p.name
		r.BesideBest = besideStretches(wrong, bestWrong)
		d.Policies = append(d.Policies, *r)
		runner.Logf("    %s: error %.4f in %.0f s; best static choice %s %.4f", p.name, r.Error, r.Seconds, d.bestStatic().Name, d.bestStatic().Error)
	}
	return d, nil
}

// play sends the whole sequence to one function: one query after the other, with feedback before the next.
func (d *Degradation) play(ctx context.Context, g *gateway.Gateway, e *experiment, images []int, function string, says func(string, int) int64) (*Run, []bool, error) {
	c := newClient(g.Addr, 1)
	defer c.close()
	begin := time.Now()
	wrong, chosen := make([]bool, d.Queries), make([]bool, d.Queries)
	single := true
	for i := range wrong {
		if i == d.From || i == d.Until || i == 0 {
			if err := degrade(g, d.bad(i)); err != nil {
				return nil, nil, err
			}
		}
		got, err := c.predict(ctx, function, e.rows[images[i]], "")
		if err != nil {
			return nil, nil, err
		}
		if got.Default || len(got.Models) == 0 {
			return nil, nil, fmt.Errorf("query %d: a default output (%s)", i, got.Explanation)
		}
		if !slices.ContainsFunc(got.Models, func(m string) bool { return says(m, i) == got.Output }) {
			return nil, nil, fmt.Errorf("query %d: output %d, which is not what %v say of it", i, got.Output, got.Models)
		}
		label := e.labels[images[i]]
		wrong[i] = got.Output != label
		chosen[i] = got.Models[0] == d.Degraded
		single = single && len(got.Models) == 1
		if err := c.feedback(ctx, function, got.QueryID, label); err != nil {
			return nil, nil, err
		}
	}
	r := d.run(function, wrong)
	if single {
		r.Best = windows(chosen, shareWindow)
	}
	r.Seconds = time.Since(begin).Seconds()
	return &r, wrong, nil
}
