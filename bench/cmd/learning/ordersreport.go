package main

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// percent formats an error rate in percent.
func percent(i results.Interval) string { return i.Over(0.01).PlusMinus(2) }

// signed formats a difference of error rates in percentage points.
func signed(i results.Interval) string { return i.Over(0.01).Signed(2) }

// points is signed with the word for it.
func points(i results.Interval) string {
	word := "within noise"
	switch {
	case i.High < 0:
		word = "fewer"
	case i.Low > 0:
		word = "**more**"
	}
	return signed(i) + ", " + word
}

// Markdown implements results.Report.
func (o *Orders) Markdown() string {
	var b strings.Builder
	b.WriteString(o.Heading("Learning in many orders"))
	if o.Quick {
		b.WriteString(results.Smoke)
	}
	fmt.Fprintf(&b, "%d orders of every scenario, played to the policies in one process, without a gateway: the policies' own code, with feedback after each query. Data sets are answers of scikit-learn's models, from before. Errors in percent, with intervals of 95 %% of Student's t over the orders; differences are taken within an order. How: ../METHOD.md. Taken in %.0f s.\n", o.Orders, o.Seconds)
	b.WriteString("\n## Scenarios\n\n")
	results.TableHead(&b, "scenario", "", "queries", "models", "what")
	for i := range o.Scenarios {
		p := &o.Scenarios[i]
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s |\n", p.Name, p.Kind, p.Queries, p.Models, p.What)
	}
	o.beside(&b)
	o.errors(&b)
	o.phases(&b)
	o.users(&b)
	o.swept(&b)
	return b.String()
}

// beside compares exp4 with the plain vote and with the best model.
func (o *Orders) beside(b *strings.Builder) {
	b.WriteString("\n## exp4 beside the plain vote and the best model\n\nDifference in percentage points. *The paper's* is Exp4 without bound and vote, with the better of the two etas in each scenario, in hindsight.\n\n")
	results.TableHead(b, "scenario", "exp4 beside the vote", "exp4 beside the best model", "without vote and boost beside the vote", "the paper's beside the vote", "exp4 beside the paper's")
	for i := range o.Scenarios {
		p := &o.Scenarios[i]
		exp4, paper := p.run(defaultRun), p.run("the paper's Exp4, eta 0.01")
		if other := p.run("the paper's Exp4, eta 0.1"); other.Error.Value < paper.Error.Value {
			paper = other
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", p.Name, points(exp4.BesideVote), points(exp4.BesideBest), points(p.run("exp4 without vote and boost").BesideVote), points(paper.BesideVote),
			points(results.Average(results.Differences(exp4.Errors, paper.Errors))))
	}
}

// errors shows every policy's errors.
func (o *Orders) errors(b *strings.Builder) {
	names := []string{bestRun}
	for _, c := range o.Contenders {
		names = append(names, c.Name)
	}
	b.WriteString("\n## Errors\n\n")
	results.TableHead(b, append([]string{"scenario"}, names...)...)
	for i := range o.Scenarios {
		fmt.Fprintf(b, "| %s |", o.Scenarios[i].Name)
		for _, name := range names {
			fmt.Fprintf(b, " %s |", percent(o.Scenarios[i].run(name).Error))
		}
		b.WriteString("\n")
	}
}

// phases shows how scenarios with one failure go: before, while, after.
func (o *Orders) phases(b *strings.Builder) {
	b.WriteString("\n## Before, while and after the best model fails\n")
	for i := range o.Scenarios {
		p := &o.Scenarios[i]
		if p.Kind != drifting || len(p.Runs[0].Phases) != 3 {
			continue
		}
		fmt.Fprintf(b, "\n**%s**:\n\n", p.Name)
		results.TableHead(b, "", "before", "while", "after", "in all", "beside the best model")
		for _, r := range p.Runs {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", r.Name, percent(r.Phases[0]), percent(r.Phases[1]), percent(r.Phases[2]), percent(r.Error), points(r.BesideBest))
		}
	}
	b.WriteString("\nExp3 and Exp4 as in the paper sum up losses for ever. They leave a failing model when it has lost its lead, and return when the others have lost theirs. The bound on lags (`floor`) is ours, and so is what is gained by it.\n")
}

// users shows figure 10.
func (o *Orders) users(b *strings.Builder) {
	for i := range o.Scenarios {
		p := &o.Scenarios[i]
		if p.Kind != personal {
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n%s The best model in hindsight is each user's own. The difference is to the reported group's model, in the second half of the feedback.\n\n", strings.ToUpper(p.Name[:1])+p.Name[1:], p.What)
		results.TableHead(b, "", "first half", "second half", "second half beside the reported group's model")
		reported := p.run(reportedRun)
		for _, r := range p.Runs {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", r.Name, percent(r.Phases[0]), percent(r.Phases[1]), points(results.Average(results.Differences(r.PhaseErrors[1], reported.PhaseErrors[1]))))
		}
		if len(o.Routers) > 0 && p.run(o.Routers[0].Name) != nil {
			b.WriteString("\nThe other policies keep a state for each user. linucb has one for all users, sees an input of each query, and like exp3 learns from the one model that it asks; exp4 asks all eight.\n")
		}
	}
}

// regret is the mean over scenarios of a kind of the errors beyond the better of the plain vote and the best model, by order.
func (o *Orders) regret(name, kind string, single bool) []float64 {
	sum, n := make([]float64, min(o.Orders, sweepOrderCount)), 0.0
	for i := range o.Scenarios {
		p := &o.Scenarios[i]
		if p.Kind != kind {
			continue
		}
		n++
		vote, best := p.run(voteRun), p.run(bestRun)
		other := best
		if !single && vote.Error.Value < best.Error.Value {
			other = vote
		}
		for k, d := range results.Differences(p.run(name).Errors, other.Errors[:len(sum)]) {
			sum[k] += d
		}
	}
	for k := range sum {
		sum[k] /= max(n, 1)
	}
	return sum
}

// worst returns the scenario in which the run has most errors beyond the plain vote.
func (o *Orders) worst(name string) (*Played, results.Interval) {
	var at *Played
	for i := range o.Scenarios {
		if p := &o.Scenarios[i]; p.Kind != personal && (at == nil || p.run(name).BesideVote.Value > at.run(name).BesideVote.Value) {
			at = p
		}
	}
	return at, at.run(name).BesideVote
}

// swept shows the sweep.
func (o *Orders) swept(b *strings.Builder) {
	fmt.Fprintf(b, "\n## The sweep\n\nErrors beyond the better of the plain vote and the best model (for exp3 beyond the best model), mean over the scenarios of a kind, in percentage points, of the first %d orders; below 0 they are fewer. The last column is the scenario in which the setting is worst beside the plain vote.\n\n", min(o.Orders, sweepOrderCount))
	results.TableHead(b, "setting", stationary, drifting, personal, "worst beside the vote")
	for _, c := range o.Sweep {
		single := c.Policy == "exp3"
		worst := "–"
		if !single {
			at, by := o.worst(c.Name)
			worst = fmt.Sprintf("%s: %s", at.Name, points(by))
		}
		fmt.Fprintf(b, "| %s |", c.Name)
		for _, kind := range []string{stationary, drifting, personal} {
			fmt.Fprintf(b, " %s |", signed(results.Average(o.regret(c.Name, kind, single))))
		}
		fmt.Fprintf(b, " %s |\n", worst)
	}
}
