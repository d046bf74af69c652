package selection

import "math"

// agreeSlack is the relative difference that rounding makes between equal numbers and their average.
const agreeSlack = 1e-9

// Vote combines answers by weights, which are those of the candidates in c.Selected and need not sum to anything. It is the
// Combine of all shipped policies.
//
// Labels: the class whose supporters weigh most is the answer, and Winner the one of them with the lowest index; between
// classes of the same weight, the one with the lowest index wins. Numbers: the weighted average of all that are Known, where a
// candidate that has not answered stands with its running average (the paper, section 5.2.2). A candidate's word
// weighs its weight times its own confidence, where it states one.
//
// Confidence is the weight of those whose own prediction agrees with the answer, over the weights of all that were asked: who
// is late agrees with nothing. The paper counts models instead; with equal weights that is the same. One answer of one
// candidate has that candidate's own confidence, or 1.
func Vote(c *Combining, weights *Vector) {
	c.Winner, c.Agreed, c.Confidence = -1, 0, 0
	total := 0.0
	for t := c.Selected; t != 0; t &= t - 1 {
		total += positive(weights[t.First()])
	}
	if total == 0 { // no policy of ours: all are floored
		weights, total = &even, float64(c.Selected.Len())
	}
	var support float64
	if c.Width > 0 {
		support = c.average(weights)
	} else {
		support = c.vote(weights)
	}
	if total > 0 {
		c.Confidence = min(support/total, 1)
	}
}

// word is what an answer weighs.
func (a *Answer) weight(weights *Vector) float64 {
	w := positive(weights[a.Candidate])
	if a.Confidence >= 0 && a.Confidence < 1 { // false for NaN
		w *= a.Confidence
	} else if a.Confidence < 0 {
		w = 0
	}
	return w
}

// vote finds the heaviest class and returns its weight. With 64 answers at most, comparing each with each is faster than a
// table, and needs no memory.
func (c *Combining) vote(weights *Vector) float64 {
	counted := Set(0) // places in Answers, whose class has been weighed
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
		if weight > most || weight == most && first < c.Winner {
			most, c.Winner, c.Agreed = weight, first, agreed
		}
	}
	return max(most, 0)
}

// average fills Out and returns the weight of those who agree with it. A single answer, with nothing to be averaged with, is
// the answer as it is.
func (c *Combining) average(weights *Vector) float64 {
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
		// Nothing to average: the first one as it is, whatever it is.
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
	if sum == 0 { // all say that they know nothing
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

func (c *Combining) values(i int) []float64 { return c.Values[i*c.Width : (i+1)*c.Width] }

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
