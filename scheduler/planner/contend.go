package planner

import (
	"math"
)

var inf = math.Inf(1)

// claimant is a function that contends for full resources, or a direct sub-queue, which is a function with one candidate.
type claimant struct {
	first, end int32 // its edges, the most efficient first
	next       int32 // the edge that it claims now
	function   int32 // index of Input.Functions; -1: a direct sub-queue
	queue      int32 // of a direct sub-queue: index of Planner.queues
	mode       Mode
	weight     float64
	rate       float64
	rest       float64 // of rate: nobody answers these yet
	left       float64 // of the budget; +Inf where there is none
	budget     float64
	claimed    float64 // time of the resource, in this round
	waiting    bool    // among the active
	afresh     bool    // to begin at its first edge again
}

// edge is one candidate of a claimant.
type edge struct {
	entry     int32 // of the resource that an evaluation uses; -1: none that is known
	candidate int32
	use       float64 // of the resource, of all of it, for one query/s
	cost      float64
	gain      float64
	x         float64 // queries/s, given so far
	most      float64 // queries/s that it takes at most; +Inf but for what a policy wishes, see asWishedEdges
	// efficiency is the gain for the largest part that a query/s takes of anything.
	efficiency float64
}

// entry is a claimant at a resource.
type entry struct {
	claimant, resource int32
	weight             float64
	used               float64 // parts of the resource
	claim              float64 // wanted beyond that, in this round
	share              float64 // what it may take of it, in this pass
}

// rounds bounds how often the claimants with rejected claims go on to their next candidates and may take from others there.
// After it they only take what is free, which ends after as many rounds as anybody has candidates.
const rounds = 12

// improvements is how often better answers are handed out: what one pass gives up, the next can use.
const improvements = 2

// contend shares out the resources of every group in which one is wished for beyond its capacity: first an answer for every
// query, then better ones. See the essay.
func (p *Planner) contend() {
	p.group()
	p.gather()
	p.share()
}

// share divides the resources between the claimants.
func (p *Planner) share() {
	p.placeEntries()
	p.cover()
	p.wanting = p.wanting[:0]
	for c := range p.claimants {
		if cl := &p.claimants[c]; cl.end-cl.first > 1 && !p.content(cl) {
			p.wanting = append(p.wanting, int32(c))
		}
	}
	for range improvements {
		worthIt := p.improve()
		if p.again() {
			p.cover()
		}
		if !worthIt {
			break
		}
	}
	p.settle()
}

// group finds which resources are connected by functions that could use either, and marks the groups that hold an
// overloaded one. What could not be full, whoever asked for it, connects nothing.
func (p *Planner) group() {
	n := len(p.loads)
	p.parent, p.full = resize(p.parent, n), resize(p.full, n)
	for i := range p.parent {
		p.parent[i], p.full[i] = int32(i), false
	}
	for i := range p.in.Functions {
		root := int32(-1)
		p.wishes[i].root = root
		if p.wishes[i].rate == 0 || p.in.Functions[i].Background {
			continue
		}
		for c := range p.in.Functions[i].Candidates {
			m, ok := p.modelOf(&p.in.Functions[i].Candidates[c])
			switch {
			case !ok || !p.scarce(m):
			case root < 0:
				root = p.root(m.resource)
			default:
				other := p.root(m.resource)
				p.parent[max(root, other)] = min(root, other)
				root = min(root, other)
			}
		}
		p.wishes[i].root = root
	}
	for i := range p.loads {
		if p.loads[i].short() {
			p.full[p.root(int32(i))] = true
		}
	}
}

func (p *Planner) root(i int32) int32 {
	for p.parent[i] != i {
		p.parent[i] = p.parent[p.parent[i]]
		i = p.parent[i]
	}
	return i
}

// contended reports whether m's resource is in a group with an overloaded one.
func (p *Planner) contended(m *model) bool {
	return p.scarce(m) && p.full[p.root(m.resource)]
}

// gather makes claimants of all functions and direct sub-queues that contend.
func (p *Planner) gather() {
	in := p.in
	p.claimants, p.edges = p.claimants[:0], p.edges[:0]
	for i := range in.Models {
		m := &p.models[i]
		m.contended = p.contended(m)
		if !m.contended {
			continue
		}
		for q := range in.Models[i].Queues {
			iq := &in.Models[i].Queues[q]
			rate := number(iq.Rate)
			if !isDirect(iq) || rate == 0 {
				continue
			}
			first := int32(len(p.edges))
			p.edges = append(p.edges, edge{entry: m.resource, use: m.use, gain: 1, efficiency: inf, most: inf})
			p.claimants = append(p.claimants, claimant{
				first: first, end: first + 1, next: first, function: -1, queue: m.queueAt + int32(q),
				weight: weightOf(iq.Weight), rate: rate, rest: rate, left: inf, budget: inf,
			})
		}
	}
	for i := range in.Functions {
		f, w := &in.Functions[i], &p.wishes[i]
		if w.root >= 0 && !f.Background && p.full[p.root(w.root)] {
			w.contended = true
			p.claimants = append(p.claimants, p.claimantOf(f, w, int32(i)))
		}
	}
}

