package placement

// contend divides resources that do not suffice for all. It settles one replica after the other, the best claim first,
// whether it runs already or would have to be started. Each claim finds what better claims have left of the budgets. A
// running replica without room at its turn is evicted and becomes a claim to be started somewhere.
//
// Therefore, on one node, a plan for a finished plan changes nothing. Compare the order of claims in the first and in
// the second plan: what was granted now runs and is ordered at the same place or earlier; what was refused does not run
// and is ordered at the same place or later. As long as everything settled in the second plan is a subset of what the
// first granted, the next granted claim finds room, because all granted claims fit together. The next refused claim
// finds none, because all claims that preceded it then precede it now.
//
// On several nodes they precede it, but perhaps on other nodes, because it is not recorded which of a model's replicas
// was its first. So the second plan may find room for a claim that the first refused. It then grants everything that
// was granted with a better claim, and that claim too: in the order of claims each plan is equal to the previous one or
// better, and there are finitely many. So the planner repeats until nothing changes.
func (p *Planner) contend() {
	p.sorted, p.changed = false, false
	p.unsettle()
	t := &p.contest
	t.models, t.claims = p.in.Models, t.claims[:0]
	for i := range p.models {
		if m := &p.models[i]; !m.closed && m.granted < m.wanted && (m.left > 0 || !m.neverFits && p.hasRoom(m)) {
			t.claims = append(t.claims, p.claim(int32(i), m.granted, m.left > 0))
		}
	}
	for c := t.start(); c != nil; c = t.play() {
		i := c.model
		m := &p.models[i]
		refused := false
		if m.left == 0 {
			// Settled replicas are never taken back, so there will be no room for another one either.
			refused = m.neverFits || !p.start(int(i))
		} else if !p.stay(int(i)) {
			p.evict(int(i))
		}
		if refused || m.granted == m.wanted {
			*c = noClaim
		} else {
			*c = p.claim(i, m.granted, m.left > 0)
		}
	}
}

// hasRoom reports whether settled replicas leave room for one more replica that would have to be started. A model
// without room now gets none later. In a repeated plan, all models that lack replicas were refused before, so only
// nodes with unsettled replicas can have more room than then.
func (p *Planner) hasRoom(m *model) bool {
	for j := range p.nodes {
		if n := &p.nodes[j]; (n.unsettled > 0 || !p.again) && m.needs.within(&n.room) {
			return true
		}
	}
	return false
}

// exact is the limit up to which float64 represents all integers. Beyond it, subtracting from a sum may not restore the
// earlier value.
const exact = 1 << 53

// unsettle keeps those running replicas settled whose claim is better than any claim that would have to be started.
// There is room for all of them, so their order does not matter. Mostly they are nearly everything.
func (p *Planner) unsettle() {
	best := uint64(0)
	if !p.overdrawn() {
		best = ^best
	}
	inexact := false
	for j := range p.nodes {
		p.nodes[j].unsettled = 0
		for _, used := range p.nodes[j].used {
			inexact = inexact || used > exact
		}
	}
	for i := range p.models {
		m := &p.models[i]
		switch {
		case m.closed:
		case m.takes == (amounts{}):
			p.settleFree(i)
		case m.granted < m.wanted && !m.neverFits:
			best = min(best, m.rank(m.granted, false))
		}
	}
	for i := range p.models {
		m := &p.models[i]
		if m.closed || m.granted == 0 || m.rank(m.granted-1, true) < best {
			continue // the claims to its earlier replicas are no worse
		}
		count := int32(0)
		for m.rank(count, true) < best {
			count++
		}
		row, left := p.placed(i), p.row(i)
		for _, j := range p.holding(row) {
			p.nodes[j].used.add(&m.takes, -float64(row[j]))
			p.nodes[j].unsettled++
		}
		copy(left, row)
		clear(row)
		m.granted, m.left = 0, m.granted
		for range count {
			p.stay(i)
		}
	}
	if inexact {
		p.count()
	}
	for j := range p.nodes {
		p.nodes[j].countRoom()
	}
}

// settleFree grants everything wanted to a model whose replicas take nothing.
func (p *Planner) settleFree(i int) {
	m := &p.models[i]
	m.closed = true
	if lack := m.wanted - m.granted; lack > 0 && len(p.nodes) > 0 {
		at := 0
		for j := range p.nodes {
			if p.before(j, at) {
				at = j
			}
		}
		p.placed(i)[at] += lack
		m.granted += lack
	}
}

// stay settles one of a model's replicas where it runs: on the node with the most spare room among those where it is
// unlikely to be evicted.
func (p *Planner) stay(i int) bool {
	m, row := &p.models[i], p.row(i)
	at, most, safe := -1, 0.0, false
	for _, j := range p.holding(row) {
		n := &p.nodes[j]
		if !m.needs.fits(&n.used, &n.limit) {
			continue
		}
		stays := row[j] > p.going(i, int(j))
		if at < 0 || stays && !safe || stays == safe && (n.spare > most || n.spare == most && p.before(int(j), at)) {
			at, most, safe = int(j), n.spare, stays
		}
	}
	if at < 0 {
		return false
	}
	n := &p.nodes[at]
	n.settle(&m.takes)
	if !safe { // its room was counted as free
		n.take(&m.takes, 1)
	}
	if p.sorted {
		v := p.place(i, at)
		if !safe {
			v.goes--
		} else if v.stays--; v.stays == 0 {
			p.updateWeakest(n)
		}
	}
	row[at]--
	m.left--
	p.grant(i, at)
	return true
}

// evict gives up a model's running replicas that are not settled, because there is no room left for any of them.
func (p *Planner) evict(i int) {
	p.changed = true
	m, row := &p.models[i], p.row(i)
	for _, j := range p.holding(row) {
		n, going := &p.nodes[j], int32(0)
		if p.sorted {
			v := p.place(i, int(j))
			going, v.stays, v.goes = v.goes, 0, 0
			p.updateWeakest(n)
		}
		n.take(&m.takes, -float64(row[j]-going))
		row[j] = 0
	}
	m.left = 0
}

// start settles a replica that is to be started: where it fits best beside everything that is likely to stay, else
// where the evicted claims are worth least. It returns false if better claims have left no room.
func (p *Planner) start(i int) bool {
	m := &p.models[i]
	rooms, free := p.rooms(m)
	if len(rooms) == 0 {
		return false
	}
	var at int
	if free {
		at = p.bestFit(m, rooms)
	} else {
		at = p.leastLoss(m, rooms)
	}
	n := &p.nodes[at]
	n.settle(&m.takes)
	n.take(&m.takes, 1)
	n.started, p.changed = true, true
	for d := range m.takes {
		if m.takes[d] > 0 {
			n.limit[d] = n.budget[d]
		}
	}
	p.grant(i, at)
	return true
}

func (p *Planner) grant(i, at int) {
	p.models[i].granted++
	p.placed(i)[at]++
}
