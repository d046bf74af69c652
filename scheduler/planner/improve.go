package planner

import "math"

// worthwhile is the part of a claimant's queries that a pass must move to make another pass worthwhile.
const worthwhile = 0.01

// improve uses the remaining room for better answers: with mode One queries move from worse candidates to better ones,
// with mode All more members evaluate them. Each resource's room is divided among the claimants that could use it. Each
// claimant then spends its shares where it gains most. improve reports whether that was worthwhile.
func (p *Planner) improve() bool {
	p.touched = p.touched[:0]
	unsatisfied := p.unsatisfied[:0]
	for _, c := range p.unsatisfied {
		if p.want(&p.claimants[c]) {
			unsatisfied = append(unsatisfied, c)
		}
	}
	p.unsatisfied = unsatisfied
	for _, at := range p.touched {
		r := &p.loads[at]
		r.touched = false
		r.level = p.levelFor(r, r.size-r.load)
		if r.memberLevel = r.level; r.slack > 0 {
			r.memberLevel = p.levelFor(r, r.size-r.slack-r.load)
		}
	}
	moved := false
	for _, c := range unsatisfied {
		cl := &p.claimants[c]
		for i := cl.first; i < cl.end; i++ {
			if e := &p.edges[i]; e.resource >= 0 {
				if en := &p.entries[e.entry]; en.claim > 0 {
					level := p.loads[en.resource].level
					if cl.mode == All {
						level = p.loads[en.resource].memberLevel
					}
					en.share = given(level, en.weight, en.used, en.claim)
				}
			}
		}
		moved = p.spend(cl) > worthwhile*cl.rate || moved
		for i := cl.first; i < cl.end; i++ {
			if e := &p.edges[i]; e.resource >= 0 {
				en := &p.entries[e.entry]
				en.claim, en.share = 0, 0
			}
		}
	}
	return moved
}

// levelFor returns the level up to which the claims at r can be filled with the given room.
func (p *Planner) levelFor(r *resource, room float64) float64 {
	switch {
	case room <= negligible:
		return 0
	case r.claims <= room:
		return inf
	}
	p.flows = p.flows[:0]
	for i := r.first; i < r.end; i++ {
		if en := &p.entries[i]; en.claim > 0 {
			p.flows = append(p.flows, flow{en.weight, en.used, en.claim})
		}
	}
	return waterLevel(p.flows, room)
}

// want claims, at each resource, what the claimant could use there for better answers. It reports whether there is any.
func (p *Planner) want(c *claimant) bool {
	wants := false
	edges := p.edges[c.first:c.end]
	for i := range edges {
		e := &edges[i]
		room := 0.0
		if e.resource >= 0 {
			r := &p.loads[e.resource]
			room = r.size - r.load
			if c.mode == All {
				room -= r.slack
			}
			if room <= negligible && !c.siblings {
				continue
			}
		}
		y := 0.0
		if c.mode == All {
			y = c.rate - e.x
		} else {
			for j := range edges {
				s := &edges[j]
				y += math.Float64frombits(signs(s.gain-e.gain) & math.Float64bits(s.x)) // of edges with a smaller gain
			}
			wants = wants || c.siblings && swaps(edges, e)
		}
		if y = min(y, e.most-e.x); y <= negligible*c.rate {
			continue
		}
		if e.resource < 0 {
			wants = true
			continue
		}
		if room <= negligible {
			continue
		}
		wants = true
		en := &p.entries[e.entry]
		// Several candidates on one device: the claimant spends its share on one of them, with mode All on each.
		claim := y * e.use
		if c.mode.picksOne() {
			claim = max(0, claim-en.claim)
		}
		en.claim += claim
		p.touch(e.resource, claim)
	}
	return wants
}

