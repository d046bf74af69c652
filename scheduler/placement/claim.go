package placement

import "math"

// claim is a model's claim to its next replica. A smaller order is better, then a smaller tie.
type claim struct {
	order, tie uint64
	model      int32
}

// Kinds of claims, the best first. A kind never takes anything from an earlier one.
const (
	required  uint64 = iota // the operator requires it
	first                   // the only replica of a model in use
	further                 // another one
	idleFirst               // a running replica of an idle model, its only one
	idleMore                // another one
	idleStart               // one that would have to be started; no query waits for it
)

// orderBits is the part of claim.order that orders claims within a kind. A level is a positive float, whose bits have
// the same order. The sign bit is not needed, and the last three bits are rounding.
const orderBits = 60

// claim returns the model's claim to one more replica than granted, as a running one or as one to be started.
func (p *Planner) claim(i int32, granted int32, runs bool) claim {
	m := &p.models[i]
	return claim{order: m.rank(granted, runs), tie: ^math.Float64bits(m.useful / float64(granted+1)), model: i}
}

// rank returns the order of that claim. It is no smaller for a model's next replica.
func (m *model) rank(granted int32, runs bool) uint64 {
	k := granted + 1
	kind := further
	switch {
	case k <= m.min:
		kind = required
	case m.idle && !runs:
		kind = idleStart
	case m.idle && k == 1:
		kind = idleFirst
	case m.idle:
		kind = idleMore
	case k == 1:
		kind = first
	}
	within := min(m.unused, 1<<orderBits-1) // within its kind
	if kind < idleFirst {
		level := float64(k) * m.unit
		if runs {
			level /= advantage
		}
		within = math.Float64bits(level) >> (63 - orderBits)
	}
	return kind<<orderBits | within
}
