package selection

import "math"

// maxPlausible bounds the magnitude of a number in a state: 1e15 observations at a microsecond each are thirty years.
// Anything larger is damage, like NaN and the infinities, and is read as if nothing were known.
const maxPlausible = 1e15

// ownMemory is the length, in a candidate's own losses, of the memory behind its recent loss, for policies whose
// weights forget in another way. It is long enough to tell 0.10 from 0.15 (the standard error of 1,000 losses of 0.1 is
// 0.01) and short enough to show recent behaviour.
const ownMemory = 1000

// priorCount is the most observations that a new context or candidate takes over from others. Ten are worth having (the
// standard error of ten losses is about 0.1) and are soon outweighed. A context that resembles the others loses little,
// because it has their means from its first query on. A context that does not needs about ten observations to show it.
const priorCount = 10

// plausible reports whether x can be a number of a state.
func plausible(x float64) bool { return math.Abs(x) <= maxPlausible } // false for NaN

// rowCounts returns a row's (discounted) number of losses and their sum, clamped to 0 ≤ loss ≤ count.
func rowCounts(row []float64) (count, loss float64) {
	count, loss = row[SlotCount], row[SlotLoss]
	if !plausible(count) || !plausible(loss) || count <= 0 {
		return 0, 0
	}
	return count, min(max(loss, 0), count)
}

// MeanLoss returns the mean of candidate i's recent losses, or NaN if it has none.
func MeanLoss(s State, i int) float64 {
	count, loss := rowCounts(s.Row(i))
	return loss / count
}

// pooled returns the mean loss over the candidates in set, or 0.5 if nothing is known about any of them.
func pooled(s State, set Set) float64 {
	count, loss := 1e-9, 0.5e-9
	for t := set; t != 0; t &= t - 1 {
		c, l := rowCounts(s.Row(t.First()))
		count, loss = count+c, loss+l
	}
	return loss / count
}

// Loss returns candidate i's loss, clamped to the interval from 0 to 1, and whether it is known.
func (f *Feedback) Loss(i int) (loss float64, ok bool) {
	if i >= len(f.Losses) || f.Losses[i] != f.Losses[i] {
		return 0, false
	}
	return min(max(f.Losses[i], 0), 1), true
}

// vote returns the plain vote's loss, clamped to the interval from 0 to 1, and whether it is known.
func (f *Feedback) vote() (loss float64, ok bool) {
	return min(max(f.Vote, 0), 1), f.VoteKnown && f.Vote == f.Vote
}

// row returns candidate i's part of the delta.
func (f *Feedback) row(i int) []float64 {
	return f.Delta[i*f.State.Slots : (i+1)*f.State.Slots]
}

// CountLosses adds the known losses to slots 0 and 1 of their candidates' rows. Each of these rows first forgets
// 1/memory of itself (0: nothing), so its count approaches memory and its mean covers about that many recent losses.
// With allRows, every row forgets whenever there is a loss. A candidate that has not been tried for long then becomes
// unknown again, as in discounted UCB (Garivier and Moulines, On upper-confidence bound policies for switching bandit
// problems, ALT 2011, equation 5, with γ = 1−1/memory).
func CountLosses(f *Feedback, memory float64, allRows bool) {
	anyLoss := false
	for i := range f.State.Candidates() {
		loss, ok := f.Loss(i)
		if !ok {
			continue
		}
		anyLoss = true
		d := f.row(i)
		d[SlotCount]++
		d[SlotLoss] += loss
		if !allRows {
			forget(f.State.Row(i), d, memory)
		}
	}
	if !anyLoss || !allRows {
		return
	}
	for i := range f.State.Candidates() {
		forget(f.State.Row(i), f.row(i), memory)
	}
}

// forget removes 1/memory of a row's count and loss. Several gateways that forget at the same time can make them
// slightly negative; the same step then brings them back.
func forget(row, delta []float64, memory float64) {
	if memory <= 0 {
		return
	}
	for slot := SlotCount; slot <= SlotLoss; slot++ {
		if plausible(row[slot]) {
			delta[slot] -= row[slot] / memory
		}
	}
}

// joinCounts starts candidate i at the mean loss of the others, with the certainty of one observation.
func joinCounts(s State, i int) {
	row := s.Row(i)
	row[SlotCount], row[SlotLoss] = 0, 0
	if mean := pooled(s, All(s.Candidates()).Without(i)); s.Candidates() > 1 {
		row[SlotCount], row[SlotLoss] = 1, mean
	}
}

// descendCounts gives a context the global mean losses, with the certainty of at most priorCount observations each.
func descendCounts(global, s State) {
	for i := range s.Candidates() {
		count, loss := rowCounts(global.Row(i))
		part := 1.0
		if count > priorCount {
			part = priorCount / count
		}
		row := s.Row(i)
		row[SlotCount], row[SlotLoss] = count*part, loss*part
	}
}

const minGain = 0.01

// accuracy writes how often each candidate is right, as far as is known: 1 minus its mean loss, where the mean over all
// candidates counts as one more observation. For policies that ask one candidate, this is what an answer is worth to
// the plan. It is never 0: a candidate that is never planned for cannot show that it has improved.
func accuracy(s State, dst []float64) {
	mean := pooled(s, All(s.Candidates()))
	for i := range dst {
		count, loss := rowCounts(s.Row(i))
		dst[i] = max(1-(loss+mean)/(count+1), minGain)
	}
}
