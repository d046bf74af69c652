package placement

import "slices"

// place is a model with replicas that run on a node; rank is its place among all that run, the weakest claim first.
type place struct{ model, rank int32 }

// maxVictims bounds how many models are looked at for one replica on one node. Whether there is room is not decided here,
// only on which node it is made.
const maxVictims = 64

// sort lists for each node what runs there, the weakest claim first: that of a model's last replica counts for all of them.
func (p *Planner) sort() {
	p.sorted = true
	nodes := len(p.nodes)
	p.doomed = resize(p.doomed, len(p.left))
	clear(p.doomed)
	p.spared = p.spared[:0]
	for j := range p.nodes {
		p.nodes[j].placesEnd = 0
	}
	all := 0
	for i := range p.models {
		m := &p.models[i]
		if m.left == 0 {
			continue
		}
		p.spared = append(p.spared, p.claim(int32(i), m.granted+m.left-1, true))
		for j, left := range p.row(i) {
			if left > 0 {
				p.nodes[j].placesEnd++
				all++
			}
		}
	}
	slices.SortFunc(p.spared, func(a, b claim) int { return p.compare(&b, &a) })
	p.places = resize(p.places, all)
	at := 0
	for j := range p.nodes {
		n := &p.nodes[j]
		n.placesAt, n.firstAt, at = at, at, at+n.placesEnd
		n.placesEnd = n.placesAt
	}
	for rank := range p.spared {
		i := p.spared[rank].model
		for j, left := range p.left[int(i)*nodes : (int(i)+1)*nodes] {
			if left > 0 {
				n := &p.nodes[j]
				p.places[n.placesEnd] = place{model: i, rank: int32(rank)}
				n.placesEnd++
			}
		}
	}
}

// going is how many of a model's replicas on a node are likely to be evicted.
func (p *Planner) going(i, j int) int32 {
	if !p.sorted {
		return 0
	}
	return p.doomed[i*len(p.nodes)+j]
}

// leastLoss is the node where the most useful of those that have to go for the replica is the least useful, or the replica fits best among
// those where that is the same. Those that are likely to go there no longer count as taking room.
func (p *Planner) leastLoss(m *model) int {
	if !p.sorted {
		p.sort()
	}
	at, weakest, least := -1, int32(len(p.spared)), 0.0
	for j := range p.nodes {
		n := &p.nodes[j]
		if !m.takes.fits(&n.used, &n.budget) {
			continue
		}
		rank, unfit := p.victims(m, j, weakest, false), n.unfit(&n.free, &m.takes)
		// A small rank is a weak claim.
		if at < 0 || rank < weakest || rank == weakest && (unfit < least || unfit == least && p.before(j, at)) {
			at, weakest, least = j, rank, unfit
		}
	}
	p.victims(m, at, weakest, true)
	return at
}

// victims walks through what runs on a node, the weakest claim first, until there is room for the replica, and returns the rank of the last
// that it needed; beyond a rank of most it gives up. With doom, those that it needed are taken for gone.
func (p *Planner) victims(m *model, j int, most int32, doom bool) int32 {
	n := &p.nodes[j]
	free, nodes := n.free, len(p.nodes)
	last := int32(len(p.spared)) // beyond all of them
	looked := 0
	for at := n.firstAt; at < n.placesEnd && looked < maxVictims; at++ {
		v := p.places[at]
		if v.rank > most {
			break
		}
		have := p.left[int(v.model)*nodes+j] - p.doomed[int(v.model)*nodes+j]
		if have <= 0 {
			if at == n.firstAt {
				n.firstAt++
			}
			continue
		}
		looked++
		takes := &p.models[v.model].takes
		for ; have > 0 && p.helps(m, takes, &free); have-- {
			free.add(takes, 1)
			if doom {
				p.doomed[int(v.model)*nodes+j]++
				n.free.add(takes, 1)
			}
		}
		if m.takes.within(&free) {
			return v.rank
		}
	}
	return last
}

// helps reports whether the end of what takes so much brings the replica closer to its room.
func (p *Planner) helps(m *model, takes, free *amounts) bool {
	for d := range takes {
		if m.takes[d] > 0 && takes[d] > 0 && m.takes[d] > free[d] {
			return true
		}
	}
	return false
}
