package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Personal is figure 10.
type Personal struct {
	Setting         string    `json:"setting"`
	Users           int       `json:"users"`
	FeedbackPerUser int       `json:"feedback_per_user"`
	Groups          int       `json:"groups"`
	Models          []Trained `json:"models"`
	// The error rates of choices that do not learn, over all queries: the global model, the model of the user's reported group, and each
	// user's best group model in hindsight.
	Global   float64 `json:"global_error"`
	Reported float64 `json:"reported_group_error"`
	Best     float64 `json:"best_in_hindsight_error"`
	// BesideGlobal is the reported groups' models' error beyond the global model's, with the interval of the users.
	BesideGlobal results.Interval `json:"reported_beside_global"`
	// Policies are the functions that learn from feedback.
	Policies []PersonalRun `json:"policies"`
}

// PersonalRun is the result of one function.
type PersonalRun struct {
	Name    string `json:"name"`
	Context bool   `json:"context"`
	// Curve is the error rate over all users by the amount of feedback that each had given. Error is the rate over all queries, Late over the
	// second half.
	Curve []Point `json:"error_by_feedback"`
	Error float64 `json:"error"`
	Late  float64 `json:"error_second_half"`
	// LateBeside is the error beyond that of the reported groups' models in the second half, with the interval of the users.
	LateBeside results.Interval `json:"second_half_beside_reported"`
}

// after returns the error rate over the queries with at least so much feedback before them.
func (r *PersonalRun) after(feedback int) float64 {
	var rates []float64
	for _, p := range r.Curve {
		if p.After >= feedback {
			rates = append(rates, p.Value)
		}
	}
	return results.Mean(rates)
}

const (
	// feedbackWindow is the number of queries per user for a point of figure 10.
	feedbackWindow = 5
	// askers is the number of users that send queries concurrently.
	askers = 8
	// globalModel is the model for all users.
	globalModel = "global"
)

// personalPolicies are the functions of figure 10.
var personalPolicies = []struct {
	name, function, policy string
	context                bool
}{
	{"exp4, by user", "exp4-by-user", "exp4", true},
	{"exp4, eta 0.3, by user", "exp4-hasty", "{name: exp4, eta: 0.3}", true},
	{"the paper's Exp4, by user", "paper-exp4-by-user", "{name: exp4, eta: 0.01, floor: 0, vote: 0, boost: 0}", true},
	{"exp3, by user", "exp3-by-user", "exp3", true},
	{"exp4, one for all", "exp4-for-all", "exp4", false},
	{"linucb by the image", "linucb", "{name: linucb, scale: 255}", false},
}

func measurePersonal(ctx context.Context, cfg config) (*Personal, error) {
	e, err := load(cfg.models, "figure10")
	if err != nil {
		return nil, err
	}
	var groupModels []string
	for _, m := range e.Models {
		if m.Name != globalModel {
			groupModels = append(groupModels, m.Name)
		}
	}
	p := &Personal{Setting: e.Setting, Users: cfg.scaled(len(e.Users)), FeedbackPerUser: e.QueriesPerUser, Groups: len(groupModels), Models: e.Models}
	p.statics(e, groupModels)
	g, err := startGateway(ctx, cfg, func(_ string, m *manifestText) {
		for _, name := range groupModels {
			m.model(cfg, e, name, false)
		}
		for _, f := range personalPolicies {
			m.function(f.function, groupModels, f.policy, patient)
		}
	})
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	for _, f := range personalPolicies {
		wrong, err := p.play(ctx, g, e, f.function, f.context)
		if err != nil {
			return nil, fmt.Errorf("figure 10, %s: %w", f.name, err)
		}
		r := PersonalRun{Name: f.name, Context: f.context, Curve: byFeedback(wrong, feedbackWindow)}
		r.Error, r.Late = r.after(0), r.after(p.FeedbackPerUser/2)
		r.LateBeside = p.besideReported(e, groupModels, wrong)
		p.Policies = append(p.Policies, r)
		runner.Logf("    %s: error %.4f, in the second half %.4f; global model %.4f, reported group's %.4f", f.name, r.Error, r.Late, p.Global, p.Reported)
	}
	return p, nil
}

// statics computes the error rates of the choices that do not learn, from the models' stored answers.
func (p *Personal) statics(e *experiment, groupModels []string) {
	rate := func(model string, user int) float64 {
		from := user * e.QueriesPerUser
		return errorRate(e.wrong(e.answers[model])[from : from+p.FeedbackPerUser])
	}
	var global, reported, best []float64
	for u := range p.Users {
		global = append(global, rate(globalModel, u))
		reported = append(reported, rate(groupModels[e.Users[u].Group], u))
		least := 1.0
		for _, m := range groupModels {
			least = min(least, rate(m, u))
		}
		best = append(best, least)
	}
	p.BesideGlobal = results.Average(results.Differences(reported, global))
	p.Global, p.Reported, p.Best = results.Mean(global), results.Mean(reported), results.Mean(best)
}

// besideReported compares the second half of each user's answers with its reported group's model.
func (p *Personal) besideReported(e *experiment, groupModels []string, wrong [][]bool) results.Interval {
	var d []float64
	half := p.FeedbackPerUser / 2
	for u := range wrong {
		from := u * e.QueriesPerUser
		reported := e.wrong(e.answers[groupModels[e.Users[u].Group]])[from+half : from+p.FeedbackPerUser]
		d = append(d, errorRate(wrong[u][half:])-errorRate(reported))
	}
	return results.Average(d)
}

// play sends the users' queries: the first one of all users, then the second one of all, and so on. So no user starts with a function that
// other users have long trained.
func (p *Personal) play(ctx context.Context, g *gateway.Gateway, e *experiment, function string, byUser bool) ([][]bool, error) {
	c := newClient(g.Addr, askers)
	defer c.close()
	wrong := make([][]bool, p.Users)
	for u := range wrong {
		wrong[u] = make([]bool, p.FeedbackPerUser)
	}
	for t := range p.FeedbackPerUser {
		errs := make([]error, askers)
		var running sync.WaitGroup
		for a := range askers {
			running.Go(func() {
				for u := a; u < p.Users && errs[a] == nil; u += askers {
					name := ""
					if byUser {
						name = fmt.Sprint("user-", u)
					}
					row := u*e.QueriesPerUser + t
					wrong[u][t], errs[a] = p.askOnce(ctx, c, e, function, name, row)
				}
			})
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	return wrong, nil
}

// askOnce sends a query and its feedback.
func (p *Personal) askOnce(ctx context.Context, c *client, e *experiment, function, user string, row int) (wrong bool, err error) {
	got, err := c.predict(ctx, function, e.rows[row], user)
	if err != nil {
		return false, err
	}
	if got.Default {
		return false, fmt.Errorf("query %d: a default output (%s)", row, got.Explanation)
	}
	if err := e.check(row, &got); err != nil {
		return false, err
	}
	return got.Output != e.labels[row], c.feedback(ctx, function, got.QueryID, e.labels[row])
}
