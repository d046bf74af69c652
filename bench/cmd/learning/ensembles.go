package main

import (
	"context"
	"fmt"
	"slices"
)

// Ensembles is one set of data in figure 7.
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
	// Missing are predictions that were not there at the deadline.
	Missing int `json:"missing,omitempty"`
}

// best is the model with the fewest errors, known only afterwards.
func (e *Ensembles) best() Trained {
	return slices.MinFunc(e.Models, func(a, b Trained) int { return compare(a.Error, b.Error) })
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// ensemblePolicies are the ways that are compared. The first is what the figure and the groups are of: the original's eta. The last
// is a plain vote: nobody tells it anything.
var ensemblePolicies = []struct {
	name, function, policy string
	learns                 bool
}{
	{"exp4, eta 0.01", "slow", "{name: exp4, eta: 0.01}", true},
	{"exp4", "usual", "exp4", true},
	{"equal weights", "equal", "exp4", false},
}

// patient is an objective that no query here fails to meet.
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
	out := &Ensembles{Title: title, Queries: cfg.scaled(e.Queries), Models: slices.Clone(e.Models)}
	for i := range out.Models { // of those that are asked, which with -quick are not all
		m := &out.Models[i]
		m.Error = errorRate(e.wrong(e.answers[m.Name])[:out.Queries])
	}
	c := newClient(g.addr, 1)
	defer c.close()
	for _, p := range ensemblePolicies {
		r := EnsemblePolicy{Name: p.name}
		all := make([]answered, out.Queries)
		for i := range all {
			got, err := c.predict(ctx, p.function, e.rows[i], "")
			if err != nil {
				return nil, err
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
			if all[i].wrong {
				r.Error++
			}
		}
		r.Error /= float64(len(all))
		r.Groups = groups(all, len(e.Models))
		out.Policies = append(out.Policies, r)
		progress("%s, %s: error %.4f; best single model %s %.4f", title, p.name, r.Error, out.best().Name, out.best().Error)
	}
	return out, nil
}

// agreeing is how many models say of a query what was answered.
func (e *experiment) agreeing(query int, output int64) int {
	n := 0
	for _, m := range e.Models {
		if e.answers[m.Name][query] == output {
			n++
		}
	}
	return n
}

// check refuses an answer that none of the models could have given.
func (e *experiment) check(query int, got *prediction) error {
	if !got.Default && e.agreeing(query, got.Output) == 0 {
		return fmt.Errorf("query %d: output %d, which none of the models says", query, got.Output)
	}
	return nil
}
