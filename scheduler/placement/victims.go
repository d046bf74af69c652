package placement

// place is where replicas of a model run that are not settled: what one of them takes, how many are not likely to go, and how many
// are. rank is the model's place among all that run, the weakest claim first.
type place struct {
	takes             amounts
	rank, stays, goes int32
}

// maxVictims bounds how many models are looked at for one replica on one node. Whether there is room is not decided here,
// only on which node it is made.
const maxVictims = 64

// sort lists for each node what runs there, the weakest claim first: that of a model's last replica counts for all of them.
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
	for c := t.start(); c != nil; c = t.play() { // the best is the last at its nodes
		rank--
		i := int(c.model)
		*c = out
		row, at := p.row(i), p.placeAt[i*len(p.nodes):(i+1)*len(p.nodes)]
		for _, j := range p.holding(row) {
			n := &p.nodes[j]
			n.firstAt--
			p.places[n.firstAt] = place{takes: p.models[i].takes, rank: rank, stays: row[j]}
			at[j] = int32(n.firstAt)
		}
	}
	for j := range p.nodes {
		p.weaken(&p.nodes[j])
	}
}

// place is where replicas of a model run on a node that are not settled.
func (p *Planner) place(i, j int) *place { return &p.places[p.placeAt[i*len(p.nodes)+j]] }

// going is how many of a model's replicas on a node are likely to be evicted.
func (p *Planner) going(i, j int) int32 {
	if !p.sorted {
		return 0
	}
	return p.place(i, j).goes
}

// leastLoss is the node where the most useful of those that have to go for the replica is the least useful, or the replica fits best among
// those where that is the same. Those that are likely to go there no longer count as taking room.
func (p *Planner) leastLoss(m *model, rooms []int32) int {
	if len(rooms) == 1 {
		return int(rooms[0])
	}
	if !p.sorted {
		p.sort()
		rooms, _ = p.rooms(m) // sort uses their memory
	}
	// The first to be looked at is where the weakest of all goes: of most others it then takes one look to see that they are no better.
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
		// A small rank is a weak claim.
		if unfit := n.unfit(&m.takes); at < 0 || rank < weakest || unfit < least || unfit == least && p.before(int(j), at) {
			at, weakest, least = int(j), rank, unfit
		}
	}
	p.victims(m, &p.nodes[at], weakest, true)
	return at
}

// weaken finds the weakest claim on a node that is likely to stay; beyond all of them where there is none.
func (p *Planner) weaken(n *node) {
	for n.firstAt < n.placesEnd && p.places[n.firstAt].stays <= 0 {
		n.firstAt++
	}
	if n.weakest = p.ranks; n.firstAt < n.placesEnd {
		n.weakest = p.places[n.firstAt].rank
	}
}

// victims walks through what runs on a node, the weakest claim first, until there is room for the replica, and returns the rank of the last
// that it needed; beyond a rank of most it gives up. With doom, those that it needed are taken for gone.
func (p *Planner) victims(m *model, n *node, most int32, doom bool) int32 {
	needs0, needs1, needs2 := m.needs[0], m.needs[1], m.needs[2]
	free0, free1, free2 := n.free[0], n.free[1], n.free[2] // each for itself they stay in registers
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
			// Its end helps where anything that the replica has not enough of is something that it takes.
			if signs(free0-needs0, 0, 0)&signs(0-takes0, 0, 0)|signs(free1-needs1, 0, 0)&signs(0-takes1, 0, 0)|signs(free2-needs2, 0, 0)&signs(0-takes2, 0, 0) >= 0 {
				break
			}
			free0, free1, free2 = free0+takes0, free1+takes1, free2+takes2
		}
		if doom {
			v.stays -= count
			v.goes += count
		}
		if signs(free0-needs0, free1-needs1, free2-needs2) >= 0 {
			last = v.rank
			break
		}
	}
	if doom {
		n.free = amounts{free0, free1, free2}
		n.countSpare()
		p.weaken(n)
	}
	return last
}
