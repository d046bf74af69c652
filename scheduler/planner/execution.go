package planner

import (
	"math"

	"github.com/xebec-serving/xebec/scheduler"
)

// Thresholds for streaming to begin and, with hysteresis, to end.
const (
	streamFixed, streamFixedEnd           = 0.05, 0.075 // fixed cost of a batch divided by the cost of a query
	streamSlope, streamSlopeEnd           = 200e3, 150e3
	streamLargeFixed, streamLargeFixedEnd = 0.25, 0.35
	streamLargeBytes, streamLargeEnd      = 256 << 10, 192 << 10
	// relearnEpochs is how often a streaming model forms batches for one epoch. Batches of one teach nothing about
	// larger ones.
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

// relearns counts the epochs of streaming and reports whether batches are formed in this epoch, one in relearnEpochs.
func (p *Planner) relearns(m *model) bool {
	if m.memory == nil {
		return int64(float64(p.in.Now)/p.epochNanos())%relearnEpochs == relearnEpochs-1
	}
	m.memory.streamed++
	return m.memory.streamed%relearnEpochs == 0
}

// splits reports whether to divide the queue between idle replicas: below half of the capacity, and if half a batch is
// shorter than a whole one by more than the fixed cost of a second one.
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

// meanBatch returns how many queries the machine holds while it holds any, averaged over the snapshots.
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

// hold decides how long a batch that is not full waits for more queries: 0 as configured, negative not at all. A hold
// pays if at least one query arrives within it, and until the batch reaches the knee, where its fixed cost equals the
// cost of its queries. Beyond the knee each further query saves less than half of its cost.
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
	tooFew := rate*float64(configured) < least
	if m.memory != nil {
		m.memory.holding = !tooFew
	}
	if tooFew {
		return -1, TooFew
	}
	knee := m.intercept / m.slope // +Inf if a batch costs the same whatever its size
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

// eighths lists the steps of an octave, from 1 to 2. Each step is the rounded value of everything below its bound and
// not below the previous bound.
var eighths = func() (steps [9]struct{ is, below float64 }) {
	for i := range steps {
		steps[i].is, steps[i].below = math.Exp2(float64(i)/8), math.Exp2((float64(i)+0.5)/8)
	}
	return steps
}()

// coarse rounds a weight to steps of an eighth of an octave. Weights follow rates, which never repeat exactly. The
// table takes a tenth of the time of a logarithm.
func coarse(w float64) float64 {
	const mantissaBits, one = 52, 1023
	bits := math.Float64bits(w)
	octave := math.Float64frombits(bits >> mantissaBits << mantissaBits)
	mantissa := math.Float64frombits(bits&(1<<mantissaBits-1) | one<<mantissaBits)
	at := uint64(0)
	for i := range len(eighths) - 1 { // all of them: which is the last one is random, and a mispredicted branch costs more
		at += ^signs(mantissa-eighths[i].below) & 1
	}
	return octave * eighths[at].is
}
