package planner

import (
	"math"

	"github.com/xebec-serving/xebec/scheduler"
)

// What is asked beyond what is allotted is refused one by one, by the machine, which knows each deadline; what is far beyond
// it, before anything is spent on it. More than shedAbove times the allotment begins the latter, and what is then let
// through is admitOver times the allotment, so that a machine that does better than expected has something to do. Since a
// demand of just admitOver sheds nothing, shedding ends there and does not alternate.
//
// Below leastShed queries per second nothing is shed: to refuse them one by one costs next to nothing, and a rate that is
// found from so few comes in lumps. A client that asks a slow model one query after the other is no flood.
const (
	shedAbove = 3
	admitOver = 2.5
	leastShed = 1000
)

// admission is how much of a demand is let through where that much is allotted, and whether any is shed.
func admission(demand, allotted float64, shedding bool) (admitted float64, sheds bool) {
	switch {
	case demand < leastShed, demand <= admitOver*allotted, demand <= shedAbove*allotted && !shedding:
		return demand, false
	}
	return admitOver * allotted, true
}

// settle writes what the claimants have been given into the plan of the functions and the sub-queues.
func (p *Planner) settle() {
	for i := range p.claimants {
		c := &p.claimants[i]
		if c.function < 0 {
			q := &p.queues[c.queue]
			q.allotted = p.edges[c.first].x
			q.weight = c.weight
			q.short = c.rest > few*c.rate
			continue
		}
		x := p.out.Functions[c.function].Allotted
		clear(x)
		for j := c.first; j < c.end; j++ {
			x[p.edges[j].candidate] += p.edges[j].x
		}
	}
}

// admitFunctions turns what functions are allotted into the parts that are evaluated.
func (p *Planner) admitFunctions() {
	in := p.in
	for i := range in.Models {
		m, im := &p.models[i], &in.Models[i]
		for q := range im.Queues {
			if iq := &im.Queues[q]; isDirect(iq) {
				p.admitDirect(m, im, q, number(iq.Rate))
			}
		}
	}
	for i := range in.Functions {
		f, w, fp := &in.Functions[i], &p.wishes[i], &p.out.Functions[i]
		switch {
		case f.Background:
			// See leftovers.
		case w.rate == 0 || !w.contended && !w.limited:
			p.asWished(f, w, fp)
		default:
			p.admitFunction(f, w, fp)
		}
	}
}

