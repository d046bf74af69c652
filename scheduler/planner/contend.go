package planner

import (
	"math"
)

var inf = math.Inf(1)

// claimant is a function that contends for full resources, or a direct sub-queue, which acts as a function with one
// candidate.
type claimant struct {
	first, end int32 // its edges, the most efficient first
	next       int32 // the edge that it claims now
	function   int32 // index of Input.Functions; -1: a direct sub-queue
	queue      int32 // of a direct sub-queue: index of Planner.queues
	mode       Mode
	weight     float64
	rate       float64
	negligible float64 // amounts of rate up to this are negligible
	rest       float64 // of rate: unanswered so far
	left       float64 // of the budget; +Inf without one
	budget     float64
	claimed    float64 // time of the resource claimed in this round
	asks       float64 // claimed in queries/s
	waiting    bool    // it is in Planner.active
	restart    bool    // restart at the first edge
	siblings   bool    // two of its candidates are on one device
}

// edge is one candidate of a claimant.
type edge struct {
	entry     int32 // at resource
	resource  int32 // that an evaluation uses; -1: unknown
	candidate int32
	use       float64 // of the whole resource, for one query/s
	cost      float64
	gain      float64
	x         float64 // queries/s given so far
	most      float64 // queries/s that it takes at most; +Inf except for a policy's wishes, see asWishedEdges
	// efficiency is the gain divided by the largest part that a query/s takes of any resource or of the budget.
	efficiency float64
}

// entry is a claimant at a resource.
type entry struct {
	claimant, resource int32
	weight             float64
	used               float64 // parts of the resource
	claim              float64 // wanted beyond used, in this round
	share              float64 // what it may take, in this pass
}

// rounds bounds how often the claimants with rejected claims go on to their next candidates and may take from others
// there. In later rounds they take only what is free. That ends after at most as many rounds as a claimant has
// candidates.
const rounds = 12

// improvements is how many passes of better answers are made. A pass can use what an earlier pass gave up.
const improvements = 2

// group is a set of resources connected by functions that could use several of them. Groups share nothing.
type group struct {
	full     bool  // a resource of the group is overloaded
	function int32 // the first function that contends here; -1: none
	direct   int32 // the first direct sub-queue; -1: none
}

// contend divides the resources of every group with an overloaded resource, group by group: first an answer for every
// query, then better answers. See the package documentation.
func (p *Planner) contend() {
	p.group()
	p.gather()
	for i := range p.groups {
		if g := &p.groups[i]; g.function >= 0 || g.direct >= 0 {
			p.claimantsOf(g)
			p.share()
			p.settle()
		}
	}
}

