package selection

import "math"

// Log-weights are kept as sums of what observations have added, never normalised in place: so the deltas of several gateways
// add up to what one gateway would have learned. Only their differences mean anything, so they are read as lags: how far a
// row lies behind the best one.
//
// A lag has a bound, the depth. Without it a weight that fell for a thousand queries needs about a thousand to rise again, and
// figure 8's model, once recovered, would not be found. With it, a row's weight is never less than exp(-depth) of the best
// one's, which is the projection onto a clipped simplex by which the regret against a *sequence* of best experts is
// bounded (Herbster and Warmuth, Tracking the best expert, 1998, and Tracking the best linear predictor, 2001; Bousquet and
// Warmuth, Tracking a small set of experts by mixing past posteriors, 2002).

// depthOf is the depth at which k-1 rows that lie at it weigh about as much as floor, where the best one weighs 1.
func depthOf(k int, floor float64) float64 { return max(math.Log(max(float64(k), 2)/floor), 0) }

// Weigh writes what a policy thinks of each candidate, as parts of 1: the weights of a policy that has some, else the
// parts of the queries that it would ask them.
func Weigh(p Policy, s State, dst []float64) {
	if w, ok := p.(interface{ Weights(State, []float64) }); ok {
		w.Weights(s, dst)
		return
	}
	p.Shares(s, All(s.Candidates()), dst)
}

// lags writes, for each row, how far its log-weight in slot lies behind the best, from 0 to depth. A number that cannot be is
// read as the deepest lag.
func lags(s State, slot int, depth float64, dst *Vector) {
	best := bestOf(s, slot)
	for i := range s.Candidates() {
		dst[i] = depth
		if lw := s.V[i*s.Slots+slot]; plausible(lw) {
			dst[i] = min(best-lw, depth)
		}
	}
}

// bestOf is the highest log-weight, 0 when there is none.
func bestOf(s State, slot int) float64 {
	best := math.Inf(-1)
	for i := slot; i < len(s.V); i += s.Slots {
		if plausible(s.V[i]) {
			best = max(best, s.V[i])
		}
	}
	if best < -maxPlausible {
		return 0
	}
	return best
}

// shares writes weights that sum to 1 over set, of lags.
func shares(set Set, lag, dst *Vector) {
	sum := 0.0
	for t := set; t != 0; t &= t - 1 {
		i := t.First()
		dst[i] = math.Exp(-lag[i])
		sum += dst[i]
	}
	for t := set; t != 0; t &= t - 1 {
		dst[t.First()] /= sum
	}
}

// lower returns what to add to a row with log-weight lw so that it falls, but no deeper than depth behind best. It is never above
// 0, also for a row that lies deeper, as happens where several gateways have lowered it at once: each of them sees all that is too
// much, and if each lifted the row by that, it would be thrown over the best one (eight gateways were seen to swing
// ever further). Such a row reads as one at the bound, and stays where it is until the best has come down to it.
func lower(lw, best, fall, depth float64) float64 {
	if !plausible(lw) {
		return 0 // adding cannot heal NaN
	}
	return -max(min(fall, depth-(best-lw)), 0)
}

// joinWeights lets row i start with the mean of the others' weights: neither trusted as the best nor kept from being tried.
func joinWeights(s State, slot, i int, depth float64) {
	var lag Vector
	s.Row(i)[slot] = math.NaN() // not one of the others
	lags(s, slot, depth, &lag)
	sum, n := 0.0, 0
	for j := range s.Candidates() {
		if j != i {
			sum, n = sum+math.Exp(-lag[j]), n+1
		}
	}
	s.Row(i)[slot] = 0
	if n > 0 {
		s.Row(i)[slot] = bestOf(s, slot) + math.Log(sum/float64(n))
	}
}

// descendWeights gives a context the square roots of the global weights: half of each lag. That is half-way, geometrically,
// between what holds for everybody and knowing nothing, so that a context needs half of the evidence that it would need
// against the whole; and since a lag is never deeper than depth, that is a bounded number of observations. There is no
// parameter because both ends are given: at 0 of each lag a context would begin as a beginner, at all of it, it would
// be as sure of what it has not seen as those who have.
func descendWeights(global, s State, slot int, depth float64) {
	var lag Vector
	lags(global, slot, depth, &lag)
	for i := range s.Candidates() {
		s.Row(i)[slot] = 0 - lag[i]/2
	}
}