// admitDirect finds how much of a direct sub-queue's traffic is let through.
func (p *Planner) admitDirect(m *model, im *Model, i int, rate float64) {
	q := &p.queues[int(m.queueAt)+i]
	if !m.contended {
		q.allotted = rate
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

// asWished is the plan of a function that has its wish. One that nobody has called has it too: its first query is evaluated
// as if it were alone.
func (p *Planner) asWished(f *Function, w *wish, fp *FunctionPlan) {
	for c := range f.Candidates {
		m, ok := p.modelOf(&f.Candidates[c])
		part := 1.0
		switch {
		case !ok:
			fp.Why[c] = NoSuchModel
			continue
		case f.Mode == All:
			fp.Why[c] = Member
		case f.Mode == Shares:
			fp.Why[c] = Wished
			part = w.shareOf(&f.Candidates[c])
		case c == w.best:
			fp.Why[c] = Best
		default:
			fp.Why[c] = NotNeeded
			continue
		}
		fp.Evaluate[c] = part
		m.planned += part * w.rate
		m.admitted += part * w.rate
		fp.CostPerSecond += part * w.rate * m.cost
	}
	if w.best < 0 {
		fp.Refused, fp.RefusedWhy = 1, NoCandidates
	} else if f.Mode == Shares {
		p.limit(f, w, fp)
	}
	if w.memory != nil {
		w.memory.refusing = false
	}
}

func (p *Planner) admitFunction(f *Function, w *wish, fp *FunctionPlan) {
	served, cost := 0.0, 0.0
	for c, x := range fp.Allotted {
		if x > 0 {
			served += x
			cost += x * p.models[f.Candidates[c].Model].cost
		}
	}
	over, full := 1.0, w.rate-served <= few*w.rate
	if !full && served > 0 && !f.Background {
		admitted, refusing := admission(w.rate, served, w.memory != nil && w.memory.refusing)
		over = admitted / served
		if cost > 0 && cost*over > w.budget {
			over = max(1, w.budget/cost)
		}
		if w.memory != nil {
			w.memory.refusing = refusing
		}
	} else if w.memory != nil {
		w.memory.refusing = false
	}
	sum := 0.0
	for c, x := range fp.Allotted {
		m, ok := p.modelOf(&f.Candidates[c])
		if !ok {
			continue
		}
		part := min(1, x*over/w.rate)
		fp.Evaluate[c] = part
		sum += part
		m.planned += x
		m.admitted += part * w.rate
		fp.CostPerSecond += part * w.rate * m.cost
		if q := p.queueOf(&f.Candidates[c]); m.contended && q >= 0 && !f.Background {
			pq := &p.queues[q]
			pq.allotted += x
			pq.admitted += part * w.rate
			pq.weight = w.weight
			pq.short = pq.short || !full
		}
	}
	if f.Mode.one() && sum > 1 { // by rounding
		for c := range fp.Evaluate {
			fp.Evaluate[c] /= sum
		}
	}
	if fp.Refused = 1 - sum; fp.Refused <= few {
		fp.Refused = 0
	}
	if f.Mode == Shares {
		p.limit(f, w, fp)
	}
	p.explain(f, w, fp)
}

// limitGive: limits that would all be above 1 less it are none.
const limitGive = 0.01

// notHere is the limit of a candidate that gets what is wished, where others get more than that.
const notHere = 0.999

// limit finds by how much the policy of a function with mode Shares is to be held back at each candidate: with the part s
// that it wishes and the part e of what is not refused, e/s, at most 1. Only who is to get more than is wished has 1.
//
// Wishes of 0.5, 0.2 and 0.3 that are to become 0.1, 0.2 and 0.7: the limits are 0.2, 0.999 and 1.
func (p *Planner) limit(f *Function, w *wish, fp *FunctionPlan) {
	sum := 0.0
	for _, part := range fp.Evaluate {
		sum += part
	}
	if sum <= few {
		return
	}
	at := len(p.out.limits)
	limits := more(&p.out.limits, len(f.Candidates))
	limited, moved := false, false
	for c := range f.Candidates {
		if _, ok := p.modelOf(&f.Candidates[c]); !ok {
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
			limits[c] = notHere
		}
	}
	fp.Limits = limits
}

// explain finds what each candidate's part is bounded by.
func (p *Planner) explain(f *Function, w *wish, fp *FunctionPlan) {
	best, any, cost := w.best, NoCandidates, fp.CostPerSecond
	for c := range f.Candidates {
		m, ok := p.modelOf(&f.Candidates[c])
		if !ok {
			fp.Why[c] = NoSuchModel
			continue
		}
		part := fp.Allotted[c] / w.rate
		switch {
		case f.Mode == All && part >= 1-few:
			fp.Why[c] = Member
			continue
		case f.Mode == One && part >= 1-few && c == best:
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
		case f.Mode == All && gainOf(f.Candidates[c].Gain) == 0 && bound == Budget:
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

// bound is what keeps f from more evaluations by m.
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

// shares writes the weights and the shedding into a model's plan, where resources are short: with more let through than
// there is room for, the machine's round robin keeps to what was allotted. Who is short gets what is allotted to him; who
// is not, at least his own weight against the best off of those. Where that is what they were attached with, nothing is
// set.
func (p *Planner) shares(m *model, im *Model, plan *scheduler.Plan) {
	if !m.contended {
		return
	}
	level := 0.0
	for i := range im.Queues {
		if q := &p.queues[int(m.queueAt)+i]; q.weight > 0 && q.short {
			level = max(level, q.allotted/q.weight)
		}
	}
	if level <= 0 {
		return
	}
	last := 0
	plan.Functions = more(&p.out.functions, len(im.Queues))
	for i := range im.Queues {
		q, iq := &p.queues[int(m.queueAt)+i], &im.Queues[i]
		if q.allotted <= 0 || iq.Free { // what still waits of those who get nothing now is served as before
			continue
		}
		weight := q.allotted / level
		if !q.short {
			weight = max(weight, q.weight)
		}
		fp := &plan.Functions[i]
		if weight = max(minWeight, min(weight, maxWeight)); !near(weight, weightOf(iq.Weight)) {
			fp.Weight = coarse(weight)
			last = i + 1
		}
		if rate := number(iq.Rate); isDirect(iq) && q.admitted < rate {
			fp.Shed = 1 - q.admitted/rate
			last = i + 1
		}
	}
	plan.Functions = plan.Functions[:last]
}
