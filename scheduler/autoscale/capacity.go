package autoscale

import "math"

const (
	// batchPart is the part of the objective that a batch may take: the scheduler's own, by which batch caps adapt. A query waits for one
	// batch at most and is evaluated in the next; a fifth is left for what goes wrong.
	batchPart = 2.0 / 5
	// maxBatch is more than any batch has: it catches what is no cap.
	maxBatch = 1 << 20
	// openNanos takes the objective's place where there is none: nobody waits longer than necessary, but nobody has said how long that is.
	openNanos = 1e9

	// A trial is a time in which the replicas had more than they could do, as their profile does not explain: a twentieth of the stable
	// window, two in a row. One is a pause of the machine, or of its neighbour.
	trialParts   = 20
	trialsInARow = 2
	// refusedPart of what came must have been refused, and minRefused at least: one late query is not a trend.
	refusedPart = 0.01
	minRefused  = 3
	// lateByChance is the part of the queries that is late because they come close together. It is a hundredth of what an objective for 99 of
	// 100 allows: the rest is for what has causes. chanceExponent is −ln(lateByChance)/2.
	lateByChance   = 1e-4
	chanceExponent = 4.605

	// doubtWindows is how many stable windows it takes until a measurement that contradicts the profile has half its weight: an hour. A
	// profile that is wrong in the same way all day costs some refused queries every half hour, then.
	doubtWindows = 60
)

// capacity is what is known of a replica.
type capacity struct {
	// profiled is how many queries per second one serves by its profile, always busy; smoothed. Its batches then have batch queries and take
	// batchNanos.
	profiled, batch, batchNanos float64
	// knownNanos is how long there has been a profile, at most a stable window.
	knownNanos int64
	// measured is how many it served when it had more than it could do; 0: that has not been seen to contradict the profile.
	measured float64
	// fits: a query alone meets its objective. Where it does not, more replicas do not help it.
	fits  bool
	trial trial
}

// trial looks at the replicas over some ticks, in which their number does not change.
type trial struct {
	nanos            int64
	arrived, refused float64
	held             int // queued and in flight when it began
	ready            int
	ticks, busy      int
	from, to         int64 // the first and the last tick at which queries had been refused, in nanos
	emptied          bool  // at a tick, no more waited than the replicas' next batches
	failed           int   // trials in a row in which they had more than they could do
}

// full is how many queries per second a replica serves at most; 0: nobody knows.
func (c *capacity) full() float64 {
	switch {
	case c.measured == 0:
		return c.profiled
	case c.profiled == 0:
		return c.measured
	}
	return min(c.profiled, c.measured)
}

