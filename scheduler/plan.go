package scheduler

// Plan holds an epoch's decisions for one model version. Package planner makes plans; this package's comment says what
// dispatch makes of each field. The zero value changes nothing. A plan may also be written by hand.
type Plan struct {
	// Functions is indexed like the machine's functions; functions beyond its end have the zero FunctionPlan.
	Functions []FunctionPlan
	// Replicas lists replicas by id; those not listed have the zero ReplicaPlan. Unknown ids are ignored: a plan is
	// made from a snapshot, and replicas die in between.
	Replicas []ReplicaPlan
	// Execution says how waiting queries become batches.
	Execution Execution
}

// Execution is how the waiting queries of a model version are made into batches.
type Execution uint8

const (
	// Whole: the chosen replica gets as many queries as its cap admits.
	Whole Execution = iota
	// Split: the waiting queries are divided evenly between the idle replicas, which evaluate them in parallel.
	Split
	// Stream: every query is a batch of its own, sent behind the others as long as the replica takes more. Without a
	// fixed cost per batch, batching saves nothing, and single queries are answered as soon as they are done.
	Stream
)

// String is the name for display and metrics.
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
	// Weight is the function's share of the batches while other functions' queries wait too. 0: the weight it was
	// attached with.
	Weight float64
	// Shed is the part of the function's new queries, from 0 to 1, that is refused with Overloaded; queries that
	// already wait stay. Refusals are spread evenly among the arrivals.
	Shed float64
}

// ReplicaPlan is one replica's part of a plan.
type ReplicaPlan struct {
	ID ReplicaID
	// Cap bounds the replica's batches below what its controller allows. 0: no further bound.
	Cap int
	// HoldNanos replaces the configured hold. 0: as configured; negative: none.
	HoldNanos int64
	// ObjectiveNanos replaces the configured objective of the replica's controller, if one is configured. 0: as
	// configured.
	ObjectiveNanos int64
	// Shares are the functions' weights at this replica, by function index. Empty: the same as everywhere. A function
	// whose share is 0, or that lies beyond the end, is served here only while no query of a function with a share
	// waits.
	Shares []float64
}

// SetPlan replaces the plan in force with p. The machine keeps no reference to p. Functions and replicas that join
// later run without a plan until the next one.
func (m *Machine) SetPlan(p Plan) {
	m.noteChange()
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
			r.round = round{} // its place is not kept up to date from now on
		}
		m.applyObjective(r)
	}
	m.reweigh()
	m.capDeficits()
}

// capDeficits caps the deficits saved under the previous plan at what a visit is worth under this one.
func (m *Machine) capDeficits() {
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

// shareOf is f's weight at replica r. 0: f is served only when no function with a share wants r.
func (r *replica) shareOf(f *function) float64 {
	if len(r.shares) == 0 {
		return f.share()
	}
	if int(f.index) >= len(r.shares) || !(r.shares[f.index] > 0) { // also true for NaN
		return 0
	}
	return clampWeight(r.shares[f.index])
}
