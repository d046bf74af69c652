package placement

import "math"

// claim is a model's claim to its next replica. The smaller order is, then tie, the better it is.
type claim struct {
	order, tie uint64
	model      int32
}

// What a claim is, the best first. A later kind never takes anything from an earlier one.
const (
	required  uint64 = iota // an operator has asked for it in any case
	first                   // the only replica of a model that is in use
	further                 // another one
	idleFirst               // a replica of a model that nobody uses, which runs
	idleMore                // another one
	idleStart               // one that would have to be started: nobody waits for it
)

// orderBits is how much of claim.order says how good a claim is among those of its kind. A level is a positive float, whose
// bits are ordered as it is; its sign is not needed, and its last three bits are rounding.
const orderBits = 60

// claim is the model's claim to one more replica than it has been granted, to be judged as one that runs already or not.
func (p *Planner) claim(i int32, granted int32, runs bool) claim {
	m := &p.models[i]
	return claim{order: m.rank(granted, runs), tie: ^math.Float64bits(m.useful / float64(granted+1)), model: i}
}

// rank is the order of that claim. It is no smaller for a model's next replica.
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
	within := min(m.unused, 1<<orderBits-1) // its kind
	if kind < idleFirst {
		level := float64(k) * m.unit
		if runs {
			level /= advantage
		}
		within = math.Float64bits(level) >> (63 - orderBits)
	}
	return kind<<orderBits | within
}
