package planner

import (
	"math"

	"github.com/xebec-serving/xebec/scheduler"
)

// A demand of up to shedAbove times the allotment is admitted in full: the machine knows each deadline and refuses
// excess queries one by one. Beyond that the planner sheds, before anything is spent on the query, and admits admitOver
// times the allotment, so that a machine that is faster than estimated has work. Shedding ends when the demand falls to
// admitOver times the allotment. The two thresholds keep it from alternating.
//
// Demands below leastShed queries per second are never shed: refusing them one by one costs next to nothing, and rate
// estimates from so few queries are lumpy. A client that asks a slow model one query after the other is no flood.
const (
	shedAbove = 3
	admitOver = 2.5
	leastShed = 1000
)

// admission returns how much of a demand is admitted under an allotment, and whether any is shed.
func admission(demand, allotted float64, shedding bool) (admitted float64, sheds bool) {
	switch {
	case demand < leastShed, demand <= admitOver*allotted, demand <= shedAbove*allotted && !shedding:
		return demand, false
	}
	return admitOver * allotted, true
}

// settle writes what the claimants were given into the plans of functions and sub-queues.
func (p *Planner) settle() {
	for i := range p.claimants {
		c := &p.claimants[i]
		if c.function < 0 {
			q := &p.queues[c.queue]
			q.allotted = p.edges[c.first].x
			q.weight = c.weight
			q.short = c.rest > negligible*c.rate
			continue
		}
		w := &p.wishes[c.function]
		x := p.out.allotted[w.first:w.end]
		clear(x)
		for j := c.first; j < c.end; j++ {
			x[p.edges[j].candidate] += p.edges[j].x
		}
	}
}

// admitFunctions converts allotments into the parts of the queries that are evaluated.
func (p *Planner) admitFunctions() {
	for _, d := range p.direct {
		p.admitDirect(&p.models[d.model], int(d.queue), number(p.in.Models[d.model].Queues[d.queue].Rate))
	}
	for i := range p.wishes {
		switch w := &p.wishes[i]; {
		case w.background:
			// leftovers plans these later.
		case w.rate == 0 || !w.contended && !w.limited || p.hasWish(w):
			p.asWished(i, w)
		default:
			p.admitFunction(i, w)
		}
	}
}

// hasWish reports whether a contending function is allotted its wish. It reports false, without a check, for mode
// Shares and for functions limited by their budgets.
func (p *Planner) hasWish(w *wish) bool {
	x, most := p.out.allotted[w.first:w.end], w.rate*(1-roundingError)
	switch {
	case w.limited || w.best < 0 || w.mode == Shares:
		return false
	case w.mode == One:
		return x[w.best] >= most
	}
	for c := range x {
		if x[c] < most {
			return false
		}
	}
	return true
}

// admitDirect finds how much of a direct sub-queue's traffic is admitted.
func (p *Planner) admitDirect(m *model, i int, rate float64) {
	q := &queue{allotted: rate}
	if m.contended {
		q = &p.queues[int(m.queueAt)+i]
	}
	m.planned += q.allotted
	var sheds bool
	q.admitted, sheds = admission(rate, q.allotted, m.memory != nil && m.memory.sheds(i))
	if m.memory != nil {
		m.memory.setSheds(i, sheds)
	}
	m.admitted += q.admitted
}

// sheds reports whether the last plan shed queries of direct sub-queue i.
func (m *modelMemory) sheds(i int) bool { return i < len(m.shedding) && m.shedding[i] }

func (m *modelMemory) setSheds(i int, sheds bool) {
	for sheds && i >= len(m.shedding) {
		m.shedding = append(m.shedding, false)
	}
	if i < len(m.shedding) {
		m.shedding[i] = sheds
	}
}

