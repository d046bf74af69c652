package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// The targets.
const (
	minGoodputRatio  = 0.95
	maxRefusalMillis = 1.0
	maxRecoverMillis = 1000
	maxLateMillis    = 1.0
	// maxMissed is the fraction of admitted queries that may be late or unanswered, because the speed of a replica is an estimate.
	maxMissed = 0.01
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	ObjectiveMillis float64 `json:"objective_ms"`
	DurationSeconds float64 `json:"duration_seconds"`
	CapacitySeconds float64 `json:"capacity_seconds"`
	Clients         int     `json:"clients"` // of the closed loop that saturates
	Rounds          []Round `json:"rounds"`
}

// spread is results.Spread, but formats a single round as one number.
func spread(digits int, values []float64) string {
	if len(values) == 1 {
		return fmt.Sprintf("%.*f", digits, values[0])
	}
	return results.Spread(digits, values)
}

// of returns the rounds of a setting, in order.
func (r *Report) of(setting string) []Round {
	return results.Where(r.Rounds, func(x Round) bool { return x.Setting == setting })
}

// kept returns the fraction of a stream's requests that got their prediction in time.
func (l Load) kept() float64 {
	return results.Ratio(float64(l.InTime), float64(l.InTime+l.Late+l.Expired+l.Refused+l.Defaults+l.Others))
}

// keptSteady returns the same without the load's first moments.
func (l Load) keptSteady() float64 {
	return results.Ratio(float64(l.SteadyAll-l.SteadyLost), float64(l.SteadyAll))
}

// missed returns the fraction of admitted requests that were answered late or not until the deadline.
func (l Load) missed() float64 {
	return results.Ratio(float64(l.Late+l.Expired), float64(l.InTime+l.Late+l.Expired))
}

// useful returns the fraction of the workers' CPU time that went into answers in time, based on the cost of such an answer at capacity. If the
// machine gives the worker less time under overload, the goodput drops but this does not.
func (r Round) useful(o Overload) float64 {
	work := results.Ratio(r.CapacityBefore.CPU.Workers+r.CapacityAfter.CPU.Workers, r.CapacityBefore.Load.GoodputRPS+r.CapacityAfter.Load.GoodputRPS)
	return results.Ratio(o.Load.GoodputRPS*work, o.CPU.Workers)
}

// loads returns all streams of a round.
func (r Round) loads() []Load {
	all := []Load{r.CapacityBefore.Load, r.CapacityAfter.Load, r.Fairness.Alone, r.Fairness.Beside, r.Fairness.Flood, r.Deadline.Stuck, r.Deadline.Flood}
	for _, o := range r.Overloads {
		all = append(all, o.Load)
	}
	return all
}

// unexpected returns an error for requests whose outcome should not happen.
func (r *Report) unexpected() error {
	var all []error
	for i, round := range r.Rounds {
		for _, l := range round.loads() {
			if l.Others > 0 {
				all = append(all, fmt.Errorf("run %d, %s, %s at %.0f/s: %s", i+1, round.Setting, l.Function, l.OfferedRPS, l.OthersWhy))
			}
		}
	}
	return errors.Join(all...)
}

// Empty implements results.Report.
func (r *Report) Empty() bool { return len(r.Rounds) == 0 }

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("Overload"))
	fmt.Fprintf(&b, "One replica of a kernel SVM, an objective of %g ms, open loops of %gs with Poisson arrivals. Capacity is the goodput of a closed loop of %d clients for %gs, before the overload and after it; "+
		"goodput is right predictions within the objective, as the client sees them, from when a request was due. Medians over rounds, least and most in brackets; latencies in ms. How: ../METHOD.md.\n\n",
		r.ObjectiveMillis, r.DurationSeconds, r.Clients, r.CapacitySeconds)
	b.WriteString("Generator, gateway and worker share the machine. The generator's own lateness is part of every latency, that of refusals above all, and is shown beside them (*sent late*).\n")
	for _, s := range settings {
		if rounds := r.of(s.Name); len(rounds) > 0 {
			r.section(&b, s.Name, rounds)
		}
	}
	if err := r.unexpected(); err != nil {
		fmt.Fprintf(&b, "\n## What should not have happened\n\n```\n%v\n```\n", err)
	}
	return b.String()
}

