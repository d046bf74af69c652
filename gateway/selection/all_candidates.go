package selection

// AllCandidates is what ensembles have in common, for embedding: all candidates are asked, and their losses are counted.
// Combine is a vote in which each candidate weighs as much as it has been right.
type AllCandidates struct {
	// Memory is the number of a candidate's losses that are remembered, as a mean age. 0 means all of them.
	Memory float64
}

// Mode returns Several.
func (AllCandidates) Mode() Mode { return Several }

// Learns returns true.
func (AllCandidates) Learns() bool { return true }

// Slots returns FirstOwnSlot: the slots that every policy's rows have.
func (AllCandidates) Slots() int { return FirstOwnSlot }

// Init writes zeros.
func (AllCandidates) Init(s State) { clear(s.V) }

// Join gives row i the others' mean loss, with the weight of one observation.
func (AllCandidates) Join(s State, i int) { joinCounts(s, i) }

// InitContext gives a context the global mean losses, with the weight of a few observations.
func (AllCandidates) InitContext(global, s State) { descendCounts(global, s) }

// Select asks every allowed candidate at once.
func (AllCandidates) Select(q *Query, out *Selection) {
	out.Ask = 0
	if q.Asked != 0 {
		return
	}
	out.Ask = q.Allowed
	for t := q.Allowed; t != 0; t &= t - 1 {
		out.P[t.First()] = 1
	}
}

// Shares writes 1 for each allowed candidate.
func (AllCandidates) Shares(_ State, allowed Set, dst []float64) {
	clear(dst)
	for t := allowed; t != 0; t &= t - 1 {
		dst[t.First()] = 1
	}
}

// Gains are proportional to how often the candidates are right.
func (AllCandidates) Gains(s State, dst []float64) {
	accuracy(s, dst)
	most := 0.0
	for _, right := range dst {
		most = max(most, right)
	}
	for i := range dst {
		dst[i] *= maxGain / most
	}
}

// Weights writes how often each candidate is right, as fractions that sum to 1.
func (AllCandidates) Weights(s State, dst []float64) {
	accuracy(s, dst)
	sum := 0.0
	for _, right := range dst {
		sum += right
	}
	for i := range dst {
		dst[i] /= sum
	}
}

// weigh is Weights with memory of the caller.
func (p AllCandidates) weigh(s State, dst *Vector) { p.Weights(s, dst[:s.Candidates()]) }

// Combine takes the weighted vote or average.
func (p AllCandidates) Combine(c *Combination) {
	var w Vector
	p.weigh(c.State, &w)
	Vote(c, &w)
}

// Observe counts the losses.
func (p AllCandidates) Observe(f *Feedback) { CountLosses(f, p.Memory, false) }
