package selection

func init() {
	Register(Definition{
		Name: "epsilon-greedy",
		Doc:  "asks the candidate with the lowest mean loss, and sometimes a random one",
		Parameters: []Parameter{
			{"epsilon", Number, 0.1, 0, 1, "fraction of the queries that is spread evenly over all candidates"},
			memoryParameter(500),
		},
		Make: func(v Values) (Policy, error) {
			return &epsilonGreedy{Counting{Memory: memoryOf(v)}, "epsilon-greedy", v.Number("epsilon")}, nil
		},
	})
}

// epsilonGreedy is the simplest of the policies that explore (Sutton and Barto, Reinforcement learning, section 2.2).
// Its mean losses count one extra right answer for each candidate, so a candidate with few observations is tried.
type epsilonGreedy struct {
	Counting
	named
	epsilon float64
}

func (p *epsilonGreedy) Select(q *Query, out *Selection) {
	var prob Vector
	p.probabilities(q.State, q.Allowed, &prob)
	Draw(q, &prob, out)
}

func (p *epsilonGreedy) Shares(s State, allowed Set, dst []float64) {
	var prob Vector
	p.probabilities(s, allowed, &prob)
	copy(dst, prob[:])
}

// probabilities spreads 1−ε over the candidates with the lowest mean loss, and ε over all.
func (p *epsilonGreedy) probabilities(s State, allowed Set, dst *Vector) {
	best, least := Set(0), 0.0
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		count, loss := rowCounts(s.Row(i))
		switch mean := loss / (count + 1); {
		case best == 0 || mean < least:
			best, least = Set(0).With(i), mean
		case mean == least:
			best = best.With(i)
		}
	}
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		dst[i] = p.epsilon / float64(allowed.Len())
		if best.Has(i) {
			dst[i] += (1 - p.epsilon) / float64(best.Len())
		}
	}
}
