package selection

import (
	"fmt"
	"math"

	"github.com/xebec-serving/xebec/api"
)

func init() {
	Register(Definition{
		Name: "exp4",
		Doc:  "asks all candidates and combines their answers by weight; learns from the loss of each",
		Parameters: []Parameter{
			{"eta", Number, 0.1, 1e-6, 10, "learning rate: how far a loss moves a weight"},
			{"boost", Number, 2.0, 0, 10, "learning rate at the first observation; it falls with the square root of their number, down to eta, and not below boost/32, because old observations fade; 0: always eta"},
			{"floor", Number, 1.0, 0, MaxCandidates, "lower bound on the summed weight of all other candidates, relative to the best candidate's weight; above 1 they can outvote it; 0: none"},
			{"vote", Number, 10.0, 0, 1e6, "the plain vote, for which all candidates count the same, takes part as one more expert; its weight stays within this factor of the best candidate's; 0: it takes no part"},
			{"first", Whole, 0.0, 0, MaxCandidates, "how many candidates are asked first, heaviest first; the others are asked only if these disagree; 0: all at once"},
			{"enough", Number, 0.9, 0, 1, "confidence of the first candidates' answer at which the others are not asked; raised to min_confidence if lower"},
			{"explore", Number, 0.02, 0, 1, "fraction of the queries that ask all candidates at once despite first, so that a candidate that has improved is noticed"},
		},
		Make: func(v Values) (Policy, error) {
			if vote := v.Number("vote"); vote > 0 && vote < 1 {
				return nil, api.FieldErrors{{Path: "policy.vote", Message: fmt.Sprintf("%v: expected 0, or a factor of at least 1", vote)}}
			}
			return &exp4{named: "exp4", eta: v.Number("eta"), boost: v.Number("boost"), depth: depthOf(len(v.Candidates), v.Number("floor")), ballot: ballotOf(v.Number("vote")),
				first: int(v.Number("first")), enough: v.Number("enough"), explore: v.Number("explore")}, nil
		},
	})
}

// exp4 is the paper's ensemble policy (section 5.2): it asks every candidate, the answer is the weighted vote or
// average, and each weight falls by that candidate's own loss, s ← s·exp(−η·L). It adds two things. With the bound on lags
// (weights.go) a candidate that has failed can return. And the plain vote is one more expert (vote.go): weights that fall
// exponentially soon leave the decision to the best candidate, which is worse than a vote wherever the candidates'
// errors differ. A new function or context learns fast (boost). With
// `floor: 0, vote: 0, boost: 0` it is the paper's.
type exp4 struct {
	named
	eta, boost      float64
	depth           float64
	ballot          ballot
	first           int
	enough, explore float64
}

func (*exp4) Mode() Mode   { return Several }
func (*exp4) Learns() bool { return true }
func (*exp4) Slots() int   { return voteSlots }
func (*exp4) Init(s State) { clear(s.V) }

func (p *exp4) Join(s State, i int) {
	joinCounts(s, i)
	row := s.Row(i)
	row[slotWeight] = math.NaN() // the vote's weight is that beside the others
	row[slotVote] = 0
	best, lead, older := p.ballot.lead(s)
	joinWeights(s, slotWeight, i, p.depth)
	if !older {
		row[slotVote] = best + lead - row[slotWeight]
	}
}

func (p *exp4) InitContext(global, s State) {
	descendCounts(global, s)
	descendWeights(global, s, slotWeight, p.depth)
	_, lead, older := p.ballot.lead(global)
	for i := range s.Candidates() {
		row := s.Row(i)
		if row[slotVote] = 0; !older {
			row[slotVote] = lead/2 - row[slotWeight] // the best row's log-weight is 0
		}
	}
}

