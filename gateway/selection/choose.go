package selection

// Vector holds one number for each candidate, in an array that can live on the stack.
type Vector [MaxCandidates]float64

// Draw asks one candidate at random, with probabilities proportional to weights and within the plan's limits. A
// candidate with a limit below 1 keeps that fraction of its weight. The withheld rest goes to the candidates without a
// limit, in proportion to their weights. If every candidate is limited, the remaining weights are scaled up: an answer
// is better than none, and the plan decides how many queries are admitted. P is the resulting probability, so feedback
// is weighted by what really happened. If no limit is above 0, or in a second call, Draw asks no candidate. Weights
// that are negative, NaN or above 1e15 count as 0. If all weights are 0, they are taken as equal.
func Draw(q *Query, weights *Vector, out *Selection) {
	out.Ask = 0
	if q.Asked != 0 {
		return
	}
	var p Vector
	sum := applyLimits(q, weights, &p)
	if sum == 0 {
		return
	}
	r := random(q.Seed)
	u, last := r.unit()*sum, -1
	for t := q.Allowed; t != 0; t &= t - 1 {
		i := t.First()
		if p[i] == 0 {
			continue
		}
		last = i // rounding can leave u slightly above 0 after the last candidate
		if u -= p[i]; u < 0 {
			break
		}
	}
	out.Ask, out.P[last] = Set(0).With(last), min(p[last]/sum, 1) // sums in different orders can differ in the last bit
}

// applyLimits writes to p the weights after limits, and returns their sum.
func applyLimits(q *Query, weights *Vector, p *Vector) (sum float64) {
	total := 0.0
	for t := q.Allowed; t != 0; t &= t - 1 {
		i := t.First()
		p[i] = positive(weights[i])
		total += p[i]
	}
	if total == 0 {
		for t := q.Allowed; t != 0; t &= t - 1 {
			p[t.First()] = 1
		}
		total = float64(q.Allowed.Len())
	}
	if q.Limits == nil {
		return total
	}
	var unlimited Set // candidates whose limit is 1
	withheld, unlimitedSum := 0.0, 0.0
	for t := q.Allowed; t != 0; t &= t - 1 {
		i := t.First()
		if l := q.limit(i); l < 1 {
			withheld += p[i] * (1 - l)
			p[i] *= l
			sum += p[i]
		} else {
			unlimited = unlimited.With(i)
			unlimitedSum += p[i]
		}
	}
	if unlimited == 0 {
		return sum
	}
	for t := unlimited; t != 0; t &= t - 1 {
		i := t.First()
		if unlimitedSum > 0 {
			p[i] += withheld * p[i] / unlimitedSum
		} else {
			p[i] = withheld / float64(unlimited.Len())
		}
	}
	return total
}

// Best asks the candidate with the highest rank whose limit admits this query. It tries the candidates in order of
// rank, each with its limit as the probability, and P is the probability of this outcome. If none is admitted, it draws
// one in proportion to the limits, so a query goes unanswered only if every limit is 0. A NaN rank is lowest, and ties
// go to the lower index. In a second call Best asks no candidate.
func Best(q *Query, rank *Vector, out *Selection) {
	out.Ask = 0
	if q.Asked != 0 {
		return
	}
	r := random(q.Seed)
	reached := 1.0
	for left := q.Allowed; left != 0; {
		i := highest(left, rank)
		left = left.Without(i)
		f := q.limit(i)
		if f >= 1 || f > 0 && r.unit() < f {
			out.Ask, out.P[i] = Set(0).With(i), reached*f
			return
		}
		reached *= 1 - f
	}
	var even Vector
	rest := *q
	rest.Seed = r.next()
	Draw(&rest, &even, out)
	if out.Ask != 0 {
		out.P[out.Ask.First()] *= reached
	}
}

// highest returns the candidate of s with the highest rank, the first one in a tie. s must not be empty.
func highest(s Set, rank *Vector) int {
	best := s.First()
	for t := s; t != 0; t &= t - 1 {
		if i := t.First(); rank[i] > rank[best] || rank[best] != rank[best] {
			best = i
		}
	}
	return best
}

// limit returns candidate i's limit, clamped to the interval from 0 to 1.
func (q *Query) limit(i int) float64 {
	if q.Limits == nil {
		return 1
	}
	return min(positive(q.Limits[i]), 1)
}

// positive returns x, or 0 if x is negative or implausible.
func positive(x float64) float64 {
	if x > 0 && x <= maxPlausible {
		return x
	}
	return 0
}