// claimantOf makes a claimant of function f, with its edges in order of efficiency: gain for the largest part that a query
// per second takes of anything, of a resource or of the budget (the dominant share of Ghodsi et al., 2011). What cannot be
// full takes nothing. Until entries are placed, an edge's entry is its resource. function is -1 for one that is alone.
func (p *Planner) claimantOf(f *Function, w *wish, function int32) claimant {
	first := int32(len(p.edges))
	for c := range f.Candidates {
		m, ok := p.modelOf(&f.Candidates[c])
		if !ok || f.Background && !p.spare(m) {
			continue
		}
		e := edge{entry: -1, candidate: int32(c), cost: m.cost, gain: gainOf(f.Candidates[c].Gain), most: inf}
		if function >= 0 && (m.contended || f.Background) {
			e.entry, e.use = m.resource, m.use
		}
		e.efficiency = efficiency(e.gain, max(e.use, e.cost/w.budget))
		p.edges = append(p.edges, e)
		p.sortLast(int(first))
	}
	switch {
	case f.Mode == Shares:
		p.asWishedEdges(f, w, int(first), function >= 0 && w.budget == inf)
	case function >= 0 && f.Mode == One && w.budget == inf && !f.Background:
		p.wishFirst(p.edges[first:], int32(w.best))
	}
	return claimant{
		first: first, end: int32(len(p.edges)), next: first, function: function, queue: -1, mode: f.Mode,
		weight: w.weight, rate: w.rate, rest: w.rate, left: w.budget, budget: w.budget,
	}
}

// sortLast moves the last edge, of those from first on, before the ones that it precedes.
func (p *Planner) sortLast(first int) {
	at := len(p.edges) - 1
	e := p.edges[at]
	for ; at > first && precedes(&e, &p.edges[at-1]); at-- {
		p.edges[at] = p.edges[at-1]
	}
	p.edges[at] = e
}

// wishGain is the gain of a query that is answered by the candidate that the policy wishes for it: more than of any other.
const wishGain = 2

// asWishedEdges adds to the edges of f, from first on, a second one for each candidate that the policy wishes: it takes no
// more than that, and counts for more than one without a bound. So what has no room where it is wished goes where it gains
// most for its use, as with mode One, and what room is left brings it back. If before is true, wishes that leave room for
// those of everybody are claimed before anything else; not so, for the reason that wishFirst has, where another candidate is
// on the same device. The other wishes come last.
func (p *Planner) asWishedEdges(f *Function, w *wish, first int, before bool) {
	for c := range f.Candidates {
		at := first
		for at < len(p.edges) && p.edges[at].candidate != int32(c) {
			at++
		}
		if at == len(p.edges) {
			continue // it is not there
		}
		e := p.edges[at]
		if e.most = w.rate * w.shareOf(&f.Candidates[c]); e.most <= 0 {
			continue
		}
		e.gain = wishGain
		e.efficiency = -max(e.use, e.cost/w.budget) // behind all others, what takes least of anything first
		if before && !(e.entry >= 0 && (p.loads[e.entry].wished > p.loads[e.entry].size || siblings(p.edges[first:], &e))) {
			e.efficiency = inf
		}
		p.edges = append(p.edges, e)
		p.sortLast(first)
	}
}

// siblings reports whether any of the edges is of another candidate on the same device as e's.
func siblings(edges []edge, e *edge) bool {
	for i := range edges {
		if edges[i].entry == e.entry && edges[i].candidate != e.candidate {
			return true
		}
	}
	return false
}

// wishFirst puts the candidate with the largest gain before the others if there is room for everybody who wishes for its
// resource: mostly it would be given to him anyway, in the end. Not so where another candidate is on the same device: there
// what takes less of it must come first.
func (p *Planner) wishFirst(edges []edge, best int32) {
	at := 0
	for edges[at].candidate != best {
		at++
	}
	if at == 0 || edges[at].entry >= 0 && p.loads[edges[at].entry].wished > 1 {
		return
	}
	for i := range edges {
		if i != at && edges[at].entry >= 0 && edges[i].entry == edges[at].entry {
			return
		}
	}
	e := edges[at]
	copy(edges[1:at+1], edges[:at])
	edges[0] = e
}

// efficiency is gain/dominant; what takes nothing of anything is the most efficient, unless it gains nothing.
func efficiency(gain, dominant float64) float64 {
	switch {
	case gain <= 0:
		return 0
	case dominant <= 0:
		return inf
	}
	return gain / dominant
}

// precedes reports whether a is more efficient than b; of equals, with the larger gain.
func precedes(a, b *edge) bool {
	if a.efficiency != b.efficiency {
		return a.efficiency > b.efficiency
	}
	if a.gain != b.gain {
		return a.gain > b.gain
	}
	return a.use < b.use
}

// content reports whether the claimant's queries have the best answers that it could wish for.
func (p *Planner) content(c *claimant) bool {
	best, x := 0.0, 0.0
	for i := c.first; i < c.end; i++ {
		e := &p.edges[i]
		switch {
		case c.mode == All && e.x < c.rate*(1-few):
			return false
		case e.gain > best:
			best, x = e.gain, e.x
		case e.gain == best:
			x += e.x
		}
	}
	return x >= c.rate*(1-few)
}
