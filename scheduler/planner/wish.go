package planner

// resource is the time of a model's replicas, or of a device. Its total size is 1.
type resource struct {
	size   float64 // 1, or what is left for background functions
	slack  float64 // part of size withheld from further members of ensembles
	load   float64 // given out so far
	claims float64 // wanted beyond load, in this round
	level  float64 // water level for weight 1; +Inf without overload
	// cut is the level above which time was last taken back, +Inf if none was. It only falls until others make room. An
	// entry that has as much gets nothing from a claim. See claim.
	cut float64
	// memberLevel is the level for further members of ensembles.
	memberLevel float64

	first, end int32 // its entries
	place      int32 // the next free entry, while entries are placed
	holder     int32 // the last claimant placed
	touched    bool
}

// asked is the demand on a resource.
type asked struct {
	wished float64 // if every function had its wish
	most   float64 // if every function sent all its queries here
	slack  float64 // part withheld from further members of ensembles; 0 if no ensemble could use the resource
}

// wish is what a function would get if it were alone.
type wish struct {
	rate, budget, weight float64     // budget: +Inf without one
	shares               float64     // mode Shares: the sum of the present candidates' shares
	first, end           int32       // its candidates, in Planner.candidates
	best                 int32       // the candidate with the largest gain; -1: none is present
	root                 int32       // the resource of a candidate that could be full; -1: none
	by                   shareSource // where the shares come from
	mode                 Mode
	background           bool
	limited              bool // the budget does not afford the best
	contended            bool
}

// memberPart is the part of a model's capacity up to which ensembles may add members, deviceMemberPart the part of a
// device's time. Estimates are off, more so where batches wait for turns and are smaller than they could be. An answer
// waits for its slowest member, so a member whose queue is filled up to the deadlines delays each of its answers to the
// deadline. scheduler/sim's ensemble_test.go shows it.
const memberPart, deviceMemberPart = 0.9, 0.75

// slackFor returns the part of the resource of m, a member of an ensemble, that is withheld from further members. It
// covers estimation errors and tenants of the same device with too little data to plan with.
func (p *Planner) slackFor(m *model) float64 {
	if m.device < 0 {
		return 1 - memberPart
	}
	return 1 - deviceMemberPart + p.devices[int(m.device)-len(p.in.Models)].unknown
}

// short reports whether the resource is overloaded: the wishes exceed what there is.
func (a *asked) short() bool { return a.wished > 1-a.slack }

// negligible is the tolerance for comparing parts and resources, relative to the whole.
const negligible = 1e-7

// wish computes what every function would get if it were alone, and what that would use. If all wishes fit, they are
// the plan.
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
	p.overloaded = false
	for i := range p.asked {
		p.overloaded = p.overloaded || p.asked[i].short()
	}
}

// wishOf writes into x the queries/s of function i that each candidate would get if the function were alone: with mode
// All every candidate gets all, with One the best does, with Shares each gets what the policy wishes. If the budget
// affords less, alone solves the rest.
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

// shareSource says where the shares of a function's candidates come from.
type shareSource uint8

const (
	byShare shareSource = iota
	byGain              // no share is known
	equally             // no gain is known either
)

// addShares sums the shares of f's present candidates, and falls back to gains or equal shares.
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

// shareOf returns the part of the function's queries wished for c, a present candidate.
func (w *wish) shareOf(c *Candidate) float64 { return w.by.of(c) / w.shares }

// better reports whether c has a larger gain than d, or the same gain and a smaller use or cost.
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

// alone solves for function i as if all resources were its own, so that only its budget binds.
func (p *Planner) alone(i int, w *wish, x []float64) {
	clear(x)
	p.claimants, p.edges = p.claimants[:0], p.edges[:0]
	c := p.claimantOf(i, w, true)
	p.claim(c) // everything claimed is given at once
	if p.spend(c) > 0 && c.mode == Shares {
		c.next = c.first // what is wished may cost less
		p.claim(c)
	}
	for i := c.first; i < c.end; i++ {
		x[p.edges[i].candidate] += p.edges[i].x
	}
}
