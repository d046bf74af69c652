package scheduler

// Plan is what an epoch decides for one model version. The zero value changes nothing.
//
// The epoch planner (a pure function from a snapshot to plans) is what comes next; this is its place. A machine honours
// every field that is here already, so that a plan can also be written by hand.
type Plan struct {
	// Functions is indexed like the machine's functions; those beyond its end have the zero FunctionPlan.
	Functions []FunctionPlan
	// Replicas speaks of replicas by id; those not named have the zero ReplicaPlan. Ids that are unknown are ignored:
	// a plan is made from a snapshot, and replicas die in between.
	Replicas []ReplicaPlan
}

// FunctionPlan is one function's part of a plan.
type FunctionPlan struct {
	// Weight is the function's share of the batches while others wait too. 0: the weight it was attached with.
	Weight float64
	// Shed refuses the function's new queries with Overloaded; those that wait already stay.
	Shed bool
}

// ReplicaPlan is one replica's part of a plan.
type ReplicaPlan struct {
	ID ReplicaID
	// Cap bounds the replica's batches below what its controller allows. 0: no further bound.
	Cap int
	// HoldNanos replaces the configured hold. 0: as configured; negative: none.
	HoldNanos int64
}

// SetPlan puts p in force in place of the plan before it. Nothing of p is kept; functions and replicas that join later
// run without a plan until the next one.
func (m *Machine) SetPlan(p Plan) {
	for i, f := range m.functions {
		if f == nil {
			continue
		}
		f.plan = FunctionPlan{}
		if i < len(p.Functions) {
			f.plan = p.Functions[i]
		}
	}
	m.reweigh()
	for _, r := range m.replicas {
		r.plan = ReplicaPlan{}
	}
	for _, rp := range p.Replicas {
		if r := m.byID[rp.ID]; r != nil {
			r.plan = rp
		}
	}
}
