package planner

import "math"

// resource is the time of a model's replicas, or of a device: 1 is all of it.
type resource struct {
	size   float64 // what there is: 1, or what is left for functions in the background
	slack  float64 // of it, not for further members of ensembles; 0 where no ensemble could use it
	wished float64
	most   float64 // if everybody who could asked for all that he could
	load   float64 // given out so far
	claims float64 // wanted beyond that, in this round
	level  float64 // where the claims are more than there is: how far weight 1 is filled up
	// memberLevel is that for further members of ensembles.
	memberLevel float64

	first, end int32 // its entries
	place      int32 // while entries are placed
	holder     int32 // the claimant that was placed last
	touched    bool
}

// wish is what a function would ask for if nobody else were there.
type wish struct {
	memory               *functionMemory // nil: none
	rate, budget, weight float64         // budget: +Inf where there is none
	best                 int             // the candidate with the largest gain; -1: none is there
	shares               float64         // what the shares of the candidates that are there add up to, of mode Shares
	by                   shareSource     // what those shares are
	limited              bool            // the budget affords less than the best
	contended            bool
	root                 int32 // one of its candidates' resources that could be full; -1: none
}

// memberPart is the part of a model's capacity up to which ensembles may fill it with further members, deviceMemberPart that
// of a device's time. Estimates are off, by more where batches wait for turns and are smaller than they could be, and an
// answer waits for the slowest of its members: where one has its queue filled up to the deadlines, every answer that it takes
// part in comes at the deadline. (scheduler/sim's ensemble_test.go shows it.)
const memberPart, deviceMemberPart = 0.9, 0.75

// slackFor is the part of the resource of m, a member of an ensemble, that is not for further members: what estimates are off
// by, and what tenants of the same device take of whom too little is known to plan with.
func (p *Planner) slackFor(m *model) float64 {
	if m.device < 0 {
		return 1 - memberPart
	}
	return 1 - deviceMemberPart + p.devices[int(m.device)-len(p.in.Models)].unknown
}

// short reports whether more is wished for than there is.
func (r *resource) short() bool { return r.wished > 1-r.slack }

// few: parts and resources are compared with this much give, relative to all there is.
const few = 1e-7

// wish works out what every function would ask for if it were alone, and what that would use. With room for everything
// that is the plan.
func (p *Planner) wish() {
	in := p.in
	p.loads = resize(p.loads, len(in.Models)+len(in.Devices))
	clear(p.loads)
	for i := range p.loads {
		p.loads[i].size = 1
	}
	p.wishes = resize(p.wishes, len(in.Functions))
	for i := range in.Functions {
		f := &in.Functions[i]
		w := &p.wishes[i]
		*w = wish{memory: p.functionMemories.at(i, f.Key), rate: number(f.Rate), budget: number(f.Budget), weight: weightOf(f.Weight)}
		if w.budget == 0 {
			w.budget = math.Inf(1)
		}
		p.wishOf(f, w, p.out.Functions[i].Allotted)
		if f.Background {
			continue
		}
		for c := range f.Candidates {
			if m, ok := p.modelOf(&f.Candidates[c]); ok {
				m.wished += p.out.Functions[i].Allotted[c]
				m.most += w.rate
				if f.Mode == All && len(f.Candidates) > 1 && m.known && w.rate > 0 {
					p.loads[m.resource].slack = p.slackFor(m)
				}
			}
		}
	}
	for i := range in.Models {
		m := &p.models[i]
		for q := range in.Models[i].Queues {
			if iq := &in.Models[i].Queues[q]; isDirect(iq) {
				m.wished += number(iq.Rate)
				m.most += number(iq.Rate)
			}
		}
		if m.known {
			p.loads[m.resource].wished += m.wished * m.use
			p.loads[m.resource].most += m.most * m.use
		}
	}
}

// wishOf writes into x how many queries/s of f each candidate would get, with all capacity for f alone: with mode All each
// gets all, with One the best does, with Shares each what the policy wishes; unless a budget affords less, see alone.
func (p *Planner) wishOf(f *Function, w *wish, x []float64) {
	w.best = -1
	cost := 0.0
	for c := range f.Candidates {
		m, ok := p.modelOf(&f.Candidates[c])
		if !ok {
			continue
		}
		if w.best < 0 || p.better(f, c, w.best) {
			w.best = c
		}
		if f.Mode == All {
			x[c] = w.rate
			cost += w.rate * m.cost
		}
	}
	switch {
	case w.best < 0:
	case f.Mode == One:
		x[w.best] = w.rate
		cost = w.rate * p.models[f.Candidates[w.best].Model].cost
	case f.Mode == Shares:
		p.addShares(f, w)
		for c := range f.Candidates {
			if m, ok := p.modelOf(&f.Candidates[c]); ok {
				x[c] = w.rate * w.shareOf(&f.Candidates[c])
				cost += x[c] * m.cost
			}
		}
	}
	if cost > w.budget {
		w.limited = true
		p.alone(f, w, x)
	}
}

// shareSource says what the shares of a function's candidates follow from.
type shareSource uint8

const (
	byShare shareSource = iota
	byGain              // no share is known
	equally             // nor any gain
)

// addShares finds what the shares of f's candidates are parts of.
func (p *Planner) addShares(f *Function, w *wish) {
	for w.by = byShare; ; w.by++ {
		w.shares = 0
		for c := range f.Candidates {
			if _, ok := p.modelOf(&f.Candidates[c]); ok {
				w.shares += w.by.of(&f.Candidates[c])
			}
		}
		if w.shares > 0 || w.by == equally {
			return
		}
	}
}

func (s shareSource) of(c *Candidate) float64 {
	switch s {
	case byShare:
		return min(number(c.Share), 1)
	case byGain:
		return gainOf(c.Gain)
	}
	return 1
}

// shareOf is the part of the function's queries that is wished for c, one of the candidates that are there.
func (w *wish) shareOf(c *Candidate) float64 { return w.by.of(c) / w.shares }

// better reports whether candidate c has a larger gain than d, or the same and uses or costs less.
func (p *Planner) better(f *Function, c, d int) bool {
	gc, gd := gainOf(f.Candidates[c].Gain), gainOf(f.Candidates[d].Gain)
	if gc != gd {
		return gc > gd
	}
	mc, md := &p.models[f.Candidates[c].Model], &p.models[f.Candidates[d].Model]
	if mc.use != md.use {
		return mc.use < md.use
	}
	return mc.cost < md.cost
}

// alone solves for f as if all resources were its own: only its budget binds.
func (p *Planner) alone(f *Function, w *wish, x []float64) {
	clear(x)
	p.edges = p.edges[:0]
	c := p.claimantOf(f, w, -1)
	p.claim(&c) // it is given at once what it claims
	if p.spend(&c) > 0 && c.mode == Shares {
		c.next = c.first // as wished may cost less
		p.claim(&c)
	}
	for i := c.first; i < c.end; i++ {
		x[p.edges[i].candidate] += p.edges[i].x
	}
}

// scarce reports whether the resource that m's evaluations use could be full.
func (p *Planner) scarce(m *model) bool {
	return m.resource >= 0 && p.loads[m.resource].most > 1-p.loads[m.resource].slack-few
}

// overloaded reports whether anything is wished for beyond its capacity.
func (p *Planner) overloaded() bool {
	for i := range p.loads {
		if p.loads[i].short() {
			return true
		}
	}
	return false
}
