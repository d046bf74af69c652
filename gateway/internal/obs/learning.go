package obs

import (
	"math"
	"sync/atomic"
)

// Learning counts what a function learns from, and who took part in its answers. They are counted seldom enough to need no
// stripes, but for Late and Dropped under overload, when there is time.
type Learning struct {
	// Feedback by what became of it. Nothing: it was taken, and says nothing of any model.
	Counted, Duplicates, TooLate, Unknown, Refused, Nothing atomic.Uint64
	// Asked counts models that were asked for the sake of feedback; Taught counts labels that were handed to models.
	Asked, Taught atomic.Uint64
	// Late counts ensemble members without a prediction at the deadline, Dropped those for which the plan had no room.
	Late, Dropped atomic.Uint64
	// Shadows by what became of their predictions.
	ShadowsSame, ShadowsOther, ShadowsFailed, ShadowsDropped atomic.Uint64
}

// Loss adds up what feedback has said of one candidate's predictions.
type Loss struct {
	count atomic.Uint64
	sum   Sum
}

// Observe takes in one loss, from 0 to 1.
func (l *Loss) Observe(loss float64) {
	l.count.Add(1)
	l.sum.Add(loss)
}

// Read returns how many losses there were, and their sum.
func (l *Loss) Read() (count uint64, sum float64) { return l.count.Load(), l.sum.Load() }

// Sum is a sum that many add to.
type Sum struct{ bits atomic.Uint64 }

// Add adds.
func (s *Sum) Add(x float64) {
	for {
		old := s.bits.Load()
		if s.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+x)) {
			return
		}
	}
}

// Load is the sum now.
func (s *Sum) Load() float64 { return math.Float64frombits(s.bits.Load()) }
