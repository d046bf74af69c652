package planner

// placeEntries makes one entry for each claimant at each resource that it could use, grouped by resource.
func (p *Planner) placeEntries() {
	sum := int32(0)
	for _, at := range p.places {
		r := &p.loads[at]
		r.first, r.place = sum, sum
		sum += r.end
		r.end, r.holder = sum, -1
	}
	p.entries = resize(p.entries, int(sum))
	for c := range p.claimants {
		cl := &p.claimants[c]
		edges := p.edges[cl.first:cl.end]
		for i := range edges {
			e := &edges[i]
			if e.resource < 0 {
				continue
			}
			r := &p.loads[e.resource]
			if r.holder != int32(c) {
				r.holder = int32(c)
				en := &p.entries[r.place]
				en.claimant, en.resource, en.weight, en.used, en.claim, en.share = int32(c), e.resource, cl.weight, 0, 0, 0
				r.place++
			}
			e.entry = r.place - 1
		}
	}
	p.active = p.active[:0]
	for c := range p.claimants {
		p.active = append(p.active, int32(c))
	}
}

// cover finds an answer for as many queries as it can. Every claimant claims time for all its unanswered queries at its
// most efficient candidate. A resource keeps the claims below its water level and rejects the rest, including claims
// that it accepted before. The claimant claims what was rejected at its next candidate. This is the deferred acceptance
// of Gale and Shapley (1962) with divisible places: when no claims are left, no claimant is refused at a resource where
// another claimant has more for its weight.
func (p *Planner) cover() {
	p.touched = p.touched[:0]
	p.active = p.claimAll(p.active[:0], p.active)
	for round := 0; len(p.active) > 0; round++ {
		mayTake := round < rounds
		p.cut = p.cut[:0]
		for _, r := range p.touched {
			p.level(&p.loads[r], mayTake)
		}
		p.touched = p.touched[:0]
		still := p.active[:0]
		for _, at := range p.active {
			c := &p.claimants[at]
			if c.waiting = p.accept(c, mayTake) && p.claim(c); c.waiting {
				still = append(still, at)
			}
		}
		p.active = p.claimAll(still, p.cut)
	}
}

// claimAll lets all claimants in list claim, and adds those with a claim to active.
func (p *Planner) claimAll(active, list []int32) []int32 {
	for _, at := range list {
		c := &p.claimants[at]
		if c.waiting {
			continue
		}
		if c.waiting = p.claim(c); c.waiting {
			active = append(active, at)
		}
	}
	return active
}

// again activates the claimants with unanswered queries after others have made room. It reports whether there are any.
func (p *Planner) again() bool {
	p.active = p.active[:0]
	for c := range p.claimants {
		cl := &p.claimants[c]
		if cl.rest > cl.negligible {
			cl.next = cl.first
			p.active = append(p.active, int32(c))
		}
	}
	return len(p.active) > 0
}

// affordable returns how many of y queries/s the claimant's remaining budget affords at the given cost for each.
func (c *claimant) affordable(y, cost float64) float64 {
	if cost > 0 {
		y = min(y, max(0, c.left/cost))
	}
	return y
}

// take gives y queries/s to an edge and returns how much of its resource they use.
func (c *claimant) take(e *edge, y float64) float64 {
	e.x += y
	if e.cost > 0 {
		c.left = max(0, c.left-y*e.cost)
	}
	return y * e.use
}

// claim claims time for the unanswered queries at the next affordable candidate. It reports whether there is one.
// Candidates without data take what they are given. Where the claimant already has as much as the level allows, it goes
// on to the next candidate at once: the claim would not move the water level, because only claimants below the level
// move it.
func (p *Planner) claim(c *claimant) bool {
	if c.restart {
		c.next, c.restart = c.first, false
	}
	for ; c.next < c.end && c.rest > c.negligible; c.next++ {
		e := &p.edges[c.next]
		y := min(c.rest, e.most-e.x)
		if e.cost > 0 {
			y = c.affordable(y, e.cost)
		}
		if y <= c.negligible {
			continue
		}
		if e.resource < 0 {
			c.take(e, y)
			if c.rest -= y; c.rest <= c.negligible {
				break // it would take more, should some be taken back elsewhere
			}
			continue
		}
		en, r := &p.entries[e.entry], &p.loads[e.resource]
		if en.used > r.cut*en.weight-roundingError {
			continue
		}
		en.claim = y * e.use
		c.claimed, c.asks = en.claim, y
		p.touch(e.resource, en.claim)
		return true
	}
	return false
}

// roundingError: parts of a resource are equal if they differ by no more.
const roundingError = 1e-13

// touch adds a claim to a resource's claims of this round.
func (p *Planner) touch(at int32, claim float64) {
	r := &p.loads[at]
	if !r.touched {
		r.touched, r.claims = true, 0
		p.touched = append(p.touched, at)
	}
	r.claims += claim
}

// level finds the level up to which r can satisfy its claims. If r is overloaded and mayTake is set, it takes back what
// lies above the level.
func (p *Planner) level(r *resource, mayTake bool) {
	r.touched = false
	r.level = inf
	if r.load+r.claims <= r.size {
		return
	}
	entries := p.entries[r.first:r.end]
	if !mayTake {
		p.flows = p.flows[:0]
		for i := range entries {
			if en := &entries[i]; en.claim > 0 {
				p.flows = append(p.flows, flow{en.weight, en.used, en.claim})
			}
		}
		r.level = waterLevel(p.flows, r.size-r.load)
		return
	}
	r.level = takingLevel(entries, r.size, r.cut)
	r.cut = r.level
	for i := range entries {
		if en := &entries[i]; en.used > r.level*en.weight+roundingError {
			p.takeBack(r, r.first+int32(i), en.used-r.level*en.weight)
		}
	}
}

// takeBack takes time of the resource from an entry, from the claimant's least efficient candidates first.
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
		c.restart = true // it may afford now what it could not afford before
	}
	if !c.waiting {
		p.cut = append(p.cut, en.claimant)
	}
}

// accept gives the claimant what the level allows of its claim. It reports whether the claimant has more to claim
// elsewhere.
func (p *Planner) accept(c *claimant, mayTake bool) bool {
	e := &p.edges[c.next]
	en, r := &p.entries[e.entry], &p.loads[e.resource]
	y := c.asks
	if part := given(r.level, en.weight, en.used, en.claim); part < en.claim {
		y = min(part/e.use, c.rest)
		if mayTake && en.claim-part > negligible*c.claimed {
			c.next++
		}
	}
	en.claim = 0
	used := c.take(e, y)
	c.rest -= y
	en.used += used
	r.load += used
	if !mayTake {
		c.next++ // in every round, so that they end
		c.restart = false
	}
	return c.rest > c.negligible && (c.next < c.end || c.restart)
}
