package selection

// AsksOne is what policies of mode One have in common, for embedding: they learn nothing and remember nothing, all candidates'
// words weigh the same, and an answer is worth to the plan what its candidate's record says. The candidate's own Confidence is
// the answer's.
type AsksOne struct{}

// Mode is One.
func (AsksOne) Mode() Mode { return One }

// Learns is false.
func (AsksOne) Learns() bool { return false }

// Slots is what every policy's rows have.
func (AsksOne) Slots() int { return OwnSlots }

// Init writes zeros.
func (AsksOne) Init(s State) { clear(s.V) }

// Join gives row i the others' mean loss with the weight of one observation.
func (AsksOne) Join(s State, i int) { joinCounts(s, i) }

// Descend gives a context the global mean losses, as if from a few observations.
func (AsksOne) Descend(global, s State) { descendCounts(global, s) }

// Gains are 1 less the mean losses.
func (AsksOne) Gains(s State, dst []float64) { accuracy(s, dst) }

// Combine gives the only answer, or the vote of several.
func (AsksOne) Combine(c *Combining) {
	equal := even
	Vote(c, &equal)
}

// Observe changes nothing.
func (AsksOne) Observe(*Feedback) {}

// even weighs all candidates the same.
var even = func() (v Vector) {
	for i := range v {
		v[i] = 1
	}
	return v
}()

// Counting is AsksOne for policies that learn from counts and sums of losses (slots 0 and 1) and from nothing else.
type Counting struct {
	AsksOne
	// Memory is how many observations of the function are remembered, as a mean age; 0: all for ever.
	Memory float64
}

// Learns is true.
func (Counting) Learns() bool { return true }

// Observe adds the losses and forgets a little of everybody's.
func (c Counting) Observe(f *Feedback) { CountLosses(f, c.Memory, true) }

// memoryParameter is the parameter of policies that are Counting. What is good differs: see the essay on defaults.
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

// named is a policy's name.
type named string

func (n named) Name() string { return string(n) }
