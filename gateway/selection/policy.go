package selection

import (
	"math/bits"

	"github.com/xebec-serving/xebec/api"
)

// MaxCandidates is the most candidates that a function can have: a set of them is one machine word.
const MaxCandidates = 64 //xebec:limit candidates of a policy

// Set is a set of candidate indices: bit i is candidate i.
type Set uint64

// All returns the set of the first n candidates.
func All(n int) Set {
	if n >= MaxCandidates {
		return ^Set(0)
	}
	return Set(1)<<n - 1
}

// Has reports whether candidate i is in the set.
func (s Set) Has(i int) bool { return s>>i&1 != 0 }

// With returns the set with candidate i added.
func (s Set) With(i int) Set { return s | 1<<i }

// Without returns the set with candidate i removed.
func (s Set) Without(i int) Set { return s &^ (1 << i) }

// Len returns the number of candidates in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// First returns the lowest candidate in the set, or 64 if the set is empty.
// `for t := s; t != 0; t &= t - 1 { i := t.First() … }` iterates over a set.
func (s Set) First() int { return bits.TrailingZeros64(uint64(s)) }

// State is what a policy has learned for one function and one context: a row of Slots numbers for each candidate. The
// numbers are additive: several gateways' learning is the sum of what each has added. Slot 0 of a row counts the
// candidate's observed losses, slot 1 sums them, and the remaining slots belong to the policy.
//
// A policy whose knowledge is not a sum of numbers has a [Value] as well, one for each function; see [Valuer].
type State struct { // four words, which Go keeps in registers; two more made ucb1 choose in 112 ns instead of 89
	Slots int
	V     []float64
}

// Slots that every policy's rows have.
const (
	SlotCount = iota
	SlotLoss
	FirstOwnSlot // the first slot that belongs to the policy
)

// Row returns candidate i's numbers.
func (s State) Row(i int) []float64 { return s.V[i*s.Slots : (i+1)*s.Slots : (i+1)*s.Slots] }

// Candidates returns the number of rows.
func (s State) Candidates() int { return len(s.V) / s.Slots }

// Mode says how many candidates a policy asks for one query.
type Mode uint8

const (
	// One means that the policy asks one candidate.
	One Mode = iota
	// Several means that the policy asks several candidates and combines their answers.
	Several
)

// Policy selects candidates, combines their answers and learns from feedback. It holds only parameters and is pure, so
// any goroutine may call it; what it has learned is in the State that each call receives. No method retains its
// arguments.
type Policy interface {
	// Name is the policy's name in a function's declaration.
	Name() string
	Mode() Mode
	// Learns reports whether feedback changes anything.
	Learns() bool
	// Slots is the length of a row, at least FirstOwnSlot.
	Slots() int
	// Init writes the state of a function about which nothing is known.
	Init(s State)
	// Join writes row i for a candidate that was just added: the mean of the other rows.
	Join(s State, i int)
	// InitContext writes the initial state s of a new context, from the function's global state.
	InitContext(global, s State)
	// Select chooses the candidates to ask. The caller may call it again when the first answers have arrived, and
	// Select may then ask for more.
	Select(q *Query, out *Selection)
	// Shares writes, for each candidate, the fraction of the queries that would ask it, from 0 to 1.
	Shares(s State, allowed Set, dst []float64)
	// Gains writes, for each candidate, what its answer adds to the others', from 0 to 1. The plan drops candidates in
	// this order when capacity is short.
	Gains(s State, dst []float64)
	// Combine makes one answer out of those that have arrived.
	Combine(c *Combination)
	// Observe writes the change to the state that the feedback causes.
	Observe(f *Feedback)
}

