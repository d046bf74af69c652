package selection

// Vector is a number for each candidate: a working array that needs no memory of the heap.
type Vector [MaxCandidates]float64

// Draw asks one candidate at random, with probabilities in proportion to the wishes, within what the plan has room for: each
// candidate keeps the part of its wish that its limit says, and what that holds back goes to those without a limit (of 1), as
// they were wished for. Where there is none of them the parts that are kept are scaled up: any answer is better than none, and
// how many there are to be is for the plan to say. What comes of it is also what is recorded as P, so that feedback is weighted
// by what really happened. With no limit above 0 nobody is asked, and in a second call nobody either. Wishes that are negative,
// NaN or beyond 1e15 count as 0; if all are, they are equal.
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
		last = i // rounding may leave u a little above 0 after the last one
		if u -= p[i]; u < 0 {
			break
		}
	}
	out.Ask, out.P[last] = Set(0).With(last), min(p[last]/sum, 1) // sums in two orders differ in their last bit
}

// within writes wishes as far as the limits let them, and returns their sum.
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
	var unlimited Set // of limits
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

// Best asks the candidate with the highest rank whose limit lets this query through: each is tried with its limit as the
// chance, the best one first, and P is the chance that it came to that. When all have been tried in vain, one is drawn in
// proportion to the limits, so that a query is only left unanswered when every limit is 0. A rank that is NaN is the lowest;
// equal ranks go by the order of the candidates. In a second call nobody is asked.
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

// highest is the candidate of s, which is not empty, with the highest rank; the first one of several.
func highest(s Set, rank *Vector) int {
	best := s.First()
	for t := s; t != 0; t &= t - 1 {
		if i := t.First(); rank[i] > rank[best] || rank[best] != rank[best] {
			best = i
		}
	}
	return best
}

// limit is candidate i's limit, from 0 to 1.
func (q *Query) limit(i int) float64 {
	if q.Limits == nil {
		return 1
	}
	return min(positive(q.Limits[i]), 1)
}

// positive is x, and 0 for what is negative or no number that a policy could mean.
func positive(x float64) float64 {
	if x > 0 && x <= maxPlausible {
		return x
	}
	return 0
}
