package placement

// place is a model's unsettled running replicas on a node: what one of them takes, how many are likely to stay, and how
// many are likely to go. rank is the model's position among all that run, the worst claim first.
type place struct {
	takes             amounts
	rank, stays, goes int32
}

// maxVictims bounds how many models are examined for one replica on one node. It affects only on which node room is
// made, not whether there is room.
const maxVictims = 64

// sort lists for each node what runs there, the worst claim first. The claim to a model's last replica stands for all
// of them.
func (p *Planner) sort() {
	p.sorted = true
	t := &p.order
	t.models, t.claims = p.in.Models, t.claims[:0]
	for i := range p.models {
		if m := &p.models[i]; m.left > 0 {
			t.claims = append(t.claims, p.claim(int32(i), m.granted+m.left-1, true))
		}
	}
	at := 0
	for j := range p.nodes {
		n := &p.nodes[j]
		at += n.unsettled
		n.firstAt, n.placesEnd = at, at
	}
	p.places, p.placeAt = resize(p.places, at), resize(p.placeAt, len(p.left))
	p.ranks = int32(len(t.claims))
	rank := p.ranks
	for c := t.start(); c != nil; c = t.play() { // the best is the last on its nodes
		rank--
		i := int(c.model)
		*c = noClaim
		row, at := p.row(i), p.placeAt[i*len(p.nodes):(i+1)*len(p.nodes)]
		for _, j := range p.holding(row) {
			n := &p.nodes[j]
			n.firstAt--
			p.places[n.firstAt] = place{takes: p.models[i].takes, rank: rank, stays: row[j]}
			at[j] = int32(n.firstAt)
		}
	}
	for j := range p.nodes {
		p.updateWeakest(&p.nodes[j])
	}
}

// place returns the place of a model on a node.
func (p *Planner) place(i, j int) *place { return &p.places[p.placeAt[i*len(p.nodes)+j]] }

// going returns how many of a model's replicas on a node are likely to be evicted.
func (p *Planner) going(i, j int) int32 {
	if !p.sorted {
		return 0
	}
	return p.place(i, j).goes
}

// leastLoss picks the node whose most valuable victim is least valuable. Ties go to the best fit. It marks the victims
// there as going, so that they no longer count as taking room.
func (p *Planner) leastLoss(m *model, rooms []int32) int {
	if len(rooms) == 1 {
		return int(rooms[0])
	}
	if !p.sorted {
		p.sort()
		rooms, _ = p.rooms(m) // sort uses their memory
	}
	// Begin with the node that has the worst claim of all: most other nodes then take one check to be ruled out.
	begin, lowest := 0, p.ranks
	for k, j := range rooms {
		if n := &p.nodes[j]; n.weakest < lowest {
			begin, lowest = k, n.weakest
		}
	}
	rooms[0], rooms[begin] = rooms[begin], rooms[0]
	at, weakest, least := -1, p.ranks, 0.0
	for _, j := range rooms {
		n := &p.nodes[j]
		if weakest < p.ranks && n.weakest > weakest {
			continue
		}
		rank := p.victims(m, n, weakest, false)
		if at >= 0 && rank > weakest {
			continue
		}
		// A small rank is a bad claim.
		if misfit := n.misfit(&m.takes); at < 0 || rank < weakest || misfit < least || misfit == least && p.before(int(j), at) {
			at, weakest, least = int(j), rank, misfit
		}
	}
	p.victims(m, &p.nodes[at], weakest, true)
	return at
}

// updateWeakest finds the worst claim on a node that is likely to stay, p.ranks if there is none.
func (p *Planner) updateWeakest(n *node) {
	for n.firstAt < n.placesEnd && p.places[n.firstAt].stays <= 0 {
		n.firstAt++
	}
	if n.weakest = p.ranks; n.firstAt < n.placesEnd {
		n.weakest = p.places[n.firstAt].rank
	}
}

// victims goes through what runs on a node, the worst claim first, until there is room for the replica, and returns the
// rank of the last one needed. It gives up beyond the rank most. With mark it records the victims as going.
func (p *Planner) victims(m *model, n *node, most int32, mark bool) int32 {
	needs0, needs1, needs2 := m.needs[0], m.needs[1], m.needs[2]
	free0, free1, free2 := n.free[0], n.free[1], n.free[2] // separate variables stay in registers
	last := p.ranks                                        // beyond all of them
	looked := 0
	places := p.places[n.firstAt:n.placesEnd]
	for at := range places {
		v := &places[at]
		if v.rank > most || looked == maxVictims {
			break
		}
		if v.stays <= 0 {
			continue
		}
		looked++
		count := int32(0)
		takes0, takes1, takes2 := v.takes[0], v.takes[1], v.takes[2]
		for ; count < v.stays; count++ {
			// Evicting it helps if the replica lacks a resource that it takes.
			if signs(free0-needs0, 0, 0)&signs(0-takes0, 0, 0)|signs(free1-needs1, 0, 0)&signs(0-takes1, 0, 0)|signs(free2-needs2, 0, 0)&signs(0-takes2, 0, 0) >= 0 {
				break
			}
			free0, free1, free2 = free0+takes0, free1+takes1, free2+takes2
		}
		if mark {
			v.stays -= count
			v.goes += count
		}
		if signs(free0-needs0, free1-needs1, free2-needs2) >= 0 {
			last = v.rank
			break
		}
	}
	if mark {
		n.free = amounts{free0, free1, free2}
		n.countSpare()
		p.updateWeakest(n)
	}
	return last
}