func (r *Report) section(b *strings.Builder, name string, rounds []Round) {
	last := func(round Round) Overload { return round.Overloads[len(round.Overloads)-1] }
	goodput := results.Each(rounds, func(x Round) float64 { return results.Ratio(last(x).Load.GoodputRPS, x.CapacityRPS) })
	accepted := results.Each(rounds, func(x Round) float64 { return last(x).Load.Accepted.P99 })
	missed := results.Each(rounds, func(x Round) float64 { return last(x).Load.missed() })
	refusals := results.Each(rounds, func(x Round) float64 { return last(x).Load.Refusals.P99 })
	recovered := !slices.ContainsFunc(rounds, func(x Round) bool { return !x.Recovery.Recovered })
	recovery := results.Each(rounds, func(x Round) float64 { return x.Recovery.AfterMillis })
	quietKept := results.Each(rounds, func(x Round) float64 { return results.Ratio(x.Fairness.Beside.kept(), x.Fairness.Alone.kept()) })
	quietSteady := results.Each(rounds, func(x Round) float64 { return x.Fairness.Beside.keptSteady() })
	quietP99 := results.Each(rounds, func(x Round) float64 {
		return results.Ratio(x.Fairness.Beside.Accepted.P99, x.Fairness.Alone.Accepted.P99)
	})
	lateP99 := results.Each(rounds, func(x Round) float64 { return x.Deadline.Client.P99 })

	fmt.Fprintf(b, "\n## %s (%d rounds)\n\n", strings.ToUpper(name[:1])+name[1:], len(rounds))
	fmt.Fprintf(b, "Capacity: %s queries/s.\n\n", spread(0, results.Each(rounds, func(x Round) float64 { return x.CapacityRPS })))
	fmt.Fprintf(b, "| what | measured | target | |\n|---|---|---|---|\n")
	fmt.Fprintf(b, "| goodput at %g × capacity, of capacity | %s | ≥ %.2f | %s |\n", heaviest, spread(2, goodput), minGoodputRatio, results.Verdict(results.Median(goodput) >= minGoodputRatio))
	fmt.Fprintf(b, "| part of the worker's CPU time there that answers in time | %s | – | |\n", spread(2, results.Each(rounds, func(x Round) float64 { return x.useful(last(x)) })))
	fmt.Fprintf(b, "| P99 of accepted there | %s | ≤ %g | %s |\n", spread(1, accepted), r.ObjectiveMillis, results.Verdict(results.Median(accepted) <= r.ObjectiveMillis))
	fmt.Fprintf(b, "| admitted there, but late or expired | %s | ≤ %.2f | %s |\n", spread(3, missed), maxMissed, results.Verdict(results.Median(missed) <= maxMissed))
	fmt.Fprintf(b, "| P99 of refusals there | %s | about %g | %s |\n", spread(2, refusals), maxRefusalMillis, results.Verdict(results.Median(refusals) <= 2*maxRefusalMillis))
	if recovered {
		fmt.Fprintf(b, "| well again after the flood, ms | %s | < %d | %s |\n", spread(0, recovery), maxRecoverMillis, results.Verdict(results.Median(recovery) < maxRecoverMillis))
	} else {
		fmt.Fprintf(b, "| well again after the flood | not always | < %d ms | %s |\n", maxRecoverMillis, results.Verdict(false))
	}
	fmt.Fprintf(b, "| quiet function's answers in time beside the flood, of alone | %s | ≥ %.2f | %s |\n", spread(3, quietKept), minGoodputRatio, results.Verdict(results.Median(quietKept) >= minGoodputRatio))
	fmt.Fprintf(b, "| of them after the first moments of the flood | %s | ≥ %.2f | %s |\n", spread(3, quietSteady), minGoodputRatio, results.Verdict(results.Median(quietSteady) >= minGoodputRatio))
	fmt.Fprintf(b, "| its P99 beside the flood, × alone | %s | – | |\n", spread(1, quietP99))
	fmt.Fprintf(b, "| P99 of how late defaults come under load | %s | about %g | %s |\n", spread(2, lateP99), maxLateMillis, results.Verdict(results.Median(lateP99) <= 2*maxLateMillis))

	b.WriteString("\n| load | offered/s | goodput/s | of capacity | accepted P50 | P99 | late | expired | refused | refused P50 | P99 | sent late P99 | others |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	row := func(what string, load func(Round) Load) {
		col := func(digits int, value func(Load) float64) string {
			return spread(digits, results.Each(rounds, func(x Round) float64 { return value(load(x)) }))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", what,
			col(0, func(l Load) float64 { return l.OfferedRPS }), col(0, func(l Load) float64 { return l.GoodputRPS }),
			spread(2, results.Each(rounds, func(x Round) float64 { return results.Ratio(load(x).GoodputRPS, x.CapacityRPS) })),
			col(1, func(l Load) float64 { return l.Accepted.P50 }), col(1, func(l Load) float64 { return l.Accepted.P99 }),
			col(0, func(l Load) float64 { return float64(l.Late) }), col(0, func(l Load) float64 { return float64(l.Expired) }), col(0, func(l Load) float64 { return float64(l.Refused) }),
			col(2, func(l Load) float64 { return l.Refusals.P50 }), col(2, func(l Load) float64 { return l.Refusals.P99 }),
			col(2, func(l Load) float64 { return l.SendDelayP99 }), col(0, func(l Load) float64 { return float64(l.Others) }))
	}
	for i, factor := range overloads {
		row(fmt.Sprintf("%g ×", factor), func(x Round) Load { return x.Overloads[i].Load })
	}
	row("quiet, alone", func(x Round) Load { return x.Fairness.Alone })
	row("quiet, beside the flood", func(x Round) Load { return x.Fairness.Beside })
	row("the flood beside it", func(x Round) Load { return x.Fairness.Flood })
	row(fmt.Sprintf("%g × beside the stuck model", besideStuck), func(x Round) Load { return x.Deadline.Flood })

	fmt.Fprintf(b, "\nDefaults of the stuck model, after their deadline: P50 %s, P99 %s, at most %s; %s came early. By the gateway's own histogram: P50 at most %s, P99 at most %s.\n",
		spread(2, results.Each(rounds, func(x Round) float64 { return x.Deadline.Client.P50 })), spread(2, lateP99),
		spread(2, results.Each(rounds, func(x Round) float64 { return x.Deadline.Client.Max })), spread(0, results.Each(rounds, func(x Round) float64 { return float64(x.Deadline.Early) })),
		lateBound(rounds, func(h *LateHistogram) float64 { return h.P50Millis }), lateBound(rounds, func(h *LateHistogram) float64 { return h.P99Millis }))

	b.WriteString("\n| cores used | generator | gateway | workers | others |\n|---|---|---|---|---|\n")
	cores := func(what string, cpu func(Round) CPU) {
		col := func(value func(CPU) float64) string {
			return spread(2, results.Each(rounds, func(x Round) float64 { return value(cpu(x)) }))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", what, col(func(c CPU) float64 { return c.Generator }), col(func(c CPU) float64 { return c.Gateway }),
			col(func(c CPU) float64 { return c.Workers }), col(func(c CPU) float64 { return c.Others }))
	}
	cores("capacity, before", func(x Round) CPU { return x.CapacityBefore.CPU })
	cores("capacity, after", func(x Round) CPU { return x.CapacityAfter.CPU })
	for i, factor := range overloads {
		cores(fmt.Sprintf("%g ×", factor), func(x Round) CPU { return x.Overloads[i].CPU })
	}
	cores("quiet, alone", func(x Round) CPU { return x.Fairness.AloneCPU })
	cores("quiet and flood", func(x Round) CPU { return x.Fairness.BesideCPU })
	cores("stuck and 2 ×", func(x Round) CPU { return x.Deadline.CPU })
}

// lateBound formats a number of the gateway's own histogram over the rounds that have one.
func lateBound(rounds []Round, value func(*LateHistogram) float64) string {
	var values []float64
	for _, r := range rounds {
		if r.Deadline.Gateway != nil {
			values = append(values, value(r.Deadline.Gateway))
		}
	}
	return spread(2, values)
}