// Query is one query as Select sees it.
type Query struct {
	State State
	// Value is that of a Valuer, or nil if nothing is known. Select and Combine must not change it, because several
	// goroutines read it at once.
	Value Value
	// Allowed is the set of candidates that may be asked. It is not empty in the first call.
	Allowed Set
	// Limits is, for each candidate, the fraction of the policy's wish that the plan has room for, from 0 to 1. nil
	// means no limits. Policies of mode One respect it; for the others the plan removes candidates from Allowed.
	Limits []float64
	// Seed is a random number, different for each query.
	Seed uint64
	// Sticky is the same number for all queries of a context. It is valid only if HasContext is set.
	Sticky     uint64
	HasContext bool
	// MinConfidence is the confidence that the caller requires; 0 means none.
	MinConfidence float64
	// Asked, Answered and Confidence describe the answers so far. Asked is empty in the first call.
	Asked, Answered Set
	Confidence      float64
	// Stated is the set of candidates among Answered whose models state a confidence of their own. One answer agrees
	// with itself, so its Confidence is 1 and says nothing unless the model has stated it.
	Stated Set
	// Inputs and Context are set for policies with Needs.Inputs. Context is empty if the query has none.
	Inputs  Tensors
	Context []byte
}

// Selection is what Select decided.
type Selection struct {
	// Ask is the set of candidates to ask now, without those that were asked before. In the first call an empty set
	// means that the limits allow no candidate, in later calls that no more answers are needed.
	Ask Set
	// P is the probability with which each candidate in Ask was chosen. Other elements are not written.
	P [MaxCandidates]float64
}

// Answer is one candidate's prediction.
type Answer struct {
	Candidate int
	// Class is equal for equal outputs and different for different ones.
	Class uint64
	// Confidence is the model's own, from 0 to 1; NaN if it states none.
	Confidence float64
}

// Combination is one query whose answers are to be combined: the inputs of Combine, then its results.
type Combination struct {
	State State
	Value Value // as in Query
	// Selected is the set of all candidates that were asked, including those that have not answered.
	Selected Set
	Answers  []Answer
	// Width is the number of elements of a numeric output that is averaged. 0 means that outputs are labels, compared
	// by Class.
	Width int
	// Values holds Width numbers for each candidate in Known, candidate i's from i*Width on: its prediction or, if it
	// was selected and has not answered, the running average of its predictions.
	Values []float64
	Known  Set
	// Tolerance is the largest difference, in each element, at which a numeric prediction agrees with the answer.
	Tolerance float64

	// Inputs and Context are set for policies with Needs.Inputs.
	Inputs  Tensors
	Context []byte
	// Predictions are set for policies with Needs.Predictions: prediction i is that of Answers[i]. Judged is the index
	// of the output that labels are about, -1 for all.
	Predictions []Prediction
	Judged      int

	// Output is an answer that no candidate has given, one value for each output of the function. It is the answer if
	// Winner is -1 and Output is not empty. Policies with Needs.Predictions append to Output, whose values' memory may be
	// used again; the others leave it empty.
	Output []api.Value
	// Winner is the candidate whose output is the answer, or -1 if there is no answer or the answer is in Out or Output.
	Winner int
	// Out is the numeric answer: Width numbers in memory of the caller.
	Out []float64
	// Agreed is the set of candidates whose own prediction agrees with the answer.
	Agreed Set
	// Confidence is the confidence in the answer, from 0 to 1.
	Confidence float64
}

// Feedback is what has become known about the answers to one query.
type Feedback struct {
	// State is the current state. Observe does not change it.
	State State
	// Value is that of a Valuer, which Observe changes in place; nil if Observe may change the numbers only.
	Value Value
	// Selected is the set of candidates that were asked. P holds the probabilities with which they were chosen, by
	// candidate.
	Selected Set
	P        []float64
	// Losses are from 0 to 1, by candidate; NaN if unknown.
	Losses []float64
	// Vote is the loss, from 0 to 1, of the answer that the candidates which have answered would have given if all
	// counted the same: of their plain vote, or of their plain average. It is valid if VoteKnown is set.
	Vote      float64
	VoteKnown bool
	// Delta is the change to add to State.V. The caller passes it zeroed.
	Delta []float64

	// Inputs and Context are set for policies with Needs.Inputs; Predictions, of the candidates that have answered, for
	// those with Needs.Predictions; and Label, where the feedback was one, for those with Needs.Labels. Label has the
	// values of the output Judged alone, or of all outputs if Judged is -1.
	Inputs      Tensors
	Context     []byte
	Predictions []Prediction
	Label       Tensors
	Judged      int
	// Missing means that inputs or predictions that the policy needs are no longer remembered.
	Missing bool
}
