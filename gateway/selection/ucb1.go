package selection

import "math"

func init() {
	Register(Definition{
		Name: "ucb1",
		Doc:  "asks the candidate with the lowest confidence bound on its loss",
		Parameters: []Parameter{
			{"explore", Number, 0.1, 0, 100, "weight of the uncertainty term; 2 in the proof for arbitrary losses, less for most"},
			memoryParameter(1000),
		},
		Make: func(v Values) (Policy, error) {
			return &ucb1{Counting{Memory: memoryOf(v)}, "ucb1", v.Number("explore")}, nil
		},
	})
}

// ucb1 asks the candidate with the lowest bound mean − √(c·ln n / nᵢ) on its loss, where nᵢ of n losses are its own
// (Auer, Cesa-Bianchi and Fischer, Finite-time analysis of the multiarmed bandit problem, 2002, figure 1, with c = 2).
// With a memory it is discounted UCB (Garivier and Moulines, 2011). Losses arrive later than queries. Until a candidate
// has a loss, it shares the queries with the other unknown candidates; otherwise the first of them would get all
// queries until feedback arrives.
type ucb1 struct {
	Counting
	named
	explore float64
}

// unknownBelow is the discounted count below which a candidate is unknown: half of its last loss has been forgotten.
const unknownBelow = 0.5

func (p *ucb1) Select(q *Query, out *Selection) {
	var rank Vector
	p.rank(q.State, q.Allowed, &rank)
	r := random(mix(q.Seed))
	unknown := Set(0)
	for t := q.Allowed; t != 0; t &= t - 1 {
		if i := t.First(); math.IsInf(rank[i], 1) {
			rank[i] = maxPlausible * (1 + r.unit())
			unknown = unknown.With(i)
		}
	}
	Best(q, &rank, out)
	if drawn := out.Ask & unknown; drawn != 0 {
		out.P[drawn.First()] /= float64(unknown.Len())
	}
}

// rank writes the negated lower bound of each candidate's loss, +Inf for unknown candidates.
func (p *ucb1) rank(s State, allowed Set, dst *Vector) {
	n := 0.0
	for t := allowed; t != 0; t &= t - 1 {
		count, _ := rowCounts(s.Row(t.First()))
		n += count
	}
	doubt := p.explore * math.Log(max(n, 1))
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		count, loss := rowCounts(s.Row(i))
		dst[i] = math.Inf(1)
		if count >= unknownBelow {
			dst[i] = math.Sqrt(doubt/count) - loss/count
		}
	}
}

// exploreShare is the fraction of the queries that the plan reserves for candidates which are not the best now: one of
// them may become the best before the next plan.
const exploreShare = 0.1

func (p *ucb1) Shares(s State, allowed Set, dst []float64) {
	clear(dst)
	if allowed == 0 {
		return
	}
	var rank Vector
	p.rank(s, allowed, &rank)
	best := Set(0)
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		if best == 0 || rank[i] > rank[best.First()] {
			best = Set(0).With(i)
		} else if rank[i] == rank[best.First()] {
			best = best.With(i)
		}
	}
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		dst[i] = exploreShare / float64(allowed.Len())
		if best.Has(i) {
			dst[i] += (1 - exploreShare) / float64(best.Len())
		}
	}
}
