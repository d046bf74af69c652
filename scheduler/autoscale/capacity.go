package autoscale

import "math"

const (
	// batchPart is the part of the objective that a batch may take, the same as in the scheduler, which adapts batch
	// caps by it. A query waits for one batch at most and is evaluated in the next; a fifth is left for disturbances.
	batchPart = 2.0 / 5
	// maxBatch is more than any batch has. It bounds invalid caps.
	maxBatch = 1 << 20
	// defaultObjectiveNanos is the objective of a version without one. Queries should not wait longer than necessary.
	defaultObjectiveNanos = 1e9

	// A trial is a time in which the replicas had more than they could do, although the profile says otherwise. It
	// lasts a twentieth of the stable window. Two in a row are required, because one may be a pause of the machine or
	// of its neighbour.
	trialParts   = 20
	trialsInARow = 2
	// At least refusedPart of the arrivals, and minRefused queries, must have been refused: one late query is no trend.
	refusedPart = 0.01
	minRefused  = 3
	// lateByChance is the part of the queries that may be late because they arrive close together. It is a hundredth of
	// what an objective for 99 of 100 queries allows; the rest is for other causes. chanceExponent is
	// −ln(lateByChance)/2.
	lateByChance   = 1e-4
	chanceExponent = 4.605

	// doubtWindows is the number of stable windows (about an hour) after which a measurement that contradicts the
	// profile has half its weight. So a profile that is wrong all day costs some refused queries about every half hour.
	doubtWindows = 60
)

// capacity is what is known of one replica.
type capacity struct {
	// profiled is the queries/s of a replica that is always busy, by its profile, smoothed. Its batches then have batch
	// queries and take batchNanos.
	profiled, batch, batchNanos float64
	// knownNanos is how long there has been a profile, at most a stable window.
	knownNanos int64
	// measured is the queries/s of a replica with more work than it could do; 0: no measurement contradicts the
	// profile.
	measured float64
	// fits: a query alone meets its objective. If it does not, more replicas do not help.
	fits  bool
	trial trial
}

// trial observes the replicas over some ticks while their number does not change.
type trial struct {
	nanos            int64
	arrived, refused float64
	held             int // queued and in flight at its beginning
	ready            int
	ticks, busy      int
	from, to         int64 // the first and the last tick with refused queries, in nanos
	emptied          bool  // at some tick, no more queries waited than the replicas' next batches take
	failed           int   // failed trials in a row: the replicas had more than they could do
}

// full returns how many queries per second a replica serves at most; 0: unknown.
func (c *capacity) full() float64 {
	switch {
	case c.measured == 0:
		return c.profiled
	case c.profiled == 0:
		return c.measured
	}
	return min(c.profiled, c.measured)
}

// learn updates the profile from a sample, nanos after the last one.
//
// It uses the largest batch within batchPart of the objective: with 5 ms + 1 ms × n and an objective of 100 ms that is
// 35, which takes 40 ms: 875 queries/s. With a cap of 20 it is 20 in 25 ms, 800/s. The planned rate is that ×
// Utilization.
func (c *capacity) learn(in *Sample, cfg *Config, nanos int64) {
	if !in.Known {
		return
	}
	a, b := in.InterceptNanos, in.SlopeNanos
	alone := a + b
	if !(a >= 0 && b >= 0 && alone >= 1) || math.IsInf(alone, 0) {
		return // invalid profile
	}
	n := float64(clamp(in.Cap, 1, maxBatch))
	c.fits = true
	if in.SLONanos > 0 {
		objective := batchPart * float64(in.SLONanos)
		if a+b*n > objective {
			n = max(1, math.Floor((objective-a)/b))
		}
		c.fits = alone <= float64(in.SLONanos)
	}
	batch := a + b*n
	each := n / batch * 1e9 * float64(max(in.Concurrency, 1))
	if !(each > 0) {
		return // no batch of that size ends
	}
	if c.profiled == 0 {
		c.profiled, c.batch, c.batchNanos = each, n, batch
		return
	}
	// Caps and profiles move with every batch. They are smoothed over a tenth of the stable window at first, and over
	// all of it later. The time per query is smoothed, not the rate: in a profile of few batches a further query may
	// cost next to nothing, and such a rate would outweigh all others.
	c.knownNanos = min(c.knownNanos+nanos, cfg.WindowNanos)
	part := float64(nanos) / float64(nanos+max(c.knownNanos, cfg.panicNanos()))
	c.profiled = 1 / (1/c.profiled + (1/each-1/c.profiled)*part)
	c.batch += (n - c.batch) * part
	c.batchNanos += (batch - c.batchNanos) * part
}

// keepsUp reports whether no more queries wait than the next batch of each replica takes. Busy replicas always have
// some waiting, long before they are full: batches gather queries while the previous batches are evaluated.
func (c *capacity) keepsUp(in *Sample) bool {
	return float64(in.Queued) <= c.batch*float64(in.Ready)
}

