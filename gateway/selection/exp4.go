package selection

func init() {
	Register(Definition{
		Name: "exp4",
		Doc:  "asks all candidates and combines their answers by weight; learns from the loss of each",
		Parameters: []Parameter{
			{"eta", Number, 0.1, 1e-6, 10, "learning rate: how far a loss moves a weight"},
			{"floor", Number, 1.0, 1e-6, MaxCandidates, "lower bound on the summed weight of all other candidates, relative to the best candidate's weight; above 1 they can outvote it"},
			{"first", Whole, 0.0, 0, MaxCandidates, "how many candidates are asked first, heaviest first; the others are asked only if these disagree; 0: all at once"},
			{"enough", Number, 0.9, 0, 1, "confidence of the first candidates' answer at which the others are not asked; raised to min_confidence if lower"},
			{"explore", Number, 0.02, 0, 1, "fraction of the queries that ask all candidates at once despite first, so that a candidate that has improved is noticed"},
		},
		Make: func(v Values) (Policy, error) {
			return &exp4{named: "exp4", eta: v.Number("eta"), depth: depthOf(len(v.Candidates), v.Number("floor")),
				first: int(v.Number("first")), enough: v.Number("enough"), explore: v.Number("explore")}, nil
		},
	})
}

// exp4 is the paper's ensemble policy (section 5.2): it asks every candidate, the answer is the weighted vote or
// average, and each weight falls by that candidate's own loss, s ← s·exp(−η·L). It adds the bound on lags (weights.go),
// which preserves the ensemble: without it the best candidate would in the end outweigh all others together and decide
// alone.
type exp4 struct {
	named
	eta, depth      float64
	first           int
	enough, explore float64
}

func (*exp4) Mode() Mode   { return Several }
func (*exp4) Learns() bool { return true }
func (*exp4) Slots() int   { return weightSlots }
func (*exp4) Init(s State) { clear(s.V) }

func (p *exp4) Join(s State, i int) {
	joinCounts(s, i)
	joinWeights(s, slotWeight, i, p.depth)
}

func (p *exp4) InitContext(global, s State) {
	descendCounts(global, s)
	descendWeights(global, s, slotWeight, p.depth)
}

// Select asks all allowed candidates. If `first` is set it asks the heaviest ones, and asks the rest when their answers
// have arrived and the confidence is too low: the paper's "select again".
func (p *exp4) Select(q *Query, out *Selection) {
	out.Ask = 0
	switch {
	case q.Asked != 0:
		if p.first > 0 && q.Confidence < max(p.enough, q.MinConfidence) {
			out.Ask = q.Allowed &^ q.Asked
		}
	case p.first == 0 || p.first >= q.Allowed.Len():
		out.Ask = q.Allowed
	default:
		out.Ask = p.heaviest(q.State, q.Allowed)
		if r := random(q.Seed); r.unit() < p.explore {
			out.Ask = q.Allowed
		}
	}
	for t := out.Ask; t != 0; t &= t - 1 {
		out.P[t.First()] = 1
	}
}

// heaviest returns the candidates that are asked first.
func (p *exp4) heaviest(s State, allowed Set) Set {
	var lag Vector
	lags(s, slotWeight, p.depth, &lag)
	for i := range lag {
		lag[i] = -lag[i]
	}
	chosen := Set(0)
	for range min(p.first, allowed.Len()) {
		chosen = chosen.With(highest(allowed&^chosen, &lag))
	}
	return chosen
}

// Shares are 1 for the candidates that are always asked. The others are asked when the first ones disagree, which
// happens at most as often as one of the first is wrong. The sum of the first ones' losses bounds that.
func (p *exp4) Shares(s State, allowed Set, dst []float64) {
	clear(dst)
	first, rest := allowed, 0.0
	if p.first > 0 && p.first < allowed.Len() {
		first = p.heaviest(s, allowed)
		rest = p.explore
		mean := pooled(s, allowed)
		for t := first; t != 0; t &= t - 1 {
			count, loss := rowCounts(s.Row(t.First()))
			rest += (loss + mean) / (count + 1)
		}
	}
	for t := allowed; t != 0; t &= t - 1 {
		dst[t.First()] = min(rest, 1)
	}
	for t := first; t != 0; t &= t - 1 {
		dst[t.First()] = 1
	}
}

// maxGain is the gain of the best member of an ensemble. It is below 1 so that the others still add something in the
// plan's 1 − Π(1 − gain).
const maxGain = 0.9

// Gains are proportional to the weights.
func (p *exp4) Gains(s State, dst []float64) {
	var w Vector
	p.weights(s, &w)
	most := w[highest(All(s.Candidates()), &w)]
	for i := range dst {
		dst[i] = maxGain * w[i] / most
	}
}

func (p *exp4) weights(s State, dst *Vector) {
	var lag Vector
	lags(s, slotWeight, p.depth, &lag)
	shares(All(s.Candidates()), &lag, dst)
}

// Weights writes the weight of each candidate's vote. They sum to 1.
func (p *exp4) Weights(s State, dst []float64) {
	var w Vector
	p.weights(s, &w)
	copy(dst, w[:])
}

func (p *exp4) Combine(c *Combination) {
	var w Vector
	p.weights(c.State, &w)
	Vote(c, &w)
}

// Observe lowers each weight by its candidate's loss. A candidate that was not asked, or has not answered, is charged
// its mean loss, as the paper replaces a missing prediction by the mean. Otherwise a candidate that is asked less often
// would gain on the others.
func (p *exp4) Observe(f *Feedback) {
	CountLosses(f, ownMemory, false)
	n := f.State.Candidates()
	var w, charge Vector
	p.weights(f.State, &w)
	sum, knownWeight := 0.0, 0.0
	for i := range n {
		if loss, ok := f.Loss(i); ok {
			sum, knownWeight = sum+w[i]*loss, knownWeight+w[i]
		}
	}
	if knownWeight == 0 {
		return
	}
	best := bestOf(f.State, slotWeight)
	next := best - maxPlausible
	for i := range n {
		loss, ok := f.Loss(i)
		if !ok {
			loss = MeanLoss(f.State, i)
		}
		if loss != loss {
			loss = sum / knownWeight // nothing is known about it: charge the weighted mean of the known losses
		}
		charge[i] = p.eta * loss
		if lw := f.State.Row(i)[slotWeight]; plausible(lw) {
			next = max(next, lw-charge[i])
		}
	}
	// The depth bound is measured from the best log-weight after this update.
	for i := range n {
		f.row(i)[slotWeight] = lower(f.State.Row(i)[slotWeight], next, charge[i], p.depth)
	}
}
