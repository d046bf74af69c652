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

// thompson samples a rate of right answers for each candidate from its posterior, and asks the candidate with the
// highest sample (Thompson, 1933; Agrawal and Goyal, Analysis of Thompson sampling for the multi-armed bandit problem,
// COLT 2012). The posterior is Beta(1 + rights, 1 + losses). A loss between 0 and 1 is split between the two, where
// Agrawal and Goyal toss a coin: the mean is the same and the spread a little too wide. With a memory the posterior is
// discounted (Raj and Kalyani, Taming non-stationary bandits: a Bayesian approach, 2017): a candidate that is not asked
// becomes unknown again.
type thompson struct {
	Counting
	named
}

// Select samples. P is the probability that the limits gave the candidate after sampling. The probability of the
// samples themselves would need an integral over all of them, and this policy's learning does not use it.
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

// shareCells is the number of cells into which Shares divides the interval that holds the highest sample. With 24 cells
// the shares are within a few hundredths of the sampled frequencies; most of that error is due to the normal
// approximation.
const shareCells = 24

// Shares writes the probability that each candidate has the highest sample: the integral of its density times the
// others' distribution functions, over cells, with normal distributions in place of the beta ones. It takes about half
// a microsecond for each candidate, which is negligible once an epoch and too much for each query.
func (p *thompson) Shares(s State, allowed Set, dst []float64) {
	clear(dst)
	if allowed == 0 {
		return
	}
	var mean, scale, below Vector // below is the distribution function at a cell's lower end
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
	high = min(high, 1) // samples are at most 1
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
	if sum == 0 { // with many candidates every product can underflow
		dst[highest(allowed, &mean)], sum = 1, 1
	}
	for t := allowed; t != 0; t &= t - 1 {
		dst[t.First()] /= sum
	}
}