// asWished plans a function that gets its wish. An idle function has a wish too: its first query is evaluated as if the
// function were alone.
func (p *Planner) asWished(i int, w *wish) {
	fp := p.out.begin(i, w)
	candidates, parts, why := p.candidates[w.first:w.end], p.out.parts[w.first:w.end], p.out.why[w.first:w.end]
	cost := 0.0
	for c := range candidates {
		if candidates[c].model < 0 {
			why[c] = NoSuchModel
			continue
		}
		part := 1.0
		switch {
		case w.mode == All:
			why[c] = Member
		case w.mode == Shares:
			why[c] = Wished
			part = w.shareOf(&p.in.Functions[i].Candidates[c])
		case c == int(w.best):
			why[c] = Best
		default:
			why[c] = NotNeeded
			continue
		}
		m := &p.models[candidates[c].model]
		parts[c] = part
		m.planned += part * w.rate
		m.admitted += part * w.rate
		cost += part * w.rate * m.cost
		if !w.contended || !m.contended {
			continue
		}
		if q := p.queueOf(m, &candidates[c]); q != nil {
			q.allotted += part * w.rate
			q.admitted += part * w.rate
			q.weight = w.weight
		}
	}
	fp.CostPerSecond = cost
	if w.best < 0 {
		fp.Refused, fp.RefusedWhy = 1, NoCandidates
	} else if w.mode == Shares {
		p.limit(&p.in.Functions[i], w, fp)
	}
}

func (p *Planner) admitFunction(i int, w *wish) {
	f, fp, candidates := &p.in.Functions[i], p.out.begin(i, w), p.candidates[w.first:w.end]
	served, cost := 0.0, 0.0
	for c, x := range fp.Allotted {
		if x > 0 {
			served += x
			cost += x * p.models[candidates[c].model].cost
		}
	}
	factor, full := 1.0, w.rate-served <= negligible*w.rate
	if !full && served > 0 && !w.background {
		memory, plan := p.functionMemories.at(i, f.Key), p.functionMemories.plans
		admitted, refuses := admission(w.rate, served, memory != nil && memory.refusedIn > 0 && memory.refusedIn == plan-1)
		factor = admitted / served
		if cost > 0 && cost*factor > w.budget {
			factor = max(1, w.budget/cost)
		}
		if memory != nil && refuses {
			memory.refusedIn = plan
		}
	}
	sum := 0.0
	for c, x := range fp.Allotted {
		if candidates[c].model < 0 {
			continue
		}
		m := &p.models[candidates[c].model]
		part := min(1, x*factor/w.rate)
		fp.Evaluate[c] = part
		sum += part
		m.planned += x
		m.admitted += part * w.rate
		fp.CostPerSecond += part * w.rate * m.cost
		if !m.contended || w.background {
			continue
		}
		if q := p.queueOf(m, &candidates[c]); q != nil {
			q.allotted += x
			q.admitted += part * w.rate
			q.weight = w.weight
			q.short = q.short || !full
		}
	}
	if f.Mode.picksOne() && sum > 1 { // rounding
		for c := range fp.Evaluate {
			fp.Evaluate[c] /= sum
		}
	}
	if fp.Refused = 1 - sum; fp.Refused <= negligible {
		fp.Refused = 0
	}
	if w.mode == Shares {
		p.limit(f, w, fp)
	}
	p.explain(f, w, fp, candidates)
}

// limitGive: limits are dropped if all of them are above 1 - limitGive.
const limitGive = 0.01

// noSpill is the limit of a candidate that gets exactly its wished share while others get more than theirs. Being below
// 1, it keeps withheld queries away from the candidate.
const noSpill = 0.999

// limit computes the limits that the policy of a function with mode Shares is to obey. With the wished share s of a
// candidate and its part e of the queries that are not refused, the limit is e/s, at most 1. Only candidates that are
// to get more than their wished share have the limit 1.
//
// Wishes of 0.5, 0.2 and 0.3 that are to become 0.1, 0.2 and 0.7 give the limits 0.2, 0.999 and 1.
func (p *Planner) limit(f *Function, w *wish, fp *FunctionPlan) {
	sum := 0.0
	for _, part := range fp.Evaluate {
		sum += part
	}
	if sum <= negligible {
		return
	}
	at := len(p.out.limits)
	limits := more(&p.out.limits, len(f.Candidates))
	limited, moved := false, false
	for c := range f.Candidates {
		if p.candidates[int(w.first)+c].model < 0 {
			limited = true
			continue
		}
		share, part := w.shareOf(&f.Candidates[c]), fp.Evaluate[c]/sum
		limits[c] = 1
		if part < share*(1-1e-6) {
			limits[c] = part / share
			limited = limited || limits[c] < 1-limitGive
		}
		moved = moved || part > share*(1+1e-6)+1e-6
	}
	if !limited {
		p.out.limits = p.out.limits[:at]
		return
	}
	for c := range limits {
		if moved && limits[c] == 1 && fp.Evaluate[c]/sum <= w.shareOf(&f.Candidates[c])*(1+1e-6)+1e-6 {
			limits[c] = noSpill
		}
	}
	fp.Limits = limits
}

