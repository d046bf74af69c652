package planner

import (
	"math"

	"github.com/xebec-serving/xebec/scheduler"
)

// planModels writes the plan of every model version.
func (p *Planner) planModels() {
	for i := range p.in.Models {
		m, im, out := &p.models[i], &p.in.Models[i], &p.out.Models[i]
		*out = ModelPlan{}
		out.Known, out.Capacity, out.Demand, out.Planned = m.known, m.capacity, m.wished, m.planned
		if m.known {
			out.Usable = 1 / m.use
		}
		p.shares(m, im, &out.Plan)
		d := p.dedicate(m, im)
		out.Tight, out.LooseObjectiveNanos = d.tight, d.looseNanos
		out.Plan.Execution, out.ExecutionWhy = p.execution(m, im, out)
		hold, why := p.hold(m, im)
		out.HoldWhy = why
		out.CapWhy = NoBound
		if m.deviceCap > 0 {
			out.CapWhy = Neighbours
		}
		if d.tight > 0 {
			out.CapWhy = TightObjective
		}
		if hold != 0 || m.deviceCap > 0 || d.tight > 0 {
			p.replicas(m, im, &out.Plan, hold, d)
		}
	}
}

// replicas writes the parts of a plan that concern single replicas.
func (p *Planner) replicas(m *model, im *Model, plan *scheduler.Plan, hold int64, d dedication) {
	plan.Replicas = more(&p.out.replicas, len(im.Replicas))
	if d.tight == 0 {
		for i := range plan.Replicas {
			rp := &plan.Replicas[i] // cleared
			rp.ID, rp.Cap, rp.HoldNanos = im.Replicas[i].ID, m.deviceCap, hold
		}
		return
	}
	shares := p.groupShares(im, plan, &d)
	for i := range plan.Replicas {
		rp := &plan.Replicas[i]
		rp.ID, rp.HoldNanos = im.Replicas[i].ID, hold
		if i < d.tight {
			rp.Cap, rp.Shares = d.tightCap, shares[1]
			continue
		}
		rp.Cap, rp.Shares, rp.ObjectiveNanos = m.deviceCap, shares[0], d.looseNanos
	}
}

// groupShares returns the sub-queues' weights at the replicas for the loose group and at those for the tight group, 0
// where a sub-queue does not belong.
func (p *Planner) groupShares(im *Model, plan *scheduler.Plan, d *dedication) (shares [2][]float64) {
	shares[0], shares[1] = more(&p.out.shares, len(im.Queues)), more(&p.out.shares, len(im.Queues))
	for q := range im.Queues {
		iq := &im.Queues[q]
		if iq.Free {
			continue
		}
		weight := weightOf(iq.Weight)
		if q < len(plan.Functions) && plan.Functions[q].Weight > 0 {
			weight = plan.Functions[q].Weight
		}
		shares[d.group(iq)][q] = weight
	}
	return shares
}

// dedication says which replicas serve which sub-queues. The first tight replicas serve the sub-queues with objectives
// below boundNanos, the other replicas the rest. In the zero value all replicas serve all sub-queues.
type dedication struct {
	tight, tightCap int
	boundNanos      int64 // objectives below it are tight
	looseNanos      int64 // two fifths of the smallest objective that is not tight, the default bound on a batch; 0: none
}

// group returns 1 for a sub-queue whose objective is tight, 0 for the others.
func (d *dedication) group(q *Queue) int {
	group := 0
	if uint64(q.SLONanos-1) < uint64(d.boundNanos-1) { // from 1 to less than the bound
		group = 1
	}
	return group
}

// leastObjectiveRatio is the least ratio of two objectives for separate replicas: the tight objective then allows at
// most a third of what the other does.
const leastObjectiveRatio = 3

// dedicateKnee is the fixed cost of a batch, in queries, from which larger batches are worth separate replicas.
const dedicateKnee, dedicateKneeEnd = 4, 3

// leastTraffic is the least queries per second of the functions in either group.
const leastTraffic, leastTrafficEnd = 1.0, 0.5

// dedicate decides whether functions with tight objectives get their own replicas, and how many, by the time that both
// groups need. Small batches for the tight objectives and large batches for the rest evaluate more in total than
// batches that suit the tight objectives for all.
func (p *Planner) dedicate(m *model, im *Model) dedication {
	d, knee, traffic := dedication{}, float64(dedicateKnee), leastTraffic
	mem := m.memory
	if mem != nil && mem.tight > 0 {
		knee, traffic = dedicateKneeEnd, leastTrafficEnd
	}
	n := len(im.Replicas)
	if n < 2 || !m.known || im.Pinned || m.streaming || m.tightestNanos == 0 || p.deviceOf(im) != nil || m.intercept < knee*m.slope {
		return mem.shared()
	}
	d.boundNanos = m.tightestNanos
	if d.boundNanos < math.MaxInt64/leastObjectiveRatio {
		d.boundNanos *= leastObjectiveRatio
	}
	if m.loosestNanos < d.boundNanos {
		return mem.shared() // there is no loose objective
	}
	looseNanos := int64(math.MaxInt64)
	var sums [2]float64 // of the loose and of the tight sub-queues
	for i := range im.Queues {
		q := &im.Queues[i]
		rate := number(q.Rate)
		if q.Free || rate == 0 || p.isBackground(q) {
			continue
		}
		sums[d.group(q)] += rate
		if q.SLONanos >= d.boundNanos {
			looseNanos = min(looseNanos, q.SLONanos)
		}
	}
	if aim := looseNanos * 2 / 5; aim > 0 && !im.FixedObjective { // 0 or less without a loose objective
		d.looseNanos = aim
	}
	loose, tight := sums[0], sums[1]
	d.tightCap = min(m.cap, fits(float64(m.tightestNanos)/2, m.intercept, m.slope))
	if tight < traffic || loose < traffic || d.tightCap < 1 {
		return mem.shared()
	}
	// The time that the tight and the loose functions need, each with their own batches.
	looseCap := float64(m.cap)
	if d.looseNanos > 0 {
		looseCap = max(looseCap, float64(fits(float64(d.looseNanos), m.intercept, m.slope)))
		if im.MaxBatch > 0 {
			looseCap = min(looseCap, float64(im.MaxBatch))
		}
	}
	tight *= m.evaluation(float64(d.tightCap)) / float64(d.tightCap)
	loose *= m.evaluation(looseCap) / looseCap
	share := tight / (tight + loose) * float64(n)
	d.tight = max(1, min(int(math.Ceil(share)), n-1))
	if mem != nil {
		d.tight = mem.steadyTight(m.keep, share, d.tight, n)
		d.tightCap = steadyCap(mem.tightCap, d.tightCap)
		mem.tightCap = d.tightCap
	}
	return d
}

// shared forgets a dedication: all replicas serve all sub-queues.
func (m *modelMemory) shared() dedication {
	if m != nil {
		m.tight, m.share, m.tightCap = 0, 0, 0
	}
	return dedication{}
}

// steadyTight returns how many of n replicas the tight functions get when they need share of them now. It changes only
// if the mean need is well beyond the current number.
func (m *modelMemory) steadyTight(keep, share float64, fresh, n int) int {
	if m.tight == 0 {
		m.tight, m.share = fresh, share
		return fresh
	}
	m.share = keep*m.share + (1-keep)*share
	if m.share > 1.1*float64(m.tight) || m.share < 0.9*float64(m.tight-1) {
		m.tight = int(math.Ceil(m.share))
	}
	m.tight = max(1, min(m.tight, n-1))
	return m.tight
}
