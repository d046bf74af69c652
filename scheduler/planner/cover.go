package planner

// placeEntries makes one entry for each claimant at each resource that it could use, grouped by resource.
func (p *Planner) placeEntries() {
	for i := range p.loads {
		r := &p.loads[i]
		r.end, r.holder, r.load = 0, -1, 0
	}
	// Count them (holder: a claimant with two candidates on one device has one entry there), then give each its place.
	for c := range p.claimants {
		for i := p.claimants[c].first; i < p.claimants[c].end; i++ {
			if at := p.edges[i].entry; at >= 0 && p.loads[at].holder != int32(c) {
				p.loads[at].holder = int32(c)
				p.loads[at].end++
			}
		}
	}
	sum := int32(0)
	for i := range p.loads {
		r := &p.loads[i]
		r.first, r.place = sum, sum
		sum += r.end
		r.end, r.holder = sum, -1
	}
	p.entries = resize(p.entries, int(sum))
	for c := range p.claimants {
		cl := &p.claimants[c]
		for i := cl.first; i < cl.end; i++ {
			at := p.edges[i].entry
			if at < 0 {
				continue
			}
			r := &p.loads[at]
			if r.holder != int32(c) {
				r.holder = int32(c)
				p.entries[r.place] = entry{claimant: int32(c), resource: at, weight: cl.weight}
				r.place++
			}
			p.edges[i].entry = r.place - 1
		}
	}
	p.active = p.active[:0]
	for c := range p.claimants {
		p.claimants[c].waiting = true
		p.active = append(p.active, int32(c))
	}
}

// cover finds an answer for as many queries as it can. Every claimant claims time for all its unanswered queries at its most
// efficient candidate. A resource keeps what lies below its water level and rejects the rest, also of what it has accepted
// before; what is rejected is claimed at the next candidate. That is the deferred acceptance of Gale and Shapley (1962) with
// divisible places: when nobody has claims left, nobody is refused at a resource where somebody else has more for his weight.
func (p *Planner) cover() {
	for round := 0; len(p.active) > 0; round++ {
		mayTake := round < rounds
		p.touched = p.touched[:0]
		for _, c := range p.active {
			p.claim(&p.claimants[c])
		}
		p.cut = p.cut[:0]
		for _, r := range p.touched {
			p.level(&p.loads[r], mayTake)
		}
		still := p.active[:0]
		for _, c := range p.active {
			if p.accept(&p.claimants[c], mayTake) {
				still = append(still, c)
			} else {
				p.claimants[c].waiting = false
			}
		}
		for _, c := range p.cut {
			if cl := &p.claimants[c]; !cl.waiting {
				cl.waiting = true
				still = append(still, c)
			}
		}
		p.active = still
	}
}

// again makes those active who have queries that nobody answers, after others have made room; it reports whether there are any.
func (p *Planner) again() bool {
	p.active = p.active[:0]
	for c := range p.claimants {
		cl := &p.claimants[c]
		if cl.rest > few*cl.rate {
			cl.next, cl.waiting = cl.first, true
			p.active = append(p.active, int32(c))
		}
	}
	return len(p.active) > 0
}

// affordable is how many queries/s of y the claimant's budget has left at that cost for each.
func (c *claimant) affordable(y, cost float64) float64 {
	if cost > 0 {
		y = min(y, max(0, c.left/cost))
	}
	return y
}

// take gives y queries/s to an edge and returns what that uses of its resource.
func (c *claimant) take(e *edge, y float64) float64 {
	e.x += y
	if e.cost > 0 {
		c.left = max(0, c.left-y*e.cost)
	}
	return y * e.use
}

// claim claims time for the unanswered queries at the next candidate that the budget affords. Candidates of which nothing is
// known take what they are given.
func (p *Planner) claim(c *claimant) {
	c.claimed = 0
	if c.afresh {
		c.next, c.afresh = c.first, false
	}
	for ; c.next < c.end && c.rest > few*c.rate; c.next++ {
		e := &p.edges[c.next]
		y := c.affordable(min(c.rest, e.most-e.x), e.cost)
		if y <= few*c.rate {
			continue
		}
		if e.entry < 0 {
			c.take(e, y)
			if c.rest -= y; c.rest <= few*c.rate {
				return // it would take more, should some be taken back elsewhere
			}
			continue
		}
		en := &p.entries[e.entry]
		en.claim = y * e.use
		c.claimed = en.claim
		p.touch(en.resource, en.claim)
		return
	}
}

func (p *Planner) touch(at int32, claim float64) {
	r := &p.loads[at]
	if !r.touched {
		r.touched, r.claims = true, 0
		p.touched = append(p.touched, at)
	}
	r.claims += claim
}

// level finds how much of the claims at r there is room for. Where there is not enough, it takes back what lies above the
// level if it may.
func (p *Planner) level(r *resource, mayTake bool) {
	r.touched = false
	r.level = inf
	if r.load+r.claims <= r.size {
		return
	}
	entries := p.entries[r.first:r.end]
	p.flows = p.flows[:0]
	for i := range entries {
		en := &entries[i]
		switch {
		case mayTake && en.used+en.claim > 0:
			p.flows = append(p.flows, flow{en.weight, 0, en.used + en.claim})
		case !mayTake && en.claim > 0:
			p.flows = append(p.flows, flow{en.weight, en.used, en.claim})
		}
	}
	if !mayTake {
		r.level = waterLevel(p.flows, r.size-r.load)
		return
	}
	r.level = waterLevel(p.flows, r.size)
	for i := range entries {
		if en := &entries[i]; en.used > r.level*en.weight {
			p.takeBack(r, r.first+int32(i), en.used-r.level*en.weight)
		}
	}
}

// takeBack takes time of the resource from an entry, from its least efficient candidates first.
func (p *Planner) takeBack(r *resource, at int32, time float64) {
	en := &p.entries[at]
	c := &p.claimants[en.claimant]
	for i := c.end - 1; i >= c.first && time > 0; i-- {
		e := &p.edges[i]
		if e.entry != at || e.x <= 0 {
			continue
		}
		y := min(e.x, time/e.use)
		e.x -= y
		c.rest += y
		c.left += y * e.cost
		time -= y * e.use
		en.used = max(0, en.used-y*e.use)
		r.load -= y * e.use
	}
	if c.budget < inf {
		c.afresh = true // what it could not afford it may afford now
	}
	if !c.waiting {
		p.cut = append(p.cut, en.claimant)
	}
}

// accept gives the claimant what the level allows of its claim; it reports whether it has more to claim elsewhere.
func (p *Planner) accept(c *claimant, mayTake bool) bool {
	if c.claimed > 0 {
		e := &p.edges[c.next]
		en := &p.entries[e.entry]
		r := &p.loads[en.resource]
		part := given(r.level, en.weight, en.used, en.claim)
		if en.claim -= part; mayTake && en.claim > few*c.claimed {
			c.next++
		}
		en.claim = 0
		y := min(part/e.use, c.rest)
		used := c.take(e, y)
		c.rest -= y
		en.used += used
		r.load += used
	}
	if !mayTake {
		c.next++ // in every round, so that they end
		c.afresh = false
	}
	return c.rest > few*c.rate && (c.next < c.end || c.afresh)
}
