package placement

// contend divides what is not enough for all. It settles one replica after the other, the best claim first, whether it runs
// already or would have to be started, and each finds what better claims have left of the budgets. What runs and finds no
// room when its turn comes is evicted, and becomes a claim to be started somewhere.
//
// That is why a plan of what was planned changes nothing on one node. Take the order of claims in the first plan, and in
// the second: what was granted now runs, and stands as early or earlier; what was refused does not run, and stands as late
// or later. As long as all those settled in the second plan are of those granted in the first, the next one that was
// granted finds room, because all of them together have; and the next one that was refused finds none, because all that
// were before it then are before it now.
//
// On several nodes they are before it now, but perhaps on other nodes, for nobody knows which of a model's replicas was its
// first; so that the second plan may find room for a claim that the first has refused. It then grants all that was granted
// with a better claim, and that one too: in the order of claims each plan is the same as the one before or better, and
// there are only so many. So it is planned again until nothing changes.
func (p *Planner) contend() {
	p.sorted, p.changed = false, false
	p.unsettle()
	t := &p.contest
	t.models, t.claims = p.in.Models, t.claims[:0]
	for i := range p.models {
		if m := &p.models[i]; !m.closed && m.granted < m.wanted && (m.left > 0 || !m.never && p.hasRoom(m)) {
			t.claims = append(t.claims, p.claim(int32(i), m.granted, m.left > 0))
		}
	}
	for c := t.start(); c != nil; c = t.play() {
		i := c.model
		m := &p.models[i]
		refused := false
		if m.left == 0 {
			// What is settled is never taken back, so there will not be room for another one either.
			refused = m.never || !p.start(int(i))
		} else if !p.stay(int(i)) {
			p.evict(int(i))
		}
		if refused || m.granted == m.wanted {
			*c = out
		} else {
			*c = p.claim(i, m.granted, m.left > 0)
		}
	}
}

// hasRoom reports whether what is settled leaves room for one more of what would have to be started: who has none now gets none later. In a
// plan that is planned again, all who lack something have been refused before, and only where something is not settled yet there can be more
// room than there was then.
func (p *Planner) hasRoom(m *model) bool {
	for j := range p.nodes {
		if n := &p.nodes[j]; (n.unsettled > 0 || !p.again) && m.needs.within(&n.room) {
			return true
		}
	}
	return false
}

// exact is up to where all whole numbers are float64: beyond it, what is taken away of a sum may leave another one than what was there before.
const exact = 1 << 53

// unsettle leaves settled what runs with a better claim than anything that would have to be started: there is room for all of
// that, so that its order does not matter, and mostly it is nearly everything.
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
		case m.granted < m.wanted && !m.never:
			best = min(best, m.rank(m.granted, false))
		}
	}
	for i := range p.models {
		m := &p.models[i]
		if m.closed || m.granted == 0 || m.rank(m.granted-1, true) < best {
			continue // and the claims to those before it are no worse
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

// settleFree grants all that is wanted of what takes nothing.
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

// stay settles one of a model's replicas where it runs: on the node with the most to spare among those where it is not likely to be
// taken for others.
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
			p.weaken(n)
		}
	}
	row[at]--
	m.left--
	p.grant(i, at)
	return true
}

// evict gives up what runs of a model and is not settled: there is no room left for any of it.
func (p *Planner) evict(i int) {
	p.changed = true
	m, row := &p.models[i], p.row(i)
	for _, j := range p.holding(row) {
		n, going := &p.nodes[j], int32(0)
		if p.sorted {
			v := p.place(i, int(j))
			going, v.stays, v.goes = v.goes, 0, 0
			p.weaken(n)
		}
		n.take(&m.takes, -float64(row[j]-going))
		row[j] = 0
	}
	m.left = 0
}

// start settles a replica that is to be started: where it fits best beside all that is likely to stay, else where what goes
// for it is worth least. It reports false where better claims have left no room.
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