// explain finds what bounds each candidate's part.
func (p *Planner) explain(f *Function, w *wish, fp *FunctionPlan, candidates []candidate) {
	best, any, cost := int(w.best), NoCandidates, fp.CostPerSecond
	for c := range candidates {
		if candidates[c].model < 0 {
			fp.Why[c] = NoSuchModel
			continue
		}
		m := &p.models[candidates[c].model]
		part := fp.Allotted[c] / w.rate
		switch {
		case f.Mode == All && part >= 1-negligible:
			fp.Why[c] = Member
			continue
		case f.Mode == One && part >= 1-negligible && c == best:
			fp.Why[c] = Best
			continue
		case f.Mode == One && part == 0 && fp.Refused == 0 && c != best:
			fp.Why[c] = NotNeeded
			continue
		case f.Mode == Shares && math.Abs(part-w.shareOf(&f.Candidates[c])) <= 1e-6:
			fp.Why[c] = Wished
			continue
		case f.Mode == Shares && part > w.shareOf(&f.Candidates[c]):
			fp.Why[c] = StandsIn
			continue
		}
		bound := p.bound(f, w, m, cost)
		switch {
		case f.Mode == All && candidates[c].gain == 0 && bound == Budget:
			fp.Why[c] = NoGain
		case f.Mode == One && part > 0 && c != best:
			fp.Why[c] = Fallback
		default:
			fp.Why[c] = bound
		}
		if any == NoCandidates || bound != Budget {
			any = bound
		}
	}
	if fp.Refused > 0 {
		fp.RefusedWhy = any
	}
}

// bound returns what keeps f from more evaluations by m.
func (p *Planner) bound(f *Function, w *wish, m *model, cost float64) Reason {
	full := 1 - 1e-6
	if f.Mode == All && m.resource >= 0 {
		full -= p.loads[m.resource].slack
	}
	switch {
	case f.Background && !(w.budget < inf && cost >= w.budget*(1-1e-6)):
		return Leftover
	case m.resource >= 0 && m.contended && p.loads[m.resource].load >= full:
		if int(m.resource) >= len(p.in.Models) {
			return DeviceTime
		}
		return Capacity
	case w.budget < inf && cost >= w.budget*(1-1e-6):
		return Budget
	case w.budget < inf && m.cost > 0:
		return Budget
	}
	return Capacity
}

// shares writes weights and shedding into the plan of a model with a contended resource. More queries are admitted than
// there is room for, so the machine's round robin has to preserve the allotted shares. A sub-queue that gets less than
// it wants is weighted by its allotment. A sub-queue that gets all it wants keeps at least its own weight relative to
// the best-off short sub-queue. Weights equal to those that were attached are not set.
func (p *Planner) shares(m *model, im *Model, plan *scheduler.Plan) {
	if !m.contended {
		return
	}
	level := 0.0
	queues := p.queues[m.queueAt : m.queueAt+m.queues]
	for i := range queues {
		if q := &queues[i]; q.weight > 0 && q.short {
			level = max(level, q.allotted/q.weight)
		}
	}
	if level <= 0 {
		return
	}
	last := 0
	plan.Functions = more(&p.out.functions, len(queues))
	was := p.attached[m.attachedAt:][:len(queues)]
	for i := range queues {
		q, at := &queues[i], &was[i]
		if q.allotted <= 0 || at.weight == 0 { // queries still waiting in a sub-queue with no allotment are served as before
			continue
		}
		weight := q.allotted / level
		if !q.short {
			weight = max(weight, q.weight)
		}
		fp := &plan.Functions[i]
		if weight = max(minWeight, min(weight, maxWeight)); !near(weight, at.weight) {
			fp.Weight = coarse(weight)
			last = i + 1
		}
		if at.direct {
			if rate := number(im.Queues[i].Rate); q.admitted < rate {
				fp.Shed = 1 - q.admitted/rate
				last = i + 1
			}
		}
	}
	plan.Functions = plan.Functions[:last]
}
