package main

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// more formats a difference of error rates with the word for it.
func more(m mean) string { return points(m.interval()) }

// Markdown implements results.Report.
func (s *Sets) Markdown() string {
	var b strings.Builder
	b.WriteString(s.Heading("Learning from more than digits"))
	if s.Quick {
		b.WriteString(results.Smoke)
	}
	fmt.Fprintf(&b, "%d orders of every scenario, played to the policies in one process, without a gateway: the policies' own code, with feedback after each query. Errors in percent, with intervals of 95 %% of Student's t over the orders; differences are taken within an order. How: ../METHOD.md. Taken in %.0f s.\n", s.Orders, s.Seconds)
	s.sets(&b)
	s.networks(&b)
	s.beside(&b)
	s.errors(&b)
	s.users(&b)
	return b.String()
}

// sets shows the sets and their models.
func (s *Sets) sets(b *strings.Builder) {
	b.WriteString("\n## Sets\n\n")
	results.TableHead(b, "set", "queries", "models and their errors, %")
	for _, file := range s.Index {
		if file.Missing != "" {
			fmt.Fprintf(b, "| %s | – | left out: %s |\n", file.Title, file.Missing)
			continue
		}
		queries := 0
		if at := results.Find(s.Scenarios, func(p Summary) bool { return p.Set == file.Name }); at != nil {
			queries = at.Queries
		}
		var models []string
		for _, m := range s.Models[file.Name] {
			models = append(models, fmt.Sprintf("%s %.1f", m.Name, 100*m.Error))
		}
		fmt.Fprintf(b, "| %s | %d | %s |\n", file.Title, queries, strings.Join(models, ", "))
	}
}

// networks shows models of different size, as the paper's table 2.
func (s *Sets) networks(b *strings.Builder) {
	for _, file := range s.Index {
		if models := s.Models[file.Name]; len(models) > 0 && models[0].Parameters > 0 {
			fmt.Fprintf(b, "\n## Networks of different size\n\n%s, in ONNX Runtime.\n\n", file.Title)
			networkTable(b, models)
		}
	}
}

// beside compares policies with the plain vote and the best model.
func (s *Sets) beside(b *strings.Builder) {
	b.WriteString("\n## Beside the plain vote, the best model and exp4\n\nDifference in percentage points.\n\n")
	results.TableHead(b, "scenario", "exp4 beside the vote", "exp4 beside the best model", "exp3 beside the best model", "the paper's Exp4, eta 0.01, beside exp4", "eta 0.1", "stacking beside exp4", "linucb by the input beside exp3")
	for i := range s.Scenarios {
		p := &s.Scenarios[i]
		if p.Kind == personal {
			continue
		}
		exp4, exp3, routed := p.run(defaultRun), p.run("exp3"), p.run("linucb by the input")
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", p.Name, more(*exp4.BesideVote), more(*exp4.BesideBest), more(*exp3.BesideBest), more(p.run("the paper's Exp4, eta 0.01").BesideDefault),
			more(p.run("the paper's Exp4, eta 0.1").BesideDefault), more(p.run(stackingRun).BesideDefault), more(*routed.BesideExp3))
	}
}

// errors shows every policy's errors, by the kind of scenario.
func (s *Sets) errors(b *strings.Builder) {
	for _, kind := range []string{stationary, drifting} {
		shown := results.Where(s.Scenarios, func(p Summary) bool { return p.Kind == kind })
		if len(shown) == 0 {
			continue
		}
		columns := []string{"policy"}
		for i := range shown {
			columns = append(columns, shown[i].Name)
		}
		fmt.Fprintf(b, "\n## Errors: %s\n\n", kind)
		results.TableHead(b, columns...)
		for _, r := range shown[0].Runs {
			fmt.Fprintf(b, "| %s |", r.Name)
			for i := range shown {
				fmt.Fprintf(b, " %s |", percent(shown[i].run(r.Name).Error.interval()))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\nRows come many times in streams in which models fail, which favours stacking: it can learn by heart which answers together mean which class. Of two classes, what a failing model says can be learned, too.\n")
}

// users shows choices by user.
func (s *Sets) users(b *strings.Builder) {
	for i := range s.Scenarios {
		p := &s.Scenarios[i]
		if p.Kind != personal {
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n%s The best model in hindsight is each user's own. The difference is to the reported group's model, in the second half of the feedback.\n\n", strings.ToUpper(p.Name[:1])+p.Name[1:], p.What)
		results.TableHead(b, "", "first half", "second half", "second half beside the reported group's model")
		for _, r := range p.Runs {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", r.Name, percent(r.Phases[0].interval()), percent(r.Phases[1].interval()), more(*r.BesideReported))
		}
	}
}
