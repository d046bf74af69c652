package obs

import (
	"math"
	"sync/atomic"
)

// Learning counts a function's feedback and the models that took part in its answers. The counts change rarely enough
// to need no stripes. Late and Dropped can be frequent, but only under overload.
type Learning struct {
	// Feedback by outcome. Nothing: it was accepted but says nothing about any model.
	Counted, Duplicates, TooLate, Unknown, Refused, Nothing atomic.Uint64
	// InPart counts feedback of which the policy learned only the losses, because inputs or predictions were no longer remembered.
	InPart atomic.Uint64
	// ModelsAsked counts models that were asked because of feedback. ModelsTaught counts labels that were passed to models.
	ModelsAsked, ModelsTaught atomic.Uint64
	// Late counts ensemble members without a prediction at the deadline, Dropped those for which the plan had no room.
	Late, Dropped atomic.Uint64
	// Predictions of shadows, by outcome.
	ShadowsSame, ShadowsDifferent, ShadowsFailed, ShadowsDropped atomic.Uint64
}

// Loss sums the losses of one candidate's predictions, and counts those that were missing.
type Loss struct {
	count atomic.Uint64
	sum   Sum
	// Late counts its predictions that an answer did without, because they had failed or were not there at the deadline.
	Late atomic.Uint64
}

// Observe adds one loss, from 0 to 1.
func (l *Loss) Observe(loss float64) {
	l.count.Add(1)
	l.sum.Add(loss)
}

// Read returns the number of losses and their sum.
func (l *Loss) Read() (count uint64, sum float64) { return l.count.Load(), l.sum.Load() }

// Sum is a floating-point sum for concurrent use.
type Sum struct{ bits atomic.Uint64 }

// Add adds x.
func (s *Sum) Add(x float64) {
	for {
		old := s.bits.Load()
		if s.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+x)) {
			return
		}
	}
}

// Load returns the current sum.
func (s *Sum) Load() float64 { return math.Float64frombits(s.bits.Load()) }
