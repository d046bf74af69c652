package scheduler

import "math"

const (
	// priorBatches is how many batches a prior counts for before the first batch. With each batch that a replica evaluates, half of that is left.
	priorBatches = 2
	// priorForgotten is the weight below which nothing of a prior is left. It is reached with the eighth batch.
	priorForgotten = 0.01
)

// Prior is what was known of a version's evaluation times before a replica was ready, from other replicas or from before a restart: a batch
// of n is expected to take InterceptNanos + n × SlopeNanos. Batch is about the size of the batches that it is from.
//
// A replica's profile begins with it and leaves it quickly: it is two imagined batches on the prior's line, of sizes around Batch. Their weight is
// halved with each batch that the replica evaluates, so the first real batch already weighs as much as the prior, with the third nine
// tenths of the weight are real, and with the eighth the prior is forgotten. Only where all batches have one size, so that nothing is said about others,
// the prior's slope stays.
//
// A prior plans and orders: it is in [ReplicaSnapshot], for the planner and the autoscaler, and in the choice between replicas. It does not
// count as a known profile: no query is refused, held back or hedged, and no replica is taken to be hung, because of a prior.
type Prior struct {
	InterceptNanos, SlopeNanos float64
	Batch                      float64
}

// valid reports whether the prior says anything. What it is read from may be damaged.
func (p *Prior) valid() bool {
	ok := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	return ok(p.InterceptNanos) && ok(p.SlopeNanos) && ok(p.Batch) && p.InterceptNanos+p.SlopeNanos > 0
}

// SetPrior says what is known of the times of replicas that are ready from now on, and of those that have evaluated no batch yet. One
// that says nothing, or has numbers that cannot be, is ignored.
func (m *Machine) SetPrior(p Prior) {
	if !p.valid() {
		return
	}
	m.prior = p
	for _, r := range m.replicas {
		r.profile.begin(p)
	}
}

// begin starts an empty profile with a prior.
func (p *profile) begin(prior Prior) {
	if p.samples > 0 || !prior.valid() {
		return
	}
	prior.Batch = max(prior.Batch, 1)
	p.prior, p.priorWeight = prior, priorBatches
	p.intercept, p.slope = prior.InterceptNanos, prior.SlopeNanos
}

// presumed reports whether the profile is not known, but began with a prior.
func (p *profile) presumed() bool { return !p.known() && p.prior.valid() }

// addPrior returns the sums of the samples and of what is left of the prior: half of its weight at size 1, and half as far above Batch.
func (p *profile) addPrior() (w, x, y, xx, xy float64) {
	w, x, y, xx, xy = p.w, p.x, p.y, p.xx, p.xy
	if p.priorWeight == 0 {
		return w, x, y, xx, xy
	}
	half := p.priorWeight / 2
	for _, n := range [2]float64{1, max(2, 2*p.prior.Batch-1)} {
		nanos := p.prior.InterceptNanos + n*p.prior.SlopeNanos
		w, x, y, xx, xy = w+half, x+half*n, y+half*nanos, xx+half*n*n, xy+half*n*nanos
	}
	return w, x, y, xx, xy
}
