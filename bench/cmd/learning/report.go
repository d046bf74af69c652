package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Quick       bool          `json:"quick,omitempty"`
	Seconds     []runner.Took `json:"seconds"`
	Ensembles   []Ensembles   `json:"figure7,omitempty"`
	Degradation *Degradation  `json:"figure8,omitempty"`
	Stragglers  *Stragglers   `json:"figure9,omitempty"`
	Personal    *Personal     `json:"figure10,omitempty"`
	Caching     *Caching      `json:"section42,omitempty"`
}

// Empty implements results.Report.
func (r *Report) Empty() bool {
	return r.Ensembles == nil && r.Degradation == nil && r.Stragglers == nil && r.Personal == nil && r.Caching == nil
}

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("Learning from feedback: the paper's figures 7 to 10 and section 4.2"))
	if r.Quick {
		b.WriteString(results.Smoke)
	}
	b.WriteString("The real gateway with real workers, scikit-learn's models of real handwritten digits, asked over HTTP. How: ../METHOD.md, models: ../models/learning.\n")
	r.besidePaper(&b)
	r.ensembles(&b)
	r.degradation(&b)
	r.stragglers(&b)
	r.personal(&b)
	r.caching(&b)
	var took []string
	for _, t := range r.Seconds {
		took = append(took, fmt.Sprintf("%s %.0f s", t.Part, t.Seconds))
	}
	if len(took) > 0 {
		fmt.Fprintf(&b, "\nTaken in: %s.\n", strings.Join(took, ", "))
	}
	return b.String()
}

// paperFewer is how many of its best model's errors the paper's ensemble avoids on ImageNet, paperCache how much faster the cache makes feedback.
const (
	paperFewer = 0.052
	paperCache = 1.6
)

// besidePaper compares the paper's claims with the measurements. A claim holds if the whole 95 % interval agrees with it.
func (r *Report) besidePaper(b *strings.Builder) {
	b.WriteString("\n## Beside the paper\n\nA claim *holds* if the whole 95 % interval of what was measured agrees with it, and does not hold if none of it does. In between it is not decided.\n\n| the paper | here | |\n|---|---|---|\n")
	row := func(paper, here string, verdict results.Finding) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", paper, here, verdict)
	}
	for i := range r.Ensembles {
		e := &r.Ensembles[i]
		for _, p := range e.Policies {
			here := fmt.Sprintf("%s, %s: %.1f %% against %.1f %%, %s %% fewer", e.Title, p.Name, 100*p.Error, 100*e.best().Error, p.Fewer.Over(0.01).PlusMinus(1))
			row("7: an ensemble has fewer errors than its best model", here, results.AtLeast(0).Judge(p.Fewer))
			row("7: on ImageNet 5.2 % fewer", here, results.AtLeast(paperFewer).Judge(p.Fewer))
		}
		sure, unsure := split(e.Policies[0].Groups, len(e.Models))
		gap := part(unsure.Error, float64(e.Queries)*unsure.Share).Minus(2, part(sure.Error, float64(e.Queries)*sure.Share))
		row("7: where all models agree there are far fewer errors (here: less than half)",
			fmt.Sprintf("%s: %.1f %% wrong in the %.0f %% where all agree, %.1f %% in the others", e.Title, 100*sure.Error, 100*sure.Share, 100*unsure.Error), results.AtLeast(0).Judge(gap))
	}
	if d := r.Degradation; d != nil {
		best := d.bestStatic()
		for i := range d.Policies {
			if p := &d.Policies[i]; i < 4 {
				row("8: "+p.Name+" ends with a lower error than any static choice", fmt.Sprintf("%.1f %% against %.1f %% (%s): %s points", 100*p.Error, 100*best.Error, best.Name, signed(p.BesideBest)), less(p.BesideBest))
			}
		}
	}
	if s := r.Stragglers; s != nil {
		with, without := s.at(16, true), s.at(16, false)
		if with != nil && without != nil {
			row("9a: blocking for 16 members takes far beyond 20 ms at P99; mitigation bounds it", fmt.Sprintf("P99 %.0f ms without, %.1f ms with, of %d queries: too few for an interval of a P99", without.Latency.P99, with.Latency.P99, with.Queries), results.Untold)
			missing := part(with.Missing, float64(with.Queries)) // one member's: those of a query are not independent
			row("9b: most predictions arrive by the deadline", fmt.Sprintf("%s %% of 16 are missing", missing.Over(0.01).Format(1)), results.AtMost(0.5).Judge(missing))
			lost := part(without.Accuracy, float64(without.Queries)).Minus(1, part(with.Accuracy, float64(with.Queries)))
			row("9c: that costs only a little accuracy (here: less than 3 points)", fmt.Sprintf("%.1f %% against %.1f %%: %s points", 100*with.Accuracy, 100*without.Accuracy, lost.Over(0.01).Format(1)), results.AtMost(0.03).Judge(lost))
		}
	}
	if p := r.Personal; p != nil {
		row("10: models of a dialect are better than one for all", fmt.Sprintf("%.1f %% errors against %.1f %%: %s points", 100*p.Reported, 100*p.Global, signed(p.BesideGlobal)), less(p.BesideGlobal))
		for i := range p.Policies {
			if e := &p.Policies[i]; e.Context {
				row("10: with feedback the ensemble becomes better than the reported dialect's model", fmt.Sprintf("%s, second half of the feedback: %.1f %%: %s points beside that model", e.Name, 100*e.Late, signed(e.LateBeside)), less(e.LateBeside))
			}
		}
	}
	if c := r.Caching; c != nil {
		for _, of := range []struct {
			what   string
			rounds []CacheRound
		}{{"queries with their feedback", c.Whole}, {"feedback alone", c.Joins}} {
			ratio := results.Geometric(results.Each(of.rounds, CacheRound.ratio))
			row("4.2: the cache makes feedback 1.6 times faster (6,000 to 11,000/s)", fmt.Sprintf("%s: %s times (%.0f to %.0f/s)", of.what, ratio.Format(2), results.Median(results.Each(of.rounds, CacheRound.without)), results.Median(results.Each(of.rounds, CacheRound.with))), results.AtLeast(paperCache).Judge(ratio))
		}
	}
}

