package planner

import (
	"math"

	"github.com/xebec-serving/xebec/scheduler"
)

// Where a model begins to be streamed, and, for it must not go back and forth, where it ends.
const (
	streamFixed, streamFixedEnd           = 0.05, 0.075 // the fixed part of a batch by the part of each query
	streamSlope, streamSlopeEnd           = 200e3, 150e3
	streamLargeFixed, streamLargeFixedEnd = 0.25, 0.35
	streamLargeBytes, streamLargeEnd      = 256 << 10, 192 << 10
	// relearnEpochs: while every batch is of one, nothing is learned of larger ones. One epoch in so many they are formed.
	relearnEpochs = 256
)

// streams reports whether sending the queries one by one costs next to nothing.
func (p *Planner) streams(m *model, im *Model) bool {
	streaming := m.memory != nil && m.memory.streaming
	streams := !im.Pinned && m.saveNothing(streaming) != NoReason || !im.Pinned && m.large(im, streaming) != NoReason
	if m.memory != nil {
		m.memory.streaming = streams
		if !streams {
			m.memory.streamed = 0
		}
	}
	return streams
}

func (m *model) saveNothing(streaming bool) Reason {
	fixed, slope := streamFixed, streamSlope
	if streaming {
		fixed, slope = streamFixedEnd, streamSlopeEnd
	}
	if m.slope >= slope && m.intercept <= fixed*m.slope {
		return BatchesSaveNothing
	}
	return NoReason
}

func (m *model) large(im *Model, streaming bool) Reason {
	fixed, bytes := streamLargeFixed, int64(streamLargeBytes)
	if streaming {
		fixed, bytes = streamLargeFixedEnd, streamLargeEnd
	}
	if im.InputBytes >= bytes && m.intercept <= fixed*m.slope {
		return LargeInputs
	}
	return NoReason
}

// execution decides how the model's batches are executed.
func (p *Planner) execution(m *model, im *Model, out *ModelPlan) (scheduler.Execution, Reason) {
	switch {
	case im.Pinned:
		return scheduler.Whole, Pinned
	case !m.known:
		return scheduler.Whole, Unknown
	case m.streaming:
		if p.relearns(m) {
			return scheduler.Whole, Relearning
		}
		if why := m.saveNothing(true); why != NoReason {
			return scheduler.Stream, why
		}
		return scheduler.Stream, LargeInputs
	case p.splits(m, im, out):
		return scheduler.Split, SideBySide
	}
	return scheduler.Whole, BatchesSave
}

// relearns counts the epochs of streaming, and reports whether this is the one in relearnEpochs in which batches are formed.
func (p *Planner) relearns(m *model) bool {
	if m.memory == nil {
		return int64(float64(p.in.Now)/p.epochNanos())%relearnEpochs == relearnEpochs-1
	}
	m.memory.streamed++
	return m.memory.streamed%relearnEpochs == 0
}

// splits reports whether what waits is better divided between idle replicas: below half of the capacity, and where half a
// batch is shorter than a whole one by more than the fixed cost of a second one.
func (p *Planner) splits(m *model, im *Model, out *ModelPlan) bool {
	splitting := m.memory != nil && m.memory.splitting
	busiest, gain := 0.5, 1.0
	if splitting {
		busiest, gain = 0.65, 0.7
	}
	splits := len(im.Replicas) >= 2 && p.deviceOf(im) == nil && out.Tight == 0 &&
		m.admitted < busiest*m.capacity && m.slope*p.meanBatch(m, im)/2 > gain*m.intercept
	if m.memory != nil {
		m.memory.splitting = splits
	}
	return splits
}

// meanBatch is how many queries the machine holds while it holds any, on the average of the snapshots.
func (p *Planner) meanBatch(m *model, im *Model) float64 {
	held := m.held
	for i := range im.Replicas {
		held += float64(max(0, im.Replicas[i].Outstanding))
	}
	mem := m.memory
	if mem == nil {
		return min(held, float64(m.cap))
	}
	busy := 0.0
	if held > 0 {
		busy = 1
	}
	mem.held = m.keep*mem.held + (1-m.keep)*held
	mem.busy = m.keep*mem.busy + (1-m.keep)*busy
	if mem.busy < 1e-6 {
		return 0
	}
	return min(mem.held/mem.busy, float64(m.cap))
}

// hold decides how long a batch that is not full waits for more: 0, as configured, or negative, not at all. A hold pays if
// at least one query comes within it, and until the batch is as large as the fixed cost is in queries (the knee): from
// there on each further query saves less than half of itself.
func (p *Planner) hold(m *model, im *Model) (int64, Reason) {
	configured := min(im.HoldNanos, scheduler.MaxHoldNanos)
	switch {
	case configured <= 0:
		return 0, NotConfigured
	case im.Pinned:
		return 0, Pinned
	case !m.known:
		return 0, Unknown
	}
	rate := m.admitted / 1e9
	least := 1.0
	if m.memory != nil && m.memory.holding {
		least = 0.8
	}
	few := rate*float64(configured) < least
	if m.memory != nil {
		m.memory.holding = !few
	}
	if few {
		return -1, TooFew
	}
	knee := m.intercept / m.slope // +Inf where a batch costs the same whatever its size
	if knee <= 2 {
		return -1, BatchesSaveNothing
	}
	gather := (knee - 1) / rate
	if !(gather < float64(configured)) {
		return 0, AsConfigured
	}
	hold := max(1, nanos(gather))
	if m.memory != nil {
		hold = steady(m.memory.holdNanos, hold)
		hold = min(hold, configured)
		m.memory.holdNanos = hold
	}
	return hold, Knee
}

// near reports whether two weights are so close that a change is not worth a new plan.
func near(a, b float64) bool { return math.Abs(a-b) <= 0.02*max(a, b) }

// eighths are the steps of an octave, from 1 to 2, with what is rounded to each: all below a bound, and not to the one before.
var eighths = func() (steps [9]struct{ is, below float64 }) {
	for i := range steps {
		steps[i].is, steps[i].below = math.Exp2(float64(i)/8), math.Exp2((float64(i)+0.5)/8)
	}
	return steps
}()

// coarse rounds a weight to steps of an eighth of an octave: weights follow rates, which are never the same twice. A table
// does it in a tenth of the time that a logarithm takes.
func coarse(w float64) float64 {
	const mantissaBits, one = 52, 1023
	bits := math.Float64bits(w)
	octave := math.Float64frombits(bits >> mantissaBits << mantissaBits)
	mantissa := math.Float64frombits(bits&(1<<mantissaBits-1) | one<<mantissaBits)
	at := 0
	for at < len(eighths)-1 && mantissa >= eighths[at].below {
		at++
	}
	return octave * eighths[at].is
}
