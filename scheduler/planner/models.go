package planner

import (
	"math"

	"github.com/xebec-serving/xebec/scheduler"
)

// planModels writes the plan of every model version.
func (p *Planner) planModels() {
	for i := range p.in.Models {
		m, im, out := &p.models[i], &p.in.Models[i], &p.out.Models[i]
		*out = ModelPlan{Known: m.known, Capacity: m.capacity, Demand: m.wished, Planned: m.planned}
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

// replicas writes the parts of a plan that speak of single replicas.
func (p *Planner) replicas(m *model, im *Model, plan *scheduler.Plan, hold int64, d dedication) {
	plan.Replicas = more(&p.out.replicas, len(im.Replicas))
	if d.tight == 0 {
		for i := range plan.Replicas {
			plan.Replicas[i] = scheduler.ReplicaPlan{ID: im.Replicas[i].ID, Cap: m.deviceCap, HoldNanos: hold}
		}
		return
	}
	shares := p.groupShares(im, plan, &d)
	for i := range plan.Replicas {
		rp := &plan.Replicas[i]
		if i < d.tight {
			*rp = scheduler.ReplicaPlan{ID: im.Replicas[i].ID, Cap: d.tightCap, HoldNanos: hold, Shares: shares[1]}
			continue
		}
		*rp = scheduler.ReplicaPlan{
			ID: im.Replicas[i].ID, Cap: m.deviceCap, HoldNanos: hold, Shares: shares[0], ObjectiveNanos: d.looseNanos,
		}
	}
}

// groupShares are the sub-queues' shares at the replicas for the others, and at those for tight objectives: their weights,
// where they belong.
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

// dedication is which replicas serve which sub-queues: the first, tight of them, those whose objective is below looseNanos'
// double, the others the rest. The zero value: all serve all.
type dedication struct {
	tight, tightCap int
	boundNanos      int64 // objectives below it are tight
	looseNanos      int64 // two fifths of the smallest that is not, as an objective is by default; 0: none
}

// group is 1 for a sub-queue whose objective is tight, 0 for the others.
func (d *dedication) group(q *Queue) int {
	group := 0
	if uint64(q.SLONanos-1) < uint64(d.boundNanos-1) { // from 1 to less than the bound
		group = 1
	}
	return group
}

// apart is by how much two objectives must differ for replicas of their own: what the tight one allows is then at most a
// third of what the other does.
const apart = 3

// Where a large batch pays at all: its fixed cost in queries.
const dedicateKnee, dedicateKneeEnd = 4, 3

// leastTraffic is how many queries per second the functions on either side must have.
const leastTraffic, leastTrafficEnd = 1.0, 0.5

// dedicate decides whether the functions with tight objectives get replicas of their own, and how many: by the time that
// they and the others need. Small batches for those in a hurry, and large ones for the rest, together do more than batches
// for all that those in a hurry can wait for.
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
	if d.boundNanos < math.MaxInt64/apart {
		d.boundNanos *= apart
	}
	if m.loosestNanos < d.boundNanos {
		return mem.shared() // there is nobody on the other side
	}
	looseNanos := int64(math.MaxInt64)
	var sums [2]float64 // of the others, and of the tight ones
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
	if aim := looseNanos * 2 / 5; aim > 0 && !im.FixedObjective { // not above 0 where there is none
		d.looseNanos = aim
	}
	loose, tight := sums[0], sums[1]
	d.tightCap = min(m.cap, fits(float64(m.tightestNanos)/2, m.intercept, m.slope))
	if tight < traffic || loose < traffic || d.tightCap < 1 {
		return mem.shared()
	}
	// Time for the tight functions, at their batches, against the time for the others, at theirs.
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

// shared forgets a dedication: all serve all.
func (m *modelMemory) shared() dedication {
	if m != nil {
		m.tight, m.share, m.tightCap = 0, 0, 0
	}
	return dedication{}
}

// steadyTight is how many of n replicas the tight functions have, where they need share of them now: what they had, unless
// the mean of what they need is well beyond that.
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