// less is the finding on a difference that is said to be below 0.
func less(i results.Interval) results.Finding { return results.AtMost(0).Judge(i) }

// part is the interval of a proportion of n independent cases.
func part(proportion, n float64) results.Interval {
	return results.Part(int(math.Round(proportion*n)), int(math.Round(n)))
}

func models(b *strings.Builder, all []Trained) {
	b.WriteString("| model | what | error |\n|---|---|---|\n")
	for _, m := range all {
		fmt.Fprintf(b, "| %s | %s | %.1f %% |\n", m.Name, m.What, 100*m.Error)
	}
}

func (r *Report) ensembles(b *strings.Builder) {
	if len(r.Ensembles) == 0 {
		return
	}
	b.WriteString("\n## Figure 7: ensembles and agreement\n\nFive kinds of models, each of which has learned from other images. Each held-out image is asked once. The groups are those of the first ensemble; confidence is the mean of what the gateway said.\n")
	for i := range r.Ensembles {
		e := &r.Ensembles[i]
		fmt.Fprintf(b, "\n**%s**, %d queries:\n\n", e.Title, e.Queries)
		models(b, e.Models)
		b.WriteString("\n| ensemble | error | beside the best single model |\n|---|---|---|\n")
		for _, p := range e.Policies {
			missing := ""
			if p.Missing > 0 {
				missing = fmt.Sprintf(" (%d predictions were missing)", p.Missing)
			}
			fmt.Fprintf(b, "| %s | %.2f %%%s | %.2f× |\n", p.Name, 100*p.Error, missing, p.Error/e.best().Error)
		}
		b.WriteString("\n")
		agreement(b, e)
	}
	b.WriteString(`
*What differs.* The paper's models are convolutional networks on CIFAR and ImageNet, with errors much alike; these are five kinds of scikit-learn's, trained on so few images that they err, each on images of its own,
so that they err on different ones. What a vote gains depends on that. Exp4 promises no more than to be as good as the best model in the long run, and for that a weight falls exponentially with
the errors: the best model comes to decide alone. Our exp4 weighs the plain vote like one more model (gateway/selection/vote.go). One order of so few queries decides little:
bin/learning -orders has twenty.
`)
}

// agreement shows the first policy's answers by how many models agree with them.
func agreement(b *strings.Builder, e *Ensembles) {
	b.WriteString("| models that agree with the answer | part of the queries | error | confidence |\n|---|---|---|---|\n")
	for _, g := range e.Policies[0].Groups {
		fmt.Fprintf(b, "| %d of %d | %.1f %% | %.1f %% | %.2f |\n", g.Agree, len(e.Models), 100*g.Share, 100*g.Error, g.Confidence)
	}
}

