package selection

import "math/bits"

// MaxCandidates bounds the candidates of a function, so that a set of them is one machine word.
const MaxCandidates = 64

// Set is a set of candidates, by their index: bit i is candidate i.
type Set uint64

// All is the set of the first n candidates.
func All(n int) Set {
	if n >= MaxCandidates {
		return ^Set(0)
	}
	return Set(1)<<n - 1
}

// Has reports whether candidate i is in the set.
func (s Set) Has(i int) bool { return s>>i&1 != 0 }

// With is the set and candidate i.
func (s Set) With(i int) Set { return s | 1<<i }

// Without is the set less candidate i.
func (s Set) Without(i int) Set { return s &^ (1 << i) }

// Len is how many candidates are in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// First is the lowest candidate of the set, 64 of the empty one. `for t := s; t != 0; t &= t - 1 { i := t.First() … }` walks
// through a set.
func (s Set) First() int { return bits.TrailingZeros64(uint64(s)) }

// State is what a policy has learned for one function and one context: for each candidate a row of Slots numbers. Numbers
// are additive: what several gateways have learned is the sum of what each has added. Slot 0 of a row counts the losses that the
// candidate has been told, slot 1 is their sum; the rest is the policy's own.
type State struct {
	Slots int
	V     []float64
}

// The slots that every policy's rows have.
const (
	SlotCount = iota
	SlotLoss
	OwnSlots // the first one that is the policy's own
)

// Row is candidate i's numbers.
func (s State) Row(i int) []float64 { return s.V[i*s.Slots : (i+1)*s.Slots : (i+1)*s.Slots] }

// Candidates is how many rows there are.
func (s State) Candidates() int { return len(s.V) / s.Slots }

// Mode says how many of its candidates a policy asks for one query.
type Mode uint8

const (
	// One candidate is asked.
	One Mode = iota
	// Several are asked, and their answers combined.
	Several
)

// Policy selects candidates, combines their answers and learns from feedback. It is pure and holds parameters only, so that
// any goroutine may call it: what it has learned is a State that is given to every call. No method keeps what it is given.
type Policy interface {
	// Name is what a function's declaration calls it.
	Name() string
	Mode() Mode
	// Learns reports whether feedback changes anything.
	Learns() bool
	// Slots is the length of a row, at least OwnSlots.
	Slots() int
	// Init writes the state of a function of which nothing is known.
	Init(s State)
	// Join writes row i, of a candidate that has just been added, from the other rows: the mean of what they stand for.
	Join(s State, i int)
	// Descend writes what a context starts with that has not been seen before, from the function's global state.
	Descend(global, s State)
	// Select chooses who is asked. It is called again when the first answers are in, and may then ask for more.
	Select(q *Query, out *Selection)
	// Shares writes, for each candidate, the part of the queries that would ask it, from 0 to 1.
	Shares(s State, allowed Set, dst []float64)
	// Gains writes, for each candidate, what its answer is worth beside those of the others, from 0 to 1: the plan's order of
	// dropping where there is not enough for all.
	Gains(s State, dst []float64)
	// Combine makes one answer of those that have come.
	Combine(c *Combining)
	// Observe writes what feedback adds to the state.
	Observe(f *Feedback)
}

// Query is one query as Select sees it.
type Query struct {
	State State
	// Allowed are the candidates that may be asked; never empty in the first call.
	Allowed Set
	// Limits are what the plan has room for: the part, from 0 to 1, of what the policy would ask of each candidate. nil: no
	// limits. Policies of mode One heed them; for the others the plan takes candidates out of Allowed.
	Limits []float64
	// Seed is a random number, another one for each query.
	Seed uint64
	// Sticky is the same number for all queries of the same context. It means nothing unless HasContext.
	Sticky     uint64
	HasContext bool
	// MinConfidence is what the caller wants, 0: nothing.
	MinConfidence float64
	// Asked, Answered and Confidence are those of the answers so far; Asked is empty in the first call.
	Asked, Answered Set
	Confidence      float64
}

// Selection is what Select decided.
type Selection struct {
	// Ask are the candidates to ask (now also: those asked before are not in it). Empty: in the first call nobody may be asked
	// by the limits, in the second nobody more need be.
	Ask Set
	// P is, for each candidate in Ask, the probability with which it was chosen. Others' are not written.
	P [MaxCandidates]float64
}

// Answer is one candidate's prediction.
type Answer struct {
	Candidate int
	// Class is equal for equal outputs, and differs for others.
	Class uint64
	// Confidence is what the model itself says, from 0 to 1; NaN where it says nothing.
	Confidence float64
}

// Combining is a query whose answers are to be made one.
type Combining struct {
	State State
	// Selected are all that were asked, whether they have answered or not.
	Selected Set
	Answers  []Answer
	// Width is the number of elements of an output that is numeric and to be averaged; 0: outputs are labels, compared by Class.
	Width int
	// Values has Width numbers for each candidate (candidate i's from i*Width on), where Known has it: its prediction, or, for one
	// that was selected and has not answered, the running average of its predictions.
	Values []float64
	Known  Set
	// Tolerance is how far a numeric prediction may be from the answer, in each element, to agree with it.
	Tolerance float64

	// Winner is the candidate whose output is the answer, -1 when there is none or Out is.
	Winner int
	// Out is the numeric answer, Width numbers in the caller's memory.
	Out []float64
	// Agreed are those whose own prediction agrees with the answer.
	Agreed Set
	// Confidence is from 0 to 1.
	Confidence float64
}

// Feedback is what has become known of one query's answers.
type Feedback struct {
	// State is as it is now; it is not changed.
	State State
	// Selected are the candidates that were asked, P the probabilities with which they were, by candidate.
	Selected Set
	P        []float64
	// Losses are from 0 to 1, by candidate; NaN where nothing is known.
	Losses []float64
	// Delta is what is to be added to State.V; zero when Observe is called.
	Delta []float64
}
