package placement

import "math"

// pack gives every model what it wants, beside everything that runs, if possible: in decreasing order of size, each
// replica on the node that it fits best (best-fit decreasing: Johnson, Near-optimal bin packing algorithms, 1973). If
// that is not possible, it changes nothing. Models that never fit are skipped.
func (p *Planner) pack() bool {
	t := &p.order
	t.models, t.claims = p.in.Models, t.claims[:0]
	var lacks, room amounts
	for i := range p.models {
		if m := &p.models[i]; !m.closed && !m.neverFits && m.granted < m.wanted {
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
		*c = noClaim
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

// move records what pack has placed.
type move struct{ model, node, count int32 }

// fill places a model's missing replicas on the node that the first of them fits best, as far as there is room, and
// returns their number. Each placed replica leaves less over, so the next one fits best there too.
func (p *Planner) fill(m *model, n *node) int32 {
	lack, count := m.wanted-m.granted, int32(0)
	if m.takes == (amounts{}) {
		return lack // replicas that take nothing can all go here
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

// rounding bounds the difference of two calculations of the same part of a budget.
const rounding = 1e-12

// rooms returns the nodes where settled replicas leave room for one more replica. free says whether any of them also
// has room beside everything that is likely to stay. Like holding, the loop has no branch.
func (p *Planner) rooms(m *model) (rooms []int32, free bool) {
	where, nodes := p.where[:len(p.nodes)], p.nodes
	needs0, needs1, needs2 := m.needs[0], m.needs[1], m.needs[2] // separate variables stay in registers
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

// bestFit returns the node of rooms that one more replica fits best beside everything that is likely to stay, or -1.
// What it leaves over on a node is at least the node's current spare part less the largest part that the replica takes
// of anything. If that is more than on the best node so far, the node is skipped.
func (p *Planner) bestFit(m *model, rooms []int32) int {
	at, least, enough := -1, 0.0, math.Inf(1)
	for _, j := range rooms {
		n := &p.nodes[j]
		if n.spare > enough || !m.needs.within(&n.free) {
			continue
		}
		if misfit := n.misfit(&m.takes); at < 0 || misfit < least || misfit == least && p.before(int(j), at) {
			at, least = int(j), misfit
			enough = max(0, least+m.most+rounding)
		}
	}
	return at
}