func (r *Report) degradation(b *strings.Builder) {
	d := r.Degradation
	if d == nil {
		return
	}
	fmt.Fprintf(b, "\n## Figure 8: the best model becomes a bad one\n\n%d queries, one after the other, each with its feedback before the next. %s, the best of five, answers nine images in ten wrongly from query %d to query %d. Static choices are judged by what the models say of the same sequence; policies have their defaults and begin with nothing.\n\n", d.Queries, d.Degraded, d.From, d.Until)
	models(b, d.Models)
	b.WriteString("\n| choice | error in all | before | while it is bad | after | beside the best static choice |\n|---|---|---|---|---|---|\n")
	line := func(x Run, verdict string) {
		fmt.Fprintf(b, "| %s | %.2f %% | %.1f %% | %.1f %% | %.1f %% | %s |\n", x.Name, 100*x.Error, 100*x.Phases[0], 100*x.Phases[1], 100*x.Phases[2], verdict)
	}
	for _, x := range d.Statics {
		line(x, "")
	}
	for _, x := range d.Policies {
		line(x, fmt.Sprintf("%s points: %s", signed(x.BesideBest), less(x.BesideBest)))
	}
	var noticed []string
	for _, x := range d.Policies {
		if len(x.Best) > 0 {
			noticed = append(noticed, fmt.Sprintf("%s: %s", x.Name, d.noticed(x.Best)))
		}
	}
	if len(noticed) > 0 {
		fmt.Fprintf(b, "\nHow soon it is seen, in stretches of %d queries: %s.\n", shareWindow, strings.Join(noticed, "; "))
	}
	b.WriteString(`
*What differs.* The paper's curves are of CIFAR and of networks; these are of digits. "Degraded" is a model that names the next digit for nine images in ten.
Exp3 and Exp4 as the paper has them follow the model that is best over all time, and take longer to return to a restored one than it was bad. In our exp3 and exp4 no weight falls so far behind
the best one that it could not return (the floor; see gateway/selection). What is gained over the paper's algorithms is gained by that. bin/learning -orders has twenty orders.
`)
}

// noticed says when a share fell below one half and when it rose above it again.
func (d *Degradation) noticed(share []Point) string {
	after := func(from int, so func(Point) bool) string {
		p := results.Find(share, func(p Point) bool { return p.After > from && so(p) })
		if p == nil {
			return "never"
		}
		return fmt.Sprintf("after %d queries", p.After-from)
	}
	if at(share, d.From) < 0.5 {
		return fmt.Sprintf("%.0f %% of the queries had it when it became bad", 100*at(share, d.From))
	}
	return fmt.Sprintf("left %s, back %s", after(d.From, func(p Point) bool { return p.Value < 0.5 }), after(d.Until, func(p Point) bool { return p.Value > 0.5 }))
}

func (s *Stragglers) at(members int, mitigated bool) *StragglerPoint {
	return results.Find(s.Points, func(p StragglerPoint) bool { return p.Members == members && p.Mitigated == mitigated })
}

func (r *Report) stragglers(b *strings.Builder) {
	s := r.Stragglers
	if s == nil {
		return
	}
	fmt.Fprintf(b, "\n## Figure 9: stragglers\n\nRandom forests of ten trees, a worker process each, on MNIST. Open loop, Poisson, %.0f queries/s for every size; of each member's batches %.0f %% take 30 to 60 ms longer. With mitigation the objective is %d ms: the answer is made of what is there, and a default output counts as wrong. Without, it waits for all. Latency counts from when a query was due.\n\n", s.OfferedQPS, 100*s.Share, sloMillis)
	b.WriteString("| members | | queries | mean, ms | P50, ms | P99, ms | missing, mean | missing, P99 | of these not asked | accuracy | defaults |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range s.Points {
		fmt.Fprintf(b, "| %d | %s | %d | %.1f | %.1f | %.1f | %.1f %% | %.0f %% | %.1f %% | %.1f %% | %.1f %% |\n", p.Members, map[bool]string{true: "by 20 ms", false: "waits for all"}[p.Mitigated],
			p.Queries, p.Latency.Mean, p.Latency.P50, p.Latency.P99, 100*p.Missing, 100*p.MissingP99, 100*p.NotAsked, 100*p.Accuracy, 100*p.Defaults)
	}
	b.WriteString(`
*What differs.* The paper's stragglers come from sixteen containers on one machine under load; these are injected, so that they do not depend on the machine, and the load is one that two cores
can serve. A member that sleeps also holds up what comes meanwhile, so more is missing than its batches straggle. Forests are evaluated tree by tree, without the checks of scikit-learn's predict, which cost
three milliseconds a call. "Not asked" are members that the epoch's plan left out for want of capacity; the paper has no such thing. Each forest has learned from 300 images only, so that
the ensemble's size shows in the accuracy.
`)
}

