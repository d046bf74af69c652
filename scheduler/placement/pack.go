package placement

import "math"

// pack gives everybody what he wants, beside all that runs, if it can: the largest first, each replica on the node that it
// fits best (best-fit decreasing: Johnson, Near-optimal bin packing algorithms, 1973). If it cannot, it changes nothing.
// Models that never fit want nothing here.
func (p *Planner) pack() bool {
	t := &p.order
	t.models, t.claims = p.in.Models, t.claims[:0]
	var lacks, room amounts
	for i := range p.models {
		if m := &p.models[i]; !m.closed && !m.never && m.granted < m.wanted {
			t.claims = append(t.claims, claim{order: 1<<63 - math.Float64bits(m.share), tie: p.in.Models[i].Key, model: int32(i)})
			lacks.add(&m.takes, float64(m.wanted-m.granted))
		}
	}
	for j := range p.nodes {
		for d := range room {
			room[d] += max(0, p.nodes[j].free[d])
		}
	}
	if needs := lacks.needed(); !needs.within(&room) {
		return false
	}
	p.moves = p.moves[:0]
	for c := t.start(); c != nil; c = t.play() {
		i := c.model
		*c = out
		for m := &p.models[i]; m.granted < m.wanted; {
			rooms, free := p.rooms(m)
			if !free {
				p.unpack()
				return false
			}
			at := p.bestFit(m, rooms)
			count := p.fill(m, &p.nodes[at])
			p.moves = append(p.moves, move{model: i, node: int32(at), count: count})
			p.placed(int(i))[at] += count
			m.granted += count
		}
	}
	return true
}

// move is what pack has placed.
type move struct{ model, node, count int32 }

// fill places what a model lacks on a node that the first of it fits best, as far as there is room, and returns how many replicas that is: each
// that is there leaves less over, so that the next one fits best there too.
func (p *Planner) fill(m *model, n *node) int32 {
	lack, count := m.wanted-m.granted, int32(0)
	if m.takes == (amounts{}) {
		return lack // one is like the other
	}
	for count < lack && m.needs.within(&n.free) {
		n.settle(&m.takes)
		n.take(&m.takes, 1)
		count++
	}
	return count
}

// unpack takes back what pack has placed.
func (p *Planner) unpack() {
	for _, v := range p.moves {
		p.placed(int(v.model))[v.node] -= v.count
		p.models[v.model].granted -= v.count
	}
	p.count()
	p.free()
}

// rounding is more than what two ways to calculate a part of a budget can differ by.
const rounding = 1e-12

// rooms is the nodes where what is settled leaves room for one more replica; free is whether any of them has room beside all that is likely to
// stay too. Like holding it has no branch for each.
func (p *Planner) rooms(m *model) (rooms []int32, free bool) {
	where, nodes := p.where[:len(p.nodes)], p.nodes
	needs0, needs1, needs2 := m.needs[0], m.needs[1], m.needs[2] // each for itself they stay in registers
	count, none := 0, int64(-1)
	for j := range nodes {
		n := &nodes[j]
		where[count] = int32(j)
		lacks := signs(n.room[0]-needs0, n.room[1]-needs1, n.room[2]-needs2)
		count += int(1 + lacks>>63)
		none &= lacks | signs(n.free[0]-needs0, n.free[1]-needs1, n.free[2]-needs2)
	}
	return where[:count], none >= 0
}

// bestFit is the node of rooms that one more replica fits best beside all that is likely to stay, or -1. It leaves no less over on a node
// than what is over there now, less the largest part that it takes of anything: where that is more than elsewhere, nothing else is looked at.
func (p *Planner) bestFit(m *model, rooms []int32) int {
	at, least, enough := -1, 0.0, math.Inf(1)
	for _, j := range rooms {
		n := &p.nodes[j]
		if n.spare > enough || !m.needs.within(&n.free) {
			continue
		}
		if unfit := n.unfit(&m.takes); at < 0 || unfit < least || unfit == least && p.before(int(j), at) {
			at, least = int(j), unfit
			enough = max(0, least+m.most+rounding)
		}
	}
	return at
}