// Select asks all allowed candidates. If `first` is set it asks the heaviest ones, and asks the rest when their answers
// have arrived and the confidence is too low, or is a single answer's that no model has stated: the paper's "select
// again".
func (p *exp4) Select(q *Query, out *Selection) {
	out.Ask = 0
	switch {
	case q.Asked != 0:
		unknown := q.Asked.Len() == 1 && q.Stated == 0
		if p.first > 0 && (unknown || q.Confidence < max(p.enough, q.MinConfidence)) {
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

// weights writes what the candidates' answers count, the vote's weight in equal parts among them.
func (p *exp4) weights(s State, dst *Vector) {
	part := p.weigh(s, dst) / float64(s.Candidates())
	for i := range s.Candidates() {
		dst[i] += part
	}
}

// weigh writes the candidates' own weights and returns the plain vote's. Together they sum to 1.
func (p *exp4) weigh(s State, dst *Vector) (plain float64) {
	best, lead, older := p.ballot.lead(s)
	sum := 0.0
	for i := range s.Candidates() {
		lag := p.depth
		if lw := s.V[i*s.Slots+slotWeight]; plausible(lw) {
			lag = min(best-lw, lag)
		}
		dst[i] = math.Exp(-lag)
		sum += dst[i]
	}
	if sum == 0 { // nothing is known, and there is no bound
		*dst, sum = even, float64(s.Candidates())
	}
	if p.ballot.on && !older {
		plain = math.Exp(lead)
		sum += plain
	}
	for i := range s.Candidates() {
		dst[i] /= sum
	}
	return plain / sum
}

// Weights writes the weight of each candidate's vote. They sum to 1.
func (p *exp4) Weights(s State, dst []float64) {
	var w Vector
	p.weights(s, &w)
	copy(dst, w[:])
}

func (p *exp4) Combine(c *Combination) {
	var w Vector
	plain := p.weigh(c.State, &w)
	voteBeside(c, &w, plain)
}

// rate returns the learning rate: boost/√(1+n) after n observations, but at least eta. A new function or context, which
// knows little, learns fast; later a change is noticed as fast as eta allows. n is the largest of the candidates' counts.
func (p *exp4) rate(s State) float64 {
	if p.boost <= p.eta {
		return p.eta
	}
	n := 0.0
	for i := range s.Candidates() {
		count, _ := rowCounts(s.Row(i))
		n = max(n, count)
	}
	return max(p.eta, p.boost/math.Sqrt(1+n))
}

// Observe lowers each weight by its candidate's loss, and the vote's by the vote's. A candidate that was not asked, or has
// not answered, is charged its mean loss, as the paper replaces a missing prediction by the mean. Otherwise a candidate
// that is asked less often would gain on the others. A vote whose loss is not known is charged what the candidates are on
// average.
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
	eta := p.rate(f.State)
	best, lead, older := p.ballot.lead(f.State)
	next, mean := best-maxPlausible, 0.0
	for i := range n {
		loss, ok := f.Loss(i)
		if !ok {
			loss = MeanLoss(f.State, i)
		}
		if loss != loss {
			loss = sum / knownWeight // nothing is known about it: charge the weighted mean of the known losses
		}
		charge[i] = eta * loss
		mean += w[i] * charge[i]
		if lw := f.State.Row(i)[slotWeight]; plausible(lw) {
			next = max(next, lw-charge[i])
		}
	}
	vote := 0.0
	if p.ballot.on {
		if loss, ok := f.vote(); ok {
			mean = eta * loss
		}
		vote = p.ballot.fall(best+lead, next, mean)
	}
	// The depth bound is measured from the best log-weight after this update.
	for i := range n {
		d := lower(f.State.Row(i)[slotWeight], next, charge[i], p.depth)
		f.row(i)[slotWeight] = d
		if p.ballot.on {
			f.row(i)[slotVote] = vote - d
			if lw := f.State.Row(i)[slotWeight]; older && plausible(lw) {
				f.row(i)[slotVote] += best + lead - lw
			}
		}
	}
}