func (r *Report) personal(b *strings.Builder) {
	p := r.Personal
	if p == nil {
		return
	}
	fmt.Fprintf(b, "\n## Figure 10: personal choices\n\n%s Each user asks %d times, with feedback each time, users in turn; no user asks an image twice.\n\n", p.Setting, p.FeedbackPerUser)
	models(b, p.Models)
	b.WriteString("\n(The errors of a group's model are over all users.)\n\n| choice | error | in the second half |\n|---|---|---|\n")
	fmt.Fprintf(b, "| global model | %.1f %% | |\n| reported group's model | %.1f %% | |\n| best group's model of each user, in hindsight | %.1f %% | |\n", 100*p.Global, 100*p.Reported, 100*p.Best)
	for i := range p.Policies {
		fmt.Fprintf(b, "| %s | %.1f %% | %.1f %% |\n", p.Policies[i].Name, 100*p.Policies[i].Error, 100*p.Policies[i].Late)
	}
	b.WriteString("\n| feedback of a user so far |")
	for i := range p.Policies {
		fmt.Fprintf(b, " %s |", p.Policies[i].Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(p.Policies)) + "\n")
	for _, q := range p.Policies[0].Curve {
		fmt.Fprintf(b, "| %d |", q.After)
		for i := range p.Policies {
			fmt.Fprintf(b, " %.1f %% |", 100*at(p.Policies[i].Curve, q.After))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "\n%s is below the global model after %s, and below the reported group's after %s of feedback from a user.\n", p.Policies[0].Name, p.Policies[0].below(p.Global), p.Policies[0].below(p.Reported))
	b.WriteString(`
*What differs.* The paper has speech and dialects (TIMIT, which is not free); a slant of real digits stands for a dialect here. That users differ within their group is part of it: those near
the next group are served better by a mixture than by the model of the group that they report, which is what the paper found. A new user begins with half of what
all together have learned of the models, which is of no use where users differ as much as here: with a larger eta it is overcome sooner. Exp3 learns from one model per query: so few labels are little for eight models.
`)
}

// below returns the amount of feedback from which on the error is below a level, both at that point and on average after it.
func (r *PersonalRun) below(level float64) string {
	for _, p := range r.Curve {
		if p.Value < level && r.after(p.After) < level {
			return fmt.Sprint(p.After)
		}
	}
	return "no amount"
}

func (r *Report) caching(b *strings.Builder) {
	c := r.Caching
	if c == nil {
		return
	}
	fmt.Fprintf(b, "\n## Section 4.2: feedback and the cache\n\nAn exp4 ensemble of four models, %d images of MNIST, %d clients that wait for each answer, %d observations a request. *Feedback alone*: all images have been asked once; then comes what they are, by input. *Queries with feedback*: images that are marked, so that they never were before, are asked; then comes what they are, by input. Without the cache the models are asked again for each feedback. Observations are those that the gateway has counted.\n\n", c.Images, teachers, feedbackBatch)
	models(b, c.Models)
	b.WriteString("\n| observations/s, median (least–most) | without the cache | with it | ratio |\n|---|---|---|---|\n")
	for _, of := range []struct {
		what   string
		rounds []CacheRound
	}{{"queries with feedback", c.Whole}, {"feedback alone", c.Joins}} {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", of.what, results.Spread(0, results.Each(of.rounds, CacheRound.without)), results.Spread(0, results.Each(of.rounds, CacheRound.with)), results.Spread(2, results.Each(of.rounds, CacheRound.ratio)))
	}
	b.WriteString(`
*What differs.* The paper does not say what an observation is. If it is a query with its feedback, the cache saves one of two evaluations, and 2 is the most that can come out; the paper's 1.6 is below
that, and so is the first line here. It is the lower the less evaluations cost beside the rest: in batches the second evaluation of an image is cheap, and 784 numbers of JSON, twice, cost the same
with the cache and without. Feedback alone gains more, for with the cache it evaluates nothing at all. The paper's second linear SVM is Spark's; here stochastic gradient descent trains it. Clients,
gateway and four workers share the machine.
`)
}
