package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Ensembles is one data set of figure 7.
type Ensembles struct {
	Title    string           `json:"title"`
	Queries  int              `json:"queries"`
	Models   []Trained        `json:"models"`
	Policies []EnsemblePolicy `json:"policies"`
}

// EnsemblePolicy is one way to weigh the models.
type EnsemblePolicy struct {
	Name   string  `json:"name"`
	Error  float64 `json:"error"`
	Groups []Group `json:"groups"`
	// Fewer is the part of the best single model's errors that the ensemble avoids, with the interval of the queries.
	Fewer results.Interval `json:"fewer_than_best"`
	// Missing is the number of predictions that missed the deadline.
	Missing int `json:"missing,omitempty"`
}

// best returns the model with the fewest errors, in hindsight.
func (e *Ensembles) best() Trained {
	return slices.MinFunc(e.Models, func(a, b Trained) int { return cmp.Compare(a.Error, b.Error) })
}

// fewer returns the part of the errors of best that wrong avoids. The interval is that of the difference, query by query.
func fewer(wrong, best []bool) results.Interval {
	d := make([]float64, len(wrong))
	for i := range d {
		switch {
		case best[i] && !wrong[i]:
			d[i] = 1
		case wrong[i] && !best[i]:
			d[i] = -1
		}
	}
	if rate := errorRate(best); rate > 0 {
		return results.Average(d).Over(rate)
	}
	return results.Interval{}
}

// ensemblePolicies are the policies of the comparison. The figure and the groups show the first one. The paper's Exp4 has no bound on lags and
// no vote; its eta is that of Clipper's code. The last is a plain vote, which gets no feedback.
var ensemblePolicies = []struct {
	name, function, policy string
	learns                 bool
}{
	{"exp4", "usual", "exp4", true},
	{"the paper's Exp4", "paper", "{name: exp4, eta: 0.01, floor: 0, vote: 0, boost: 0}", true},
	{"equal weights", "equal", "exp4", false},
}

// patient is an objective that every query meets.
const patient = "5s"

func measureEnsembles(ctx context.Context, cfg config) (out []Ensembles, err error) {
	for _, set := range []struct{ name, title string }{{"figure7-digits", "scikit-learn's digits"}, {"figure7-mnist", "MNIST"}} {
		e, err := load(cfg.models, set.name)
		if err != nil {
			return nil, err
		}
		r, err := measureEnsemble(ctx, cfg, e, set.title)
		if err != nil {
			return nil, fmt.Errorf("figure 7, %s: %w", set.title, err)
		}
		out = append(out, *r)
	}
	return out, nil
}

func measureEnsemble(ctx context.Context, cfg config, e *experiment, title string) (*Ensembles, error) {
	g, err := startGateway(ctx, cfg, func(_ string, m *manifestText) {
		for _, name := range e.names() {
			m.model(cfg, e, name, false)
		}
		for _, p := range ensemblePolicies {
			m.function(p.function, e.names(), p.policy, patient)
		}
	})
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	return askEnsembles(ctx, cfg, g, e, title)
}

// askEnsembles asks the function of each policy.
func askEnsembles(ctx context.Context, cfg config, g *gateway.Gateway, e *experiment, title string) (*Ensembles, error) {
	out := &Ensembles{Title: title, Queries: cfg.scaled(e.Queries), Models: slices.Clone(e.Models)}
	for i := range out.Models { // over the measured queries, which are not all with -quick
		m := &out.Models[i]
		m.Error = errorRate(e.wrong(e.answers[m.Name])[:out.Queries])
	}
	c := newClient(g.Addr, 1)
	defer c.close()
	for _, p := range ensemblePolicies {
		r := EnsemblePolicy{Name: p.name}
		all, wrong := make([]answered, out.Queries), make([]bool, out.Queries)
		for i := range all {
			got, err := c.predict(ctx, p.function, e.rows[i], "")
			if err != nil {
				return nil, err
			}
			if got.Default { // of a patient function
				return nil, fmt.Errorf("%s: query %d: a default output (%s)", p.function, i, got.Explanation)
			}
			if err := e.check(i, &got); err != nil {
				return nil, fmt.Errorf("%s: %w", p.function, err)
			}
			all[i] = answered{e.agreeing(i, got.Output), got.Output != e.labels[i], got.Confidence}
			r.Missing += got.missing(len(e.Models))
			if p.learns {
				if err := c.feedback(ctx, p.function, got.QueryID, e.labels[i]); err != nil {
					return nil, err
				}
			}
			wrong[i] = all[i].wrong
		}
		r.Error, r.Fewer = errorRate(wrong), fewer(wrong, e.wrong(e.answers[out.best().Name])[:out.Queries])
		r.Groups = groups(all, len(e.Models))
		out.Policies = append(out.Policies, r)
		runner.Logf("    %s, %s: error %.4f; best single model %s %.4f", title, p.name, r.Error, out.best().Name, out.best().Error)
	}
	return out, nil
}

// agreeing returns how many models give the same output for the query.
func (e *experiment) agreeing(query int, output int64) int {
	n := 0
	for _, m := range e.Models {
		if e.answers[m.Name][query] == output {
			n++
		}
	}
	return n
}

// check returns an error if no model gives the output for the query.
func (e *experiment) check(query int, got *prediction) error {
	if !got.Default && e.agreeing(query, got.Output) == 0 {
		return fmt.Errorf("query %d: output %d, which no model gives", query, got.Output)
	}
	return nil
}
