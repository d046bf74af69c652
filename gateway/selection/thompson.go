package selection

import "math"

func init() {
	Register(Definition{
		Name:       "thompson",
		Doc:        "asks each candidate with the probability that it is the best",
		Parameters: []Parameter{memoryParameter(1000)},
		Make: func(v Values) (Policy, error) {
			return &thompson{Counting{Memory: memoryOf(v)}, "thompson"}, nil
		},
	})
}

// thompson draws for each candidate a rate of right answers from what is believed of it and asks the one with the highest
// draw (Thompson, 1933; Agrawal and Goyal, Analysis of Thompson sampling for the multi-armed bandit problem, COLT 2012). The
// belief is Beta(1 + rights, 1 + losses); a loss between 0 and 1 counts as a part of either, where Agrawal and Goyal toss a coin:
// the mean is the same and the spread a little too wide. With a memory it is discounted (Raj and Kalyani, Taming
// non-stationary bandits: a Bayesian approach, 2017): a candidate that is not asked becomes unknown again.
type thompson struct {
	Counting
	named
}

// Select draws. P is the chance that the limits gave the candidate once the draws were made: what the chance of the draws was nobody
// can say without integrating over all of them, and nothing that is learned here needs it.
func (p *thompson) Select(q *Query, out *Selection) {
	var rank Vector
	r := random(mix(q.Seed))
	for t := q.Allowed; t != 0; t &= t - 1 {
		i := t.First()
		count, loss := rowCounts(q.State.Row(i))
		rank[i] = r.beta(1+count-loss, 1+loss)
	}
	Best(q, &rank, out)
}

// shareCells is in how many cells the interval is cut in which the highest draw lies. With 24 of them the shares are within some
// hundredths of what is drawn, most of which is the normal distributions' fault.
const shareCells = 24

// Shares are how likely each candidate is to have the highest draw: the integral of its density times the others' distribution
// functions, over cells, with normal distributions in place of the beta ones. It takes about half a microsecond for a candidate,
// which is nothing once in an epoch and too much for each query.
func (p *thompson) Shares(s State, allowed Set, dst []float64) {
	clear(dst)
	if allowed == 0 {
		return
	}
	var mean, scale, below Vector // below: the distribution function at a cell's lower end
	low, high := 0.0, 0.0
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		count, loss := rowCounts(s.Row(i))
		n := count + 2
		mean[i] = (1 + count - loss) / n
		deviation := math.Sqrt(mean[i] * (1 - mean[i]) / (n + 1))
		scale[i] = 1 / (math.Sqrt2 * deviation)
		low, high = max(low, mean[i]-4*deviation), max(high, mean[i]+4*deviation)
	}
	high = min(high, 1) // no draw is above
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		below[i] = math.Erfc((mean[i]-low)*scale[i]) / 2
	}
	sum := 0.0
	for cell := 1; cell <= shareCells; cell++ {
		x := low + (high-low)*float64(cell)/shareCells
		var middle, mass Vector
		product := 1.0
		for t := allowed; t != 0; t &= t - 1 {
			i := t.First()
			upTo := math.Erfc((mean[i]-x)*scale[i]) / 2
			middle[i], mass[i] = (below[i]+upTo)/2, upTo-below[i]
			below[i] = upTo
			product *= middle[i]
		}
		for t := allowed; t != 0 && product > 0; t &= t - 1 {
			i := t.First()
			part := mass[i] * product / middle[i]
			dst[i] += part
			sum += part
		}
	}
	if sum == 0 { // so many candidates that each product underflows
		dst[highest(allowed, &mean)], sum = 1, 1
	}
	for t := allowed; t != 0; t &= t - 1 {
		dst[t.First()] /= sum
	}
}
