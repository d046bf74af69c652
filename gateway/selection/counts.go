package selection

import "math"

// absurd is what no number of a state can have come to: 1e15 observations at a microsecond each are thirty years. What a store
// returns beyond that is damage, as NaN and the infinities are, and is read as if nothing were known.
const maxPlausible = 1e15

// ownMemory is over how many of its own losses a candidate's recent loss goes back, for policies whose weights forget in
// another way: enough to tell 0.10 from 0.15 (the standard error of 1,000 losses of 0.1 is 0.01), few enough to show today's.
const ownMemory = 1000

// priorCount is the most observations that a context's state or a newcomer takes over from others: as much as is worth
// having without any of one's own (the standard error of ten losses is about 0.1), and soon outweighed. A context that is
// like the others loses little by it, for it has the means from its first query on; one that is not needs about ten
// observations to say so.
const priorCount = 10

// known reports whether x can be a number of a state.
func plausible(x float64) bool { return math.Abs(x) <= maxPlausible } // false for NaN

// told is what a row's first two slots say: of how many losses (discounted) its sum is, 0 ≤ loss ≤ count whatever a store says.
func rowCounts(row []float64) (count, loss float64) {
	count, loss = row[SlotCount], row[SlotLoss]
	if !plausible(count) || !plausible(loss) || count <= 0 {
		return 0, 0
	}
	return count, min(max(loss, 0), count)
}

// MeanLoss is the mean of the recent losses that candidate i has been told, NaN when there are none.
func MeanLoss(s State, i int) float64 {
	count, loss := rowCounts(s.Row(i))
	return loss / count
}

// pooled is the mean loss over the candidates of set, 0.5 when nothing is known of any.
func pooled(s State, set Set) float64 {
	count, loss := 1e-9, 0.5e-9
	for t := set; t != 0; t &= t - 1 {
		c, l := rowCounts(s.Row(t.First()))
		count, loss = count+c, loss+l
	}
	return loss / count
}

// Loss is candidate i's loss, cut to the interval from 0 to 1, and whether it is known.
func (f *Feedback) Loss(i int) (loss float64, ok bool) {
	if i >= len(f.Losses) || f.Losses[i] != f.Losses[i] {
		return 0, false
	}
	return min(max(f.Losses[i], 0), 1), true
}

// row is candidate i's part of the delta.
func (f *Feedback) row(i int) []float64 {
	return f.Delta[i*f.State.Slots : (i+1)*f.State.Slots]
}

// CountLosses adds the losses to slots 0 and 1 of those whose loss is known. Before that each of these rows forgets
// one part in memory (0: nothing), so that its count approaches memory and its mean is that of about so many recent losses.
// With everybody, all rows forget whenever there is a loss: what has not been tried for long becomes unknown again, which is the
// discounted UCB policy's way (Garivier and Moulines, On upper-confidence bound policies for switching bandit problems, ALT
// 2011, equation 5, with γ = 1−1/memory).
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

// forget takes one part in memory from a row's count and loss. Several gateways that forget at once may make them negative
// by a little: then the same step brings them back.
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

// joinCounts lets candidate i start with the mean loss of the others, and as little certainty as one observation has.
func joinCounts(s State, i int) {
	row := s.Row(i)
	row[SlotCount], row[SlotLoss] = 0, 0
	if mean := pooled(s, All(s.Candidates()).Without(i)); s.Candidates() > 1 {
		row[SlotCount], row[SlotLoss] = 1, mean
	}
}

// descendCounts gives a context the global mean losses, as if from at most priorCount observations each.
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

// rightness is how often a candidate's answer is right, as far as is known: 1 less its mean loss, which is drawn to everybody's
// by one observation's weight. It is what an answer of a policy that asks one candidate is worth to the plan: never
// nothing, for a candidate that is never planned for can never show that it has become better.
func accuracy(s State, dst []float64) {
	mean := pooled(s, All(s.Candidates()))
	for i := range dst {
		count, loss := rowCounts(s.Row(i))
		dst[i] = max(1-(loss+mean)/(count+1), minGain)
	}
}
