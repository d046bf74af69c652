package scheduler

// Plan is what an epoch decides for one model version: see package planner, which makes plans, and this package's essay
// for what dispatch makes of each field. The zero value changes nothing. A plan may also be written by hand.
type Plan struct {
	// Functions is indexed like the machine's functions; those beyond its end have the zero FunctionPlan.
	Functions []FunctionPlan
	// Replicas speaks of replicas by id; those not named have the zero ReplicaPlan. Ids that are unknown are ignored:
	// a plan is made from a snapshot, and replicas die in between.
	Replicas []ReplicaPlan
	// Execution says how what waits becomes batches.
	Execution Execution
}

// Execution is how the queries that wait for a model version are made into batches.
type Execution uint8

const (
	// Whole: the replica that is picked gets as many as its cap lets in.
	Whole Execution = iota
	// Split: what waits is divided evenly between the replicas that are idle, so that they evaluate side by side.
	Split
	// Stream: every query is a batch of its own, sent behind the others as long as the replica takes more. A batch saves
	// nothing where its cost has no fixed part; single queries are answered as soon as they are done.
	Stream
)

// String is the name for people and metrics.
func (e Execution) String() string {
	switch e {
	case Whole:
		return "whole"
	case Split:
		return "split"
	case Stream:
		return "stream"
	}
	return "unknown"
}

// FunctionPlan is one function's part of a plan.
type FunctionPlan struct {
	// Weight is the function's share of the batches while others wait too. 0: the weight it was attached with.
	Weight float64
	// Shed is the part of the function's new queries, from 0 to 1, that is refused with Overloaded; those that wait already
	// stay. The refused are spread evenly among those that arrive.
	Shed float64
}

// ReplicaPlan is one replica's part of a plan.
type ReplicaPlan struct {
	ID ReplicaID
	// Cap bounds the replica's batches below what its controller allows. 0: no further bound.
	Cap int
	// HoldNanos replaces the configured hold. 0: as configured; negative: none.
	HoldNanos int64
	// ObjectiveNanos replaces the configured objective of the replica's controller, where that has one. 0: as configured.
	ObjectiveNanos int64
	// Shares are the functions' weights at this replica, by function index. Empty: the same as everywhere. A function whose
	// share is 0, or that lies beyond the end, is served here only while nobody with a share waits.
	Shares []float64
}

// SetPlan puts p in force in place of the plan before it. Nothing of p is kept; functions and replicas that join later
// run without a plan until the next one.
func (m *Machine) SetPlan(p Plan) {
	m.change()
	for i, f := range m.functions {
		if f == nil {
			continue
		}
		f.plan = FunctionPlan{}
		if i < len(p.Functions) {
			f.plan = p.Functions[i]
		}
	}
	m.execution = p.Execution
	for _, r := range m.replicas {
		r.plan, r.shares = ReplicaPlan{}, r.shares[:0]
	}
	for _, rp := range p.Replicas {
		if r := m.byID[rp.ID]; r != nil {
			r.shares = append(r.shares[:0], rp.Shares...)
			r.plan = rp
			r.plan.Shares = nil
		}
	}
	for _, r := range m.replicas {
		if len(r.shares) == 0 {
			r.round = round{} // from now on its place would not be kept
		}
		m.aim(r)
	}
	m.reweigh()
	m.forgive()
}

// forgive bounds what functions have saved up under the plan before by what a visit is worth under this one.
func (m *Machine) forgive() {
	for _, f := range m.functions {
		if f == nil {
			continue
		}
		f.deficit = min(f.deficit, f.share()/m.minWeight)
		for _, r := range m.replicas {
			if d := &r.deficits[f.index]; len(r.shares) == 0 {
				*d = 0
			} else {
				*d = min(*d, r.shareOf(f)/r.minShare)
			}
		}
	}
}

// shareOf is f's weight at replica r; 0: only what nobody else wants.
func (r *replica) shareOf(f *function) float64 {
	if len(r.shares) == 0 {
		return f.share()
	}
	if int(f.index) >= len(r.shares) || !(r.shares[f.index] > 0) { // also NaN
		return 0
	}
	return clampWeight(r.shares[f.index])
}