// learn takes over what the sample says of a replica, of which the last time was nanos ago.
//
// The largest batch within batchPart of the objective: with 5 ms + 1 ms × n and an objective of 100 ms that is 35, which takes 40 ms: 875
// queries per second. A cap of 20 makes that 20 in 25 ms, 800. What is planned with is that × Utilization.
func (c *capacity) learn(in *Sample, cfg *Config, nanos int64) {
	if !in.Known {
		return
	}
	a, b := in.InterceptNanos, in.SlopeNanos
	alone := a + b
	if !(a >= 0 && b >= 0 && alone >= 1) || math.IsInf(alone, 0) {
		return // no profile says that
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
	each := n / batch * 1e9
	if !(each > 0) {
		return // no batch of that size ends
	}
	if c.profiled == 0 {
		c.profiled, c.batch, c.batchNanos = each, n, batch
		return
	}
	// Caps and profiles move with every batch; a tenth of the stable window smooths that at first, and all of it later. It is the time for a
	// query that is smoothed: by a profile of few batches one query more may cost next to nothing, and as a rate that would outweigh all others.
	c.knownNanos = min(c.knownNanos+nanos, cfg.WindowNanos)
	part := float64(nanos) / float64(nanos+max(c.knownNanos, cfg.panicNanos()))
	c.profiled = 1 / (1/c.profiled + (1/each-1/c.profiled)*part)
	c.batch += (n - c.batch) * part
	c.batchNanos += (batch - c.batchNanos) * part
}

// keepsUp reports whether no more waits than the next batch of each replica. Something always does where replicas are busy, and they are long
// before they are full: batches grow with what comes while those before them are evaluated.
func (c *capacity) keepsUp(in *Sample) bool {
	return float64(in.Queued) <= c.batch*float64(in.Ready)
}

// observe looks whether the replicas keep up with what came in the last nanos, and measures what they do when they should and do not: enough of
// them were ready by the profile (or there is none), they were busy, and queries were refused or more waited all the time than their next
// batches.
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
	// What comes in a bunch is refused within an objective, and nothing is learned of it: for the rest of the time they served what came, and not
	// what they can.
	turnedAway := c.fits && t.refused >= max(minRefused, refusedPart*t.arrived) && t.to-t.from >= min(objectiveNanos(in), t.nanos/2)
	failed := 0
	if 2*t.busy >= t.ticks && (turnedAway || !t.emptied) {
		failed = t.failed + 1
	}
	if failed >= trialsInARow {
		// At most twice as many are ordered because of one measurement.
		served := t.arrived - t.refused - float64(in.Queued+in.InFlight-t.held)
		served = max(served, t.arrived/2)
		if each := served / float64(t.ready) / (float64(t.nanos) / 1e9); each > 0 && (c.full() == 0 || each < c.full()) {
			c.measured = each
		}
		failed = 0
	}
	*t = trial{ready: in.Ready, held: in.Queued + in.InFlight, emptied: c.keepsUp(in), failed: failed}
}

// chance is what queries that come independently of each other ask of replicas. However many there are, some come close together, and those
// that are in time with 70 % of many replicas used are late with one: 1.5 % of them, where a batch of 7 takes two fifths of the objective.
type chance struct {
	full float64
	// beside is how many seconds the objective leaves beside a query's own batch, begun how many queries the batch has that a replica has
	// just begun when it comes; beside 0: there is no objective.
	beside, begun float64
}

// chance of replicas as they are. A batch counts for no more than it may take: where one query alone takes longer, replicas that are idle
// make no difference to it.
func (c *capacity) chance(sloNanos int64) chance {
	if !c.fits {
		return chance{full: c.full()}
	}
	slo := seconds(sloNanos)
	batch := min(c.batchNanos/1e9, batchPart*slo)
	return chance{full: c.full(), beside: slo - batch, begun: c.full() * batch}
}

// planned is how many replicas are to be there for a rate: so many that the utilization is as planned, and the part that is late by chance at
// most lateByChance.
//
// In a line with a server of C queries per second more than B wait in exp(−2·B·(C−λ)/λ) of the time if λ come by chance and are served evenly
// (Kingman, The Heavy Traffic Approximation in the Theory of Queues, 1964). What all can do beside a query's own batch may wait, but for a
// batch that has begun: B = C·beside − begun, of which C is the root of a quadratic equation.
//
// Batches of 7 in 200 ms and an objective of 500 ms: one replica serves 35 queries/s, B = 35 × 0.3 − 7 = 3.5, and 43 % of it may be used; of two
// B = 14, and it would be 75 %. With batches of 20 in 20 ms and an objective of 100 ms B = 60, and chance is of no account.
func (c *chance) planned(cfg *Config, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	n := cfg.planned(rate / c.full)
	if c.beside <= 0 {
		return n
	}
	if waits := n*c.full*c.beside - c.begun; waits > 0 && rate*(waits+chanceExponent) <= n*c.full*waits {
		return n // no more than is used of n, without a division
	}
	late, evenly := c.beside*chanceExponent*rate, c.beside*rate-c.begun
	return (c.beside*rate + c.begun + math.Sqrt(evenly*evenly+4*late)) / (2 * c.beside * c.full)
}

// used is the part of n replicas that may be used.
func (c *chance) used(n float64) float64 {
	waits := n*c.full*c.beside - c.begun
	if waits <= 0 {
		return 0
	}
	return waits / (waits + chanceExponent)
}
