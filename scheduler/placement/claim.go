package placement

import (
	"cmp"
	"math"
)

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
	return claim{order: kind<<orderBits | within, tie: ^math.Float64bits(m.useful / float64(k)), model: i}
}

// compare is negative where a is better than b. Of equal claims that with more queries for the replica is better, then that of the model that
// was used last.
func (p *Planner) compare(a, b *claim) int {
	if a.order != b.order {
		return cmp.Compare(a.order, b.order)
	}
	if a.tie != b.tie {
		return cmp.Compare(a.tie, b.tie)
	}
	x, y := &p.in.Models[a.model], &p.in.Models[b.model]
	return cmp.Or(cmp.Compare(y.LastUsed, x.LastUsed), cmp.Compare(x.Key, y.Key), cmp.Compare(a.model, b.model))
}

// better is compare(a, b) < 0, for the heap: most claims differ in their order.
func (p *Planner) better(a, b *claim) bool {
	return a.order < b.order || a.order == b.order && p.compare(a, b) < 0
}

// sink puts the heap's claim at its place.
func (p *Planner) sink(at int) {
	h := p.heap
	moved := h[at]
	for {
		child := 2*at + 1
		if child >= len(h) {
			break
		}
		for next := child + 1; next < min(2*at+3, len(h)); next++ {
			if p.better(&h[next], &h[child]) {
				child = next
			}
		}
		if !p.better(&h[child], &moved) {
			break
		}
		h[at] = h[child]
		at = child
	}
	h[at] = moved
}