// observe checks whether the replicas keep up with the arrivals of the last nanos, and measures what they do when they
// should but do not: enough of them were ready by the profile (or there is none), they were busy, and queries were
// refused or more queries waited all the time than the next batches take.
func (c *capacity) observe(in *Sample, cfg *Config, arrived, refused float64, nanos int64, needed float64) {
	if c.measured > 0 && nanos > 0 {
		c.measured *= math.Exp2(float64(nanos) / float64(doubtWindows*cfg.WindowNanos))
		if c.profiled > 0 && c.measured > c.profiled {
			c.measured = 0
		}
	}
	t := &c.trial
	enough := c.full() == 0 || float64(in.Ready) >= needed
	if in.Ready <= 0 || in.Ready != t.ready || !enough {
		*t = trial{ready: in.Ready, held: in.Queued + in.InFlight, emptied: c.keepsUp(in)}
		return
	}
	t.nanos += nanos
	t.arrived += arrived
	t.refused += refused
	t.ticks++
	if in.InFlight >= in.Ready {
		t.busy++
	}
	if refused > 0 {
		if t.to == 0 {
			t.from = t.nanos
		}
		t.to = t.nanos
	}
	t.emptied = t.emptied || c.keepsUp(in)
	if t.nanos < cfg.WindowNanos/trialParts || t.ticks < 2 {
		return
	}
	// Nothing is learned from a burst that is refused within one objective: for the rest of the time the replicas
	// served what arrived, which is not their capacity.
	manyRefused := c.fits && t.refused >= max(minRefused, refusedPart*t.arrived) && t.to-t.from >= min(objectiveNanos(in), t.nanos/2)
	failed := 0
	if 2*t.busy >= t.ticks && (manyRefused || !t.emptied) {
		failed = t.failed + 1
	}
	if failed >= trialsInARow {
		// One measurement at most doubles the number of replicas.
		served := t.arrived - t.refused - float64(in.Queued+in.InFlight-t.held)
		served = max(served, t.arrived/2)
		if each := served / float64(t.ready) / (float64(t.nanos) / 1e9); each > 0 && (c.full() == 0 || each < c.full()) {
			c.measured = each
		}
		failed = 0
	}
	*t = trial{ready: in.Ready, held: in.Queued + in.InFlight, emptied: c.keepsUp(in), failed: failed}
}

// chance models queries that arrive independently of each other. However many there are, some arrive close together.
// Queries that are in time with many replicas at 70 % are late with one: 1.5 % of them, if a batch of 7 takes two
// fifths of the objective.
type chance struct {
	full float64
	// beside is how many seconds the objective leaves beside a query's own batch; 0: no objective. begun is the number
	// of queries in the batch that a replica has just begun when the query arrives.
	beside, begun float64
}

// chance returns the model for the replicas as they are. A batch counts for at most batchPart of the objective: if a
// single query takes longer, spare replicas do not help it.
func (c *capacity) chance(sloNanos int64) chance {
	if !c.fits {
		return chance{full: c.full()}
	}
	slo := seconds(sloNanos)
	batch := min(c.batchNanos/1e9, batchPart*slo)
	return chance{full: c.full(), beside: slo - batch, begun: c.full() * batch}
}

// planned returns how many replicas serve a rate at the planned utilization, with at most lateByChance of the queries
// late by chance.
//
// In a queue with a server of C queries per second, more than B queries wait in the part exp(−2·B·(C−λ)/λ) of the time
// if λ arrive independently and are served evenly (Kingman, The Heavy Traffic Approximation in the Theory of Queues,
// 1964). What all replicas can do beside a query's own batch may wait, except for a batch that has begun: B = C·beside
// − begun. C is then the root of a quadratic equation.
//
// Batches of 7 in 200 ms and an objective of 500 ms: one replica serves 35 queries/s, B = 35 × 0.3 − 7 = 3.5, and 43 %
// of it may be used. For two replicas B = 14, which allows 75 %. With batches of 20 in 20 ms and an objective of 100
// ms, B = 60, and chance does not matter.
func (c *chance) planned(cfg *Config, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	n := cfg.planned(rate / c.full)
	if c.beside <= 0 {
		return n
	}
	if waits := n*c.full*c.beside - c.begun; waits > 0 && rate*(waits+chanceExponent) <= n*c.full*waits {
		return n // n is not used beyond its limit; this check needs no division
	}
	late, evenly := c.beside*chanceExponent*rate, c.beside*rate-c.begun
	return (c.beside*rate + c.begun + math.Sqrt(evenly*evenly+4*late)) / (2 * c.beside * c.full)
}

// used returns the part of n replicas that may be used.
func (c *chance) used(n float64) float64 {
	waits := n*c.full*c.beside - c.begun
	if waits <= 0 {
		return 0
	}
	return waits / (waits + chanceExponent)
}
