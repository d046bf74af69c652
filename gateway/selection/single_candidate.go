package selection

// SingleCandidate is what policies of mode One have in common, for embedding. It learns and remembers nothing, weighs all
// candidates equally, and derives an answer's gain from its candidate's record. The confidence of an answer is the
// candidate's own.
type SingleCandidate struct{}

// Mode returns One.
func (SingleCandidate) Mode() Mode { return One }

// Learns returns false.
func (SingleCandidate) Learns() bool { return false }

// Slots returns FirstOwnSlot: the slots that every policy's rows have.
func (SingleCandidate) Slots() int { return FirstOwnSlot }

// Init writes zeros.
func (SingleCandidate) Init(s State) { clear(s.V) }

// Join gives row i the others' mean loss, with the weight of one observation.
func (SingleCandidate) Join(s State, i int) { joinCounts(s, i) }

// InitContext gives a context the global mean losses, with the weight of a few observations.
func (SingleCandidate) InitContext(global, s State) { descendCounts(global, s) }

// Gains writes 1 minus each candidate's mean loss.
func (SingleCandidate) Gains(s State, dst []float64) { accuracy(s, dst) }

// Combine returns the only answer, or the vote of several.
func (SingleCandidate) Combine(c *Combination) {
	equal := even
	Vote(c, &equal)
}

// Observe changes nothing.
func (SingleCandidate) Observe(*Feedback) {}

// even gives all candidates the same weight.
var even = func() (v Vector) {
	for i := range v {
		v[i] = 1
	}
	return v
}()

// Counting is SingleCandidate for policies that learn only from counts and sums of losses (slots 0 and 1).
type Counting struct {
	SingleCandidate
	// Memory is the number of the function's observations that are remembered, as a mean age. 0 means all of them.
	Memory float64
}

// Learns returns true.
func (Counting) Learns() bool { return true }

// Observe adds the losses and lets every row forget a little.
func (c Counting) Observe(f *Feedback) { CountLosses(f, c.Memory, true) }

// memoryParameter is the parameter of Counting policies. The defaults differ: see the package comment.
func memoryParameter(byDefault float64) Parameter {
	return Parameter{"memory", Number, byDefault, 0, 1e12, "how many observations are remembered; 0: all of them"}
}

func memoryOf(v Values) float64 {
	memory := v.Number("memory")
	if memory > 0 && memory < 1 {
		return 1
	}
	return memory
}

// named implements Name.
type named string

func (n named) Name() string { return string(n) }