// share divides the resources among the claimants.
func (p *Planner) share() {
	p.placeEntries()
	p.cover()
	p.unsatisfied = p.unsatisfied[:0]
	for c := range p.claimants {
		if cl := &p.claimants[c]; cl.end-cl.first > 1 && !p.satisfied(cl) {
			p.unsatisfied = append(p.unsatisfied, int32(c))
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
}

// group connects the resources that a function could use together, and marks the groups with an overloaded resource. A
// resource that could not be full at any demand connects nothing.
func (p *Planner) group() {
	n := len(p.asked)
	p.parent, p.groups = resize(p.parent, n), resize(p.groups, n)
	for i := range p.parent {
		r, g := &p.loads[i], &p.groups[i]
		*r, *g = resource{}, group{}
		r.size, r.slack, r.cut, r.holder = 1, p.asked[i].slack, inf, -1
		g.function, g.direct = -1, -1
		p.parent[i] = int32(i)
	}
	for i := range p.models {
		m := &p.models[i]
		m.scarce = m.resource >= 0 && p.asked[m.resource].most > 1-p.asked[m.resource].slack-negligible
	}
	for i := range p.wishes {
		w := &p.wishes[i]
		if w.rate == 0 || w.background {
			continue
		}
		root := int32(-1)
		for _, c := range p.candidates[w.first:w.end] {
			if c.model < 0 || !p.models[c.model].scarce {
				continue
			}
			other := p.root(p.models[c.model].resource)
			if root >= 0 && root != other {
				root, other = min(root, other), max(root, other)
				p.parent[other] = root
			} else {
				root = other
			}
		}
		w.root = root
	}
	for i := range p.asked {
		if p.asked[i].short() {
			p.groups[p.root(int32(i))].full = true
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

// gather lists, for each group with an overloaded resource, the contending functions and direct sub-queues in their
// order.
func (p *Planner) gather() {
	queues := 0
	for i := range p.models {
		m := &p.models[i]
		if m.contended = m.scarce && p.groups[p.root(m.resource)].full; m.contended {
			m.queueAt, m.queues = int32(queues), int32(len(p.in.Models[i].Queues))
			queues += len(p.in.Models[i].Queues)
		}
	}
	p.queues = resize(p.queues, queues)
	clear(p.queues)
	for i := len(p.direct) - 1; i >= 0; i-- {
		if d := &p.direct[i]; p.models[d.model].contended {
			g := &p.groups[p.root(p.models[d.model].resource)]
			d.following, g.direct = g.direct, int32(i)
		}
	}
	p.following = resize(p.following, len(p.wishes))
	for i := len(p.wishes) - 1; i >= 0; i-- {
		w := &p.wishes[i]
		if w.root < 0 {
			continue
		}
		if g := &p.groups[p.root(w.root)]; g.full {
			w.contended = true
			p.following[i], g.function = g.function, int32(i)
		}
	}
}

// claimantsOf makes claimants of all functions and direct sub-queues of a group.
func (p *Planner) claimantsOf(g *group) {
	p.claimants, p.edges, p.places = p.claimants[:0], p.edges[:0], p.places[:0]
	for i := g.direct; i >= 0; i = p.direct[i].following {
		d := &p.direct[i]
		m, iq := &p.models[d.model], &p.in.Models[d.model].Queues[d.queue]
		rate := number(iq.Rate)
		if rate == 0 {
			continue
		}
		first := int32(len(p.edges))
		p.edges = append(p.edges, edge{resource: m.resource, use: m.use, gain: 1, efficiency: inf, most: inf})
		p.claimants = append(p.claimants, claimant{
			first: first, end: first + 1, next: first, function: -1, queue: m.queueAt + d.queue,
			weight: weightOf(iq.Weight), rate: rate, negligible: negligible * rate, rest: rate, left: inf, budget: inf,
		})
		p.count()
	}
	for i := g.function; i >= 0; i = p.following[i] {
		p.claimantOf(int(i), &p.wishes[i], false)
		p.count()
	}
}

// count counts the entries of the last claimant: one at each resource that it could use. Two candidates on one device
// share an entry.
func (p *Planner) count() {
	last := int32(len(p.claimants) - 1)
	for i := p.claimants[last].first; i < p.claimants[last].end; i++ {
		at := p.edges[i].resource
		if at < 0 {
			continue
		}
		r := &p.loads[at]
		if r.holder == last {
			p.claimants[last].siblings = true
			continue
		}
		if r.holder < 0 {
			p.places = append(p.places, at)
		}
		r.holder = last
		r.end++
	}
}

// claimantOf adds a claimant for a function, with its edges in order of efficiency: gain divided by the dominant share,
// the largest part that a query per second takes of any resource or of the budget (Ghodsi et al., 2011). Resources that
// cannot be full count as unused. If alone is set, all resources do.
func (p *Planner) claimantOf(function int, w *wish, alone bool) *claimant {
	first := int32(len(p.edges))
	for c, cand := range p.candidates[w.first:w.end] {
		if cand.model < 0 {
			continue
		}
		m := &p.models[cand.model]
		if w.background && !p.spare(m) {
			continue
		}
		resource, use := int32(-1), 0.0
		if !alone && (m.contended || w.background) {
			resource, use = m.resource, m.use
		}
		dominant := use
		if w.budget < inf {
			dominant = max(dominant, m.cost/w.budget)
		}
		e := extend(&p.edges) // field by field: a literal would be built elsewhere and copied, which costs four times as much
		e.entry, e.resource, e.candidate, e.use, e.cost, e.gain, e.x, e.most = 0, resource, int32(c), use, m.cost, cand.gain, 0, inf
		e.efficiency = efficiency(cand.gain, dominant)
		p.sortLast(int(first))
	}
	switch {
	case w.mode == Shares:
		p.asWishedEdges(&p.in.Functions[function], w, int(first), !alone && w.budget == inf)
	case !alone && w.mode == One && w.budget == inf && !w.background:
		p.wishFirst(p.edges[first:], w.best)
	}
	c := extend(&p.claimants)
	c.first, c.end, c.next, c.function, c.queue, c.mode = first, int32(len(p.edges)), first, int32(function), -1, w.mode
	c.weight, c.rate, c.negligible, c.rest, c.left, c.budget = w.weight, w.rate, negligible*w.rate, w.rate, w.budget, w.budget
	c.claimed, c.asks, c.waiting, c.restart, c.siblings = 0, 0, false, false, false
	return c
}

// sortLast sorts the last edge into the sorted edges from first on.
func (p *Planner) sortLast(first int) {
	at := len(p.edges) - 1
	if at == first || !precedes(&p.edges[at], &p.edges[at-1]) {
		return
	}
	e := p.edges[at]
	for ; at > first && precedes(&e, &p.edges[at-1]); at-- {
		p.edges[at] = p.edges[at-1]
	}
	p.edges[at] = e
}

// wishGain is the gain of a query at the candidate that the policy wishes. It exceeds every other gain.
const wishGain = 2

// asWishedEdges adds, to the edges of f from first on, a second edge for each candidate that the policy wishes. It is
// limited to the wished rate and has a larger gain than the unlimited edge. So queries without room at the wished
// candidate go where they gain most for their use, as with mode One, and return when there is room. If before is true,
// a wish is claimed before anything else if all wishes for its resource fit and, for the reason given at wishFirst, no
// other candidate is on the same device. The other wishes come last.
func (p *Planner) asWishedEdges(f *Function, w *wish, first int, before bool) {
	for c := range f.Candidates {
		at := first
		for at < len(p.edges) && p.edges[at].candidate != int32(c) {
			at++
		}
		if at == len(p.edges) {
			continue // it has no replica
		}
		e := p.edges[at]
		if e.most = w.rate * w.shareOf(&f.Candidates[c]); e.most <= 0 {
			continue
		}
		e.gain = wishGain
		e.efficiency = -max(e.use, e.cost/w.budget) // after all others, the least use first
		if before && !(e.resource >= 0 && (p.asked[e.resource].wished > p.loads[e.resource].size || siblings(p.edges[first:], &e))) {
			e.efficiency = inf
		}
		p.edges = append(p.edges, e)
		p.sortLast(first)
	}
}

// siblings reports whether any edge belongs to another candidate on the same device as e's.
func siblings(edges []edge, e *edge) bool {
	for i := range edges {
		if edges[i].resource == e.resource && edges[i].candidate != e.candidate {
			return true
		}
	}
	return false
}

// wishFirst moves the candidate with the largest gain to the front if all wishes for its resource fit: in most cases
// the claimant would be given it in the end. It does not move a candidate that shares its device with another one,
// because there the candidate with the smaller use must come first.
func (p *Planner) wishFirst(edges []edge, best int32) {
	at := 0
	for edges[at].candidate != best {
		at++
	}
	if at == 0 || edges[at].resource >= 0 && p.asked[edges[at].resource].wished > 1 {
		return
	}
	for i := range edges {
		if i != at && edges[at].resource >= 0 && edges[i].resource == edges[at].resource {
			return
		}
	}
	e := edges[at]
	copy(edges[1:at+1], edges[:at])
	edges[0] = e
}

// efficiency returns gain/dominant. A candidate that uses nothing is the most efficient, unless its gain is 0.
func efficiency(gain, dominant float64) float64 {
	switch {
	case gain <= 0:
		return 0
	case dominant <= 0:
		return inf
	}
	return gain / dominant
}

// precedes reports whether a is more efficient than b. Ties go to the larger gain, then to the smaller use.
func precedes(a, b *edge) bool {
	if a.efficiency != b.efficiency {
		return a.efficiency > b.efficiency
	}
	if a.gain != b.gain {
		return a.gain > b.gain
	}
	return a.use < b.use
}

// satisfied reports whether the claimant's queries already have the best answers it could wish for.
func (p *Planner) satisfied(c *claimant) bool {
	best, x := 0.0, 0.0
	for i := c.first; i < c.end; i++ {
		e := &p.edges[i]
		switch {
		case c.mode == All && e.x < c.rate*(1-negligible):
			return false
		case e.gain > best:
			best, x = e.gain, e.x
		case e.gain == best:
			x += e.x
		}
	}
	return x >= c.rate*(1-negligible)
}
