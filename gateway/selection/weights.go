package selection

import "math"

// Log-weights are sums of what observations have added. They are never normalised in place, so the deltas of several
// gateways add up to what one gateway would have learned. Only their differences matter, so they are read as lags: a
// row's distance behind the best row.
//
// A lag is bounded by the depth. Without the bound, a weight that fell for a thousand queries would need about a
// thousand to rise again, and the recovered model of figure 8 would not be found. With it, a weight is never less than
// exp(-depth) of the best one. This is the projection onto a clipped simplex that bounds the regret against a
// *sequence* of best experts (Herbster and Warmuth, Tracking the best expert, 1998, and Tracking the best linear
// predictor, 2001; Bousquet and Warmuth, Tracking a small set of experts by mixing past posteriors, 2002).

// depthOf returns the depth at which k-1 rows together weigh about floor, relative to the best row's weight of 1. A floor
// of 0 is no bound: the depth is infinite.
func depthOf(k int, floor float64) float64 { return max(math.Log(max(float64(k), 2)/floor), 0) }

// CandidateWeights writes a policy's opinion of each candidate as fractions that sum to 1: its weights if it has any, otherwise
// the shares of the queries that it would ask.
func CandidateWeights(p Policy, s State, dst []float64) {
	if w, ok := p.(interface{ Weights(State, []float64) }); ok {
		w.Weights(s, dst)
		return
	}
	p.Shares(s, All(s.Candidates()), dst)
}

// lags writes, for each row, how far its log-weight in slot is behind the best, from 0 to depth. An implausible number
// is read as depth.
func lags(s State, slot int, depth float64, dst *Vector) {
	best := bestOf(s, slot)
	for i := range s.Candidates() {
		dst[i] = depth
		if lw := s.V[i*s.Slots+slot]; plausible(lw) {
			dst[i] = min(best-lw, depth)
		}
	}
}

// bestOf returns the highest log-weight, or 0 if there is none.
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

// shares turns lags into weights that sum to 1 over set. Without a bound on lags, those of a set may all be too long for a
// float64: they are measured from the shortest.
func shares(set Set, lag, dst *Vector) {
	least := math.Inf(1)
	for t := set; t != 0; t &= t - 1 {
		least = min(least, lag[t.First()])
	}
	if least > maxPlausible {
		lag, least = &even, 1 // nothing is known about any of them
	}
	sum := 0.0
	for t := set; t != 0; t &= t - 1 {
		i := t.First()
		dst[i] = math.Exp(least - lag[i])
		sum += dst[i]
	}
	for t := set; t != 0; t &= t - 1 {
		dst[t.First()] /= sum
	}
}

// lower returns the change to a row with log-weight lw that lowers it by fall, but not more than depth below best. The
// change is never above 0, even for a row that is already deeper, as happens when several gateways lower it at once. If
// each of them lifted the row by the whole excess, the row would rise above the best one; eight gateways were seen to
// oscillate with growing amplitude. Such a row is read as if it were at the bound, and stays until the best row has
// come down to it.
func lower(lw, best, fall, depth float64) float64 {
	if !plausible(lw) {
		return 0 // adding cannot repair a NaN
	}
	return -max(min(fall, depth-(best-lw), maxPlausible), 0)
}

// joinWeights starts row i at the mean of the others' weights: it is not trusted like the best, and it is tried.
func joinWeights(s State, slot, i int, depth float64) {
	var lag Vector
	s.Row(i)[slot] = math.NaN() // exclude the row from the mean
	lags(s, slot, depth, &lag)
	sum, n := 0.0, 0
	for j := range s.Candidates() {
		if j != i {
			sum, n = sum+math.Exp(-lag[j]), n+1
		}
	}
	if n == 0 {
		s.Row(i)[slot] = 0
		return
	}
	mean := bestOf(s, slot) + math.Log(sum/float64(n)) // the row itself, which is NaN, is not among the best
	s.Row(i)[slot] = max(mean, -maxPlausible)
}

// descendWeights gives a context the square roots of the global weights: half of each lag. That is the geometric middle
// between the global weights and knowing nothing, so a context needs half of the evidence against them. As a lag is at
// most depth, that is a bounded number of observations. There is no parameter for the fraction: with 0 a context would
// know nothing, with 1 it would be as certain about its own queries as the function is about all.
func descendWeights(global, s State, slot int, depth float64) {
	var lag Vector
	lags(global, slot, depth, &lag)
	for i := range s.Candidates() {
		s.Row(i)[slot] = 0 - min(lag[i], maxPlausible)/2 // a lag is infinite where there is no bound
	}
}
