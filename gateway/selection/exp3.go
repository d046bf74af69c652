package selection

import "math"

// slotWeight holds a candidate's log-weight, in the policies with weights. Their rows have weightSlots slots.
const (
	slotWeight  = FirstOwnSlot
	weightSlots = FirstOwnSlot + 1
)

func init() {
	Register(Definition{
		Name: "exp3",
		Doc:  "asks one candidate, with a probability that grows with its record; learns from the loss of the candidate that was asked",
		Parameters: []Parameter{
			{"eta", Number, 0.06, 1e-6, 10, "learning rate: how far a loss moves a weight"},
			{"gamma", Number, 0.01, 0, 1, "fraction of the queries that is spread evenly over all candidates"},
			{"floor", Number, 0.002, 0, 1, "lower bound on the summed weight of all other candidates, relative to the best candidate's weight; 0: none"},
		},
		Make: func(v Values) (Policy, error) {
			return &exp3{named: "exp3", eta: v.Number("eta"), gamma: v.Number("gamma"),
				depth: depthOf(len(v.Candidates), v.Number("floor"))}, nil
		},
	})
}

// exp3 is the paper's single model selection policy (section 5.1; Auer, Cesa-Bianchi, Freund and Schapire, The
// nonstochastic multiarmed bandit problem, 2002): s ← s·exp(−η·L/p) for the candidate that was asked, where p is the
// probability with which it was. It adds the fraction γ of even exploration, as in Auer et al., and the bound on lags
// (weights.go).
type exp3 struct {
	SingleCandidate
	named
	eta, gamma, depth float64
}

func (*exp3) Learns() bool { return true }
func (*exp3) Slots() int   { return weightSlots }

func (p *exp3) Join(s State, i int) {
	joinCounts(s, i)
	joinWeights(s, slotWeight, i, p.depth)
}

func (p *exp3) InitContext(global, s State) {
	descendCounts(global, s)
	descendWeights(global, s, slotWeight, p.depth)
}

func (p *exp3) Select(q *Query, out *Selection) {
	if n := q.State.Candidates(); q.Limits == nil && q.Asked == 0 && n <= fewCandidates && q.Allowed&All(n) != 0 {
		p.selectFew(q, out)
		return
	}
	var prob Vector
	p.probabilities(q.State, q.Allowed, &prob)
	Draw(q, &prob, out)
}

// fewCandidates is how many candidates selectFew is for.
const fewCandidates = 8

// selectFew is Select for the usual query: few candidates and no limits. It does the same arithmetic in the same order, to the last bit,
// without the vectors for 64 candidates, which take longer to clear than the arithmetic, and without exp(0).
func (p *exp3) selectFew(q *Query, out *Selection) {
	var lag, prob [fewCandidates]float64
	s, allowed := q.State, q.Allowed&All(q.State.Candidates())
	best, least := bestOf(s, slotWeight), math.Inf(1)
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First() % fewCandidates
		lag[i] = p.depth
		if lw := s.V[i*s.Slots+slotWeight]; plausible(lw) {
			lag[i] = min(best-lw, p.depth)
		}
		least = min(least, lag[i])
	}
	sum, k := 0.0, float64(allowed.Len())
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First() % fewCandidates
		prob[i] = 1
		if least <= maxPlausible && lag[i] != least {
			prob[i] = math.Exp(least - lag[i])
		}
		sum += prob[i]
	}
	total := 0.0
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First() % fewCandidates
		prob[i] = positive((1-p.gamma)*(prob[i]/sum) + p.gamma/k)
		total += prob[i]
	}
	r := random(q.Seed)
	u, last := r.unit()*total, 0
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First() % fewCandidates
		if prob[i] == 0 {
			continue
		}
		last = i
		if u -= prob[i]; u < 0 {
			break
		}
	}
	out.Ask, out.P[last] = Set(0).With(last), min(prob[last]/total, 1)
}

// probabilities computes p = (1−γ)·s/Σs + γ/K over the K allowed candidates.
func (p *exp3) probabilities(s State, allowed Set, dst *Vector) {
	var lag Vector
	lags(s, slotWeight, p.depth, &lag)
	shares(allowed, &lag, dst)
	k := float64(allowed.Len())
	for t := allowed; t != 0; t &= t - 1 {
		i := t.First()
		dst[i] = (1-p.gamma)*dst[i] + p.gamma/k
	}
}

func (p *exp3) Shares(s State, allowed Set, dst []float64) {
	var prob Vector
	p.probabilities(s, allowed, &prob)
	copy(dst, prob[:])
}

// Weights writes s/Σs: the probabilities without even exploration.
func (p *exp3) Weights(s State, dst []float64) {
	var lag, w Vector
	lags(s, slotWeight, p.depth, &lag)
	shares(All(s.Candidates()), &lag, &w)
	copy(dst, w[:])
}

func (p *exp3) Observe(f *Feedback) {
	CountLosses(f, ownMemory, false)
	if f.Selected.Len() != 1 {
		return // exp3 asks one candidate; with several, p has another meaning
	}
	i := f.Selected.First()
	loss, ok := f.Loss(i)
	if !ok || i >= len(f.P) || !(f.P[i] > 0) {
		return
	}
	f.row(i)[slotWeight] = lower(f.State.Row(i)[slotWeight], bestOf(f.State, slotWeight), p.eta*loss/min(f.P[i], 1), p.depth)
}