// swaps reports whether queries could move from a slower candidate to e, a better one on the same device, at no cost.
func swaps(edges []edge, e *edge) bool {
	for i := range edges {
		s := &edges[i]
		if s.gain < e.gain && e.resource >= 0 && s.resource == e.resource && s.x > 0 && s.use >= e.use && e.x < e.most {
			return true
		}
	}
	return false
}

// room returns how much of edge e's resource the claimant may still take, +Inf without data.
func (p *Planner) room(e *edge) float64 {
	if e.resource < 0 {
		return inf
	}
	return p.entries[e.entry].share
}

// add gives y queries/s to an edge, from the claimant's share of its resource.
func (p *Planner) add(c *claimant, e *edge, y float64) {
	used := c.take(e, y)
	if e.resource >= 0 {
		en := &p.entries[e.entry]
		en.used += used
		en.share -= used
		r := &p.loads[en.resource]
		r.load += used
		r.cut = inf
	}
}

// remove takes y queries/s from an edge and frees their time.
func (p *Planner) remove(c *claimant, e *edge, y float64) {
	e.x = max(0, e.x-y)
	c.left += y * e.cost
	if e.resource >= 0 {
		en := &p.entries[e.entry]
		en.used = max(0, en.used-y*e.use)
		r := &p.loads[en.resource]
		r.load -= y * e.use
		r.cut = inf
	}
}

// spend spends a claimant's shares on better answers and returns the number of queries/s improved.
func (p *Planner) spend(c *claimant) float64 {
	if c.mode == All {
		return p.spendOnMembers(c)
	}
	moved := 0.0
	for range 4 * (c.end - c.first) { // each step but the last uses up a candidate's queries, a share or the budget
		y := p.upgrade(c)
		if y == 0 {
			break
		}
		moved += y
	}
	return moved
}

// spendOnMembers lets more candidates evaluate every query, the most efficient first. With the noisy-or utility 1 − Π(1
// − gain), a further member adds its own gain times what the others leave over, so the order does not depend on which
// members are in already.
func (p *Planner) spendOnMembers(c *claimant) float64 {
	moved := 0.0
	for i := c.first; i < c.end; i++ {
		e := &p.edges[i]
		if e.gain == 0 && e.cost > 0 && c.budget < inf {
			continue
		}
		y := c.affordable(c.rate-e.x, e.cost)
		if e.resource >= 0 {
			y = min(y, p.room(e)/e.use)
		}
		if y > negligible*c.rate {
			p.add(c, e, y)
			moved += y
		}
	}
	return moved
}

// upgrade moves as many queries as it can from one candidate to a better one and returns how many. It chooses the pair
// that gains most for its additional use. This is the greedy solution of the multiple-choice knapsack problem (Sinha
// and Zoltners, 1979), which walks along the convex hull of the candidates by gain and use.
func (p *Planner) upgrade(c *claimant) float64 {
	var from, to *edge
	var best, amount float64
	for i := c.first; i < c.end; i++ {
		s := &p.edges[i]
		if s.x <= negligible*c.rate {
			continue
		}
		for j := c.first; j < c.end; j++ {
			t := &p.edges[j]
			if t.gain <= s.gain {
				continue
			}
			use := t.use
			if s.resource == t.resource {
				use -= s.use
			}
			y := min(s.x, t.most-t.x)
			if use > 0 && t.resource >= 0 {
				y = min(y, p.room(t)/use)
			}
			y = c.affordable(y, t.cost-s.cost)
			if y <= negligible*c.rate {
				continue
			}
			e := efficiency(t.gain-s.gain, max(use, (t.cost-s.cost)/c.budget))
			if from == nil || e > best || e == best && t.gain-s.gain > to.gain-from.gain {
				from, to, best, amount = s, t, e, y
			}
		}
	}
	if from == nil {
		return 0
	}
	same := from.resource == to.resource && to.resource >= 0
	p.remove(c, from, amount)
	if same {
		p.entries[to.entry].share += amount * from.use
	}
	p.add(c, to, amount)
	return amount
}
