package planner

// resource is the time of a model's replicas, or of a device: 1 is all of it.
type resource struct {
	size   float64 // what there is: 1, or what is left for functions in the background
	slack  float64 // of it, as it was asked for
	load   float64 // given out so far
	claims float64 // wanted beyond that, in this round
	level  float64 // where the claims are more than there is: how far weight 1 is filled up
	// cut is the level above which time was last taken back: it only falls, until others make room, and who has as much
	// claims in vain. +Inf where nothing was. See claim.
	cut float64
	// memberLevel is that for further members of ensembles.
	memberLevel float64

	first, end int32 // its entries
	place      int32 // while entries are placed
	holder     int32 // the claimant that was placed last
	touched    bool
}

// asked is what is asked of a resource.
type asked struct {
	wished float64 // if every function had its wish
	most   float64 // if everybody who could asked for all that he could
	slack  float64 // of the resource, not for further members of ensembles; 0 where no ensemble could use it
}

// wish is what a function would ask for if nobody else were there.
type wish struct {
	rate, budget, weight float64     // budget: +Inf where there is none
	shares               float64     // what the shares of the candidates that are there add up to, of mode Shares
	first, end           int32       // its candidates, in Planner.candidates
	best                 int32       // of them the one with the largest gain; -1: none is there
	root                 int32       // one of its candidates' resources that could be full; -1: none
	by                   shareSource // what the shares are
	mode                 Mode
	background           bool
	limited              bool // the budget affords less than the best
	contended            bool
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
func (a *asked) short() bool { return a.wished > 1-a.slack }

// few: parts and resources are compared with this much give, relative to all there is.
const few = 1e-7

// wish works out what every function would ask for if it were alone, and what that would use. With room for everything
// that is the plan.
func (p *Planner) wish() {
	p.asked = resize(p.asked, len(p.models)+len(p.devices))
	clear(p.asked)
	p.loads = resize(p.loads, len(p.asked))
	for i := range p.wishes {
		w := &p.wishes[i]
		candidates, x := p.candidates[w.first:w.end], p.out.allotted[w.first:w.end]
		p.wishOf(i, w, candidates, x)
		if w.background {
			continue
		}
		ensemble := w.mode == All && len(candidates) > 1 && w.rate > 0
		for c := range candidates {
			if candidates[c].model < 0 {
				continue
			}
			m := &p.models[candidates[c].model]
			m.wished += x[c]
			m.most += w.rate
			if ensemble && m.known {
				p.asked[m.resource].slack = p.slackFor(m)
			}
		}
	}
	for _, d := range p.direct {
		rate := number(p.in.Models[d.model].Queues[d.queue].Rate)
		p.models[d.model].wished += rate
		p.models[d.model].most += rate
	}
	for i := range p.models {
		if m := &p.models[i]; m.known {
			a := &p.asked[m.resource]
			a.wished += m.wished * m.use
			a.most += m.most * m.use
		}
	}
	p.over = false
	for i := range p.asked {
		p.over = p.over || p.asked[i].short()
	}
}

// wishOf writes into x how many queries/s of function i each candidate would get, with all capacity for it alone: with mode
// All each gets all, with One the best does, with Shares each what the policy wishes; unless a budget affords less, see alone.
func (p *Planner) wishOf(i int, w *wish, candidates []candidate, x []float64) {
	cost := 0.0
	for c := range candidates {
		if candidates[c].model < 0 {
			continue
		}
		if w.best < 0 || p.better(&candidates[c], &candidates[w.best]) {
			w.best = int32(c)
		}
		if w.mode == All {
			x[c] = w.rate
			cost += w.rate * p.models[candidates[c].model].cost
		}
	}
	switch {
	case w.best < 0:
	case w.mode == One:
		x[w.best] = w.rate
		cost = w.rate * p.models[candidates[w.best].model].cost
	case w.mode == Shares:
		f := &p.in.Functions[i]
		w.addShares(f, candidates)
		for c := range candidates {
			if candidates[c].model >= 0 {
				x[c] = w.rate * w.shareOf(&f.Candidates[c])
				cost += x[c] * p.models[candidates[c].model].cost
			}
		}
	}
	if cost > w.budget {
		w.limited = true
		p.alone(i, w, x)
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
func (w *wish) addShares(f *Function, candidates []candidate) {
	for w.by = byShare; ; w.by++ {
		w.shares = 0
		for c := range f.Candidates {
			if candidates[c].model >= 0 {
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

// better reports whether c has a larger gain than d, or the same and uses or costs less.
func (p *Planner) better(c, d *candidate) bool {
	if c.gain != d.gain {
		return c.gain > d.gain
	}
	mc, md := &p.models[c.model], &p.models[d.model]
	if mc.use != md.use {
		return mc.use < md.use
	}
	return mc.cost < md.cost
}

// alone solves for function i as if all resources were its own: only its budget binds.
func (p *Planner) alone(i int, w *wish, x []float64) {
	clear(x)
	p.claimants, p.edges = p.claimants[:0], p.edges[:0]
	c := p.claimantOf(i, w, true)
	p.claim(c) // it is given at once what it claims
	if p.spend(c) > 0 && c.mode == Shares {
		c.next = c.first // as wished may cost less
		p.claim(c)
	}
	for i := c.first; i < c.end; i++ {
		x[p.edges[i].candidate] += p.edges[i].x
	}
}
