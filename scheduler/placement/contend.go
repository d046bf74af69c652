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
	p.settleBest()
	p.heap = p.heap[:0]
	for i := range p.models {
		if m := &p.models[i]; !m.closed && m.granted < m.wanted && (m.left > 0 || !m.never) {
			p.heap = append(p.heap, p.claim(int32(i), m.granted, m.left > 0))
		}
	}
	for at := len(p.heap)/2 - 1; at >= 0; at-- {
		p.sink(at)
	}
	for len(p.heap) > 0 {
		i := p.heap[0].model
		m := &p.models[i]
		refused := false
		if m.left == 0 {
			// What is settled is never taken back, so there will not be room for another one either.
			refused = m.never || !p.start(int(i))
		} else if !p.stay(int(i)) {
			p.evict(int(i))
		}
		if refused || m.granted == m.wanted {
			last := len(p.heap) - 1
			p.heap[0] = p.heap[last]
			if p.heap = p.heap[:last]; last == 0 {
				return
			}
		} else {
			p.heap[0] = p.claim(i, m.granted, m.left > 0)
		}
		p.sink(0)
	}
}

// settleBest settles what runs with a better claim than anything that would have to be started: there is room for all of
// that, so that its order does not matter, and mostly it is nearly everything.
func (p *Planner) settleBest() {
	best := uint64(0)
	if !p.overdrawn() {
		best = ^best
	}
	for i := range p.models {
		m := &p.models[i]
		switch {
		case m.closed:
		case m.takes == (amounts{}):
			p.settleFree(i)
		case m.left < m.wanted && !m.never:
			best = min(best, p.claim(int32(i), m.left, false).order)
		}
	}
	for i := range p.models {
		m := &p.models[i]
		if m.closed {
			continue
		}
		count := int32(0)
		for count < m.left && p.claim(int32(i), count, true).order < best {
			count++
		}
		if count == m.left {
			p.settleAll(i, p.row(i))
			m.granted, m.left = count, 0
			continue
		}
		for range count {
			p.stay(i)
		}
	}
}

// resume makes what was planned run.
func (p *Planner) resume() {
	for j := range p.nodes {
		p.nodes[j].reset()
	}
	nodes := len(p.nodes)
	for i := range p.models {
		m, placed := &p.models[i], p.out.Placed[i*nodes:(i+1)*nodes]
		if m.closed {
			for j, count := range placed {
				p.nodes[j].used.add(&m.takes, float64(count))
			}
			continue
		}
		copy(p.row(i), placed)
		clear(placed)
		m.left, m.granted = m.granted, 0
	}
	p.countFree()
}

// settleFree grants all that is wanted of what takes nothing.
func (p *Planner) settleFree(i int) {
	m, row := &p.models[i], p.row(i)
	p.settleAll(i, row)
	if lack := m.wanted - m.left; lack > 0 && len(p.nodes) > 0 {
		at := 0
		for j := range p.nodes {
			if p.before(j, at) {
				at = j
			}
		}
		p.out.Placed[i*len(p.nodes)+at] += lack
		m.left += lack
	}
	m.granted, m.left, m.closed = m.left, 0, true
}

// stay settles one of a model's replicas where it runs: on the node with the most to spare among those where it is not likely to be
// taken for others.
func (p *Planner) stay(i int) bool {
	m, row := &p.models[i], p.row(i)
	at, most, safe := -1, 0.0, false
	for j, left := range row {
		n := &p.nodes[j]
		if left == 0 || !m.takes.fits(&n.used, &n.limit) {
			continue
		}
		slack, stays := n.slack(&n.free, nil), left > p.going(i, j)
		if at < 0 || stays && !safe || stays == safe && (slack > most || slack == most && p.before(j, at)) {
			at, most, safe = j, slack, stays
		}
	}
	if at < 0 {
		return false
	}
	n := &p.nodes[at]
	n.used.add(&m.takes, 1)
	if !safe { // its room was counted as free
		n.free.add(&m.takes, -1)
		p.doomed[i*len(p.nodes)+at]--
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
	for j, left := range row {
		if left > 0 {
			p.nodes[j].free.add(&m.takes, float64(left-p.going(i, j)))
			row[j] = 0
		}
	}
	m.left = 0
}

// start settles a replica that is to be started: where it fits best beside all that is likely to stay, else where what goes
// for it is worth least. It reports false where better claims have left no room.
func (p *Planner) start(i int) bool {
	m := &p.models[i]
	at, least := -1, 0.0
	room, rooms := -1, 0
	for j := range p.nodes {
		n := &p.nodes[j]
		if !m.takes.fits(&n.used, &n.budget) {
			continue
		}
		room = j
		rooms++
		if !m.takes.within(&n.free) {
			continue
		}
		if unfit := n.unfit(&n.free, &m.takes); at < 0 || unfit < least || unfit == least && p.before(j, at) {
			at, least = j, unfit
		}
	}
	if at < 0 && rooms > 1 {
		at = p.leastLoss(m)
	} else if at < 0 {
		at = room
	}
	if at < 0 {
		return false
	}
	n := &p.nodes[at]
	n.used.add(&m.takes, 1)
	n.free.add(&m.takes, -1)
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
	p.out.Placed[i*len(p.nodes)+at]++
}
