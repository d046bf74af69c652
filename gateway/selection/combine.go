package selection

import "math"

// agreeSlack is more than the relative rounding error between equal numbers and their average, or between two sums of the same weights.
const agreeSlack = 1e-9

// Vote combines answers by the weights of the candidates in c.Selected, which need not sum to 1. It is the Combine of
// all built-in policies.
//
// Labels: the answer is the class whose supporters weigh most, and Winner is the supporter with the lowest index.
// Between classes of equal weight, the class with the lowest index wins. Numbers: the answer is the weighted average
// over Known, where the running average stands in for a candidate that has not answered (the paper, section 5.2.2). The
// weight of a vote is the candidate's weight times its own confidence, if it states one.
//
// Confidence is the weight of the candidates whose own prediction agrees with the answer, divided by the weight of all
// that were asked: a late candidate agrees with nothing. The paper counts models instead, which is the same for equal
// weights. The single answer of a single candidate has that candidate's own confidence, or 1.
func Vote(c *Combination, weights *Vector) { voteBeside(c, weights, 0) }

// voteBeside is Vote with the plain vote beside the candidates. Its weight goes to the class that most answers have, and
// is split among classes that equally many have. In averages and in the confidence it is the candidates', in equal parts.
func voteBeside(c *Combination, weights *Vector, plain float64) {
	c.Winner, c.Agreed, c.Confidence = -1, 0, 0
	total := plain
	for t := c.Selected; t != 0; t &= t - 1 {
		total += positive(weights[t.First()])
	}
	if total == 0 { // no built-in policy does this: their weights have a floor
		weights, total = &even, float64(c.Selected.Len())
	}
	part := plain / float64(max(c.Selected.Len(), 1))
	var support float64
	switch {
	case c.Width > 0 && part > 0:
		shared := *weights
		for t := c.Selected; t != 0; t &= t - 1 {
			i := t.First()
			shared[i] = positive(shared[i]) + part
		}
		support = c.average(&shared)
	case c.Width > 0:
		support = c.average(weights)
	default:
		support = c.vote(weights, plain)
		for a := range c.Answers {
			if c.Agreed.Has(c.Answers[a].Candidate) {
				support += part * c.Answers[a].certainty()
			}
		}
	}
	switch {
	case support > total*(1-agreeSlack): // all agree, and the sums are rounded differently
		c.Confidence = 1
	case total > 0:
		c.Confidence = support / total
	}
}

// weight returns the weight of the answer's vote.
func (a *Answer) weight(weights *Vector) float64 {
	return positive(weights[a.Candidate]) * a.certainty()
}

// certainty returns the model's own confidence, or 1 if it states none.
func (a *Answer) certainty() float64 {
	if a.Confidence < 1 { // false for NaN
		return max(a.Confidence, 0)
	}
	return 1
}

// vote finds the class with the most weight, to which plain is added for the class with the most answers. It returns the
// weight without plain. With at most 64 answers, comparing all pairs is faster than a table and needs no memory.
func (c *Combination) vote(weights *Vector, plain float64) (support float64) {
	counted := Set(0) // indices in Answers whose class has been weighed
	votes := 0
	if plain > 0 {
		var tied int
		votes, tied = c.plurality()
		plain /= float64(max(tied, 1))
	}
	most := -1.0
	for a := range c.Answers {
		if counted.Has(a) {
			continue
		}
		first, agreed, weight := c.Answers[a].Candidate, Set(0), 0.0
		for b := a; b < len(c.Answers); b++ {
			if other := &c.Answers[b]; other.Class == c.Answers[a].Class {
				counted = counted.With(b)
				agreed = agreed.With(other.Candidate)
				weight += other.weight(weights)
				first = min(first, other.Candidate)
			}
		}
		with := weight
		if agreed.Len() == votes {
			with += plain
		}
		if with > most || with == most && first < c.Winner {
			most, support, c.Winner, c.Agreed = with, weight, first, agreed
		}
	}
	return support
}

// average fills Out and returns the weight of the answers that agree with it. If there is only one usable prediction,
// Out is a copy of it.
func (c *Combination) average(weights *Vector) float64 {
	if len(c.Answers) == 0 {
		return 0
	}
	var weight Vector
	arrived, usable, sum := Set(0), Set(0), 0.0
	for t := c.Known; t != 0; t &= t - 1 {
		i := t.First()
		if finite(c.values(i)) {
			usable = usable.With(i)
			weight[i] = positive(weights[i])
		}
	}
	for a := range c.Answers {
		i := c.Answers[a].Candidate
		arrived = arrived.With(i)
		if usable.Has(i) {
			weight[i] = c.Answers[a].weight(weights)
		}
	}
	if arrived&usable == 0 || usable.Len() == 1 {
		// There is nothing to average: take the first usable answer, or the first answer if none is usable.
		c.Winner = (arrived & usable).First()
		if c.Winner == MaxCandidates {
			c.Winner = arrived.First()
			return 0
		}
		copy(c.Out, c.values(c.Winner))
		c.Agreed = Set(0).With(c.Winner)
		return weight[c.Winner]
	}
	for t := usable; t != 0; t &= t - 1 {
		sum += weight[t.First()]
	}
	if sum == 0 { // every model states confidence 0
		for t := usable; t != 0; t &= t - 1 {
			weight[t.First()] = 1
		}
		sum = float64(usable.Len())
	}
	clear(c.Out[:c.Width])
	for t := usable; t != 0; t &= t - 1 {
		i := t.First()
		part := weight[i] / sum
		for e, v := range c.values(i) {
			c.Out[e] += part * v
		}
	}
	support := 0.0
	for a := range c.Answers {
		i := c.Answers[a].Candidate
		if usable.Has(i) && near(c.values(i), c.Out, c.Tolerance) {
			c.Agreed = c.Agreed.With(i)
			support += c.Answers[a].weight(weights)
		}
	}
	return support
}

func (c *Combination) values(i int) []float64 { return c.Values[i*c.Width : (i+1)*c.Width] }

func finite(v []float64) bool {
	for _, x := range v {
		if !(math.Abs(x) <= math.MaxFloat64) {
			return false
		}
	}
	return true
}

// near reports whether a is within tolerance of b in each element.
func near(a, b []float64, tolerance float64) bool {
	for e := range a {
		if !(math.Abs(a[e]-b[e]) <= tolerance+agreeSlack*math.Abs(b[e])) {
			return false
		}
	}
	return true
}
