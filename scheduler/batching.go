package scheduler

// controller finds the largest batch that a replica should get.
type controller interface {
	// cap is the most queries that the next batch may have, at least 1.
	cap() int
	// observe learns from a batch of n queries. full means that n was the cap when the batch was sent; the cap may have
	// moved since.
	observe(n int, full bool, evalNanos int64)
	// settled reports whether the cap has reached its limit, so that it shows what the replica can do.
	settled() bool
}

// newController makes a controller for b, whose defaults are filled in. Without an objective only MaxBatch bounds a
// batch.
func newController(b Batching) controller {
	switch {
	case b.Pad:
		return fixedCap(b.MaxBatch)
	case b.Policy == None:
		return fixedCap(1)
	case b.Policy == Fixed || b.ObjectiveNanos == 0:
		return fixedCap(b.MaxBatch)
	case b.Policy == Quantile:
		return newQuantile(b)
	}
	return &aimd{size: startSize, max: b.MaxBatch, objectiveNanos: b.ObjectiveNanos}
}

// carryOver initializes now, a new controller, with what is known of its replica: what the previous controller learned,
// or the profile p if that one did not measure times.
func carryOver(before, now controller, p *profile) {
	if old, ok := before.(*quantile); ok {
		if q, ok := now.(*quantile); ok {
			q.inherit(old)
			return
		}
	}
	start := startSize
	var most int
	var objectiveNanos int64
	switch c := now.(type) {
	case *aimd:
		most, objectiveNanos = c.max, c.objectiveNanos
	case *quantile:
		most, objectiveNanos = c.max, int64(c.objectiveNanos)
	default:
		return
	}
	if _, unjudged := before.(fixedCap); !unjudged {
		start = min(before.cap(), most)
	} else if p.samples > 0 {
		start = max(startSize, p.within(objectiveNanos, most))
	}
	switch c := now.(type) {
	case *aimd:
		c.size, c.carried = start, before.settled()
	case *quantile:
		c.size, c.full = start, start
	}
}

type fixedCap int

func (c fixedCap) cap() int                 { return int(c) }
func (c fixedCap) observe(int, bool, int64) {}
func (c fixedCap) settled() bool            { return true }

const (
	// startSize: a replica about which nothing is known gets its first queries one by one.
	startSize = 1
	// aimdStep is added after a full batch that took less than aimdRest of the objective.
	aimdStep = 2
	aimdRest = 0.9
	// aimdSmall is the cap below which a step of 2 is more than a tenth and may lead from below 90 % of the objective
	// to above it: 20 × 0.9 → 22 × 0.9/20 = 0.99, but 3 × 0.9 → 5 × 0.9/3 = 1.5.
	aimdSmall = 20
	// aimdQuick is how many full batches in a row must prove a larger cap, each below aimdFar of the objective, before
	// that is not luck.
	aimdQuick = 8
	aimdFar   = 0.75
	// aimdDouble of the objective proves twice the size.
	aimdDouble = aimdRest / 2
	// A small cap that a miss brought down is raised again after this many full batches. Each further miss doubles the
	// number, so that a cap of 3 where 4 misses does not miss with every second batch.
	aimdMinPatience = 16
	aimdMaxPatience = 256
)

// aimd is additive increase, multiplicative decrease (Crankshaw et al., Clipper, NSDI 2017, section 4.3.1) with a fast
// start, as TCP has before its additive increase (Jacobson, Congestion Avoidance and Control, SIGCOMM 1988).
//
// A full batch of 100 that took 17.9 ms of 20 ms raises the cap to 102; at 18 ms it stays; at 20.1 ms it falls to 90.
//
// The fast start cannot overshoot. A batch of n takes T(n) = a + b·n, where the fixed part a is not negative. Then for
// any k ≥ 1
//
//	T(k·n) = a + k·b·n ≤ k·a + k·b·n = k·T(n)
//
// so a batch of n that took t proves that a batch of n × 90 % × objective / t takes at most 90 % of the objective. The
// cap goes there at once, but at most to 2·n, because t is a single measurement: a batch that took at most 45 % of the
// objective doubles the cap. (From 20 on, 2 more are within the objective by the same proof. Below 20, a cap below 90 %
// goes up by one without proof; otherwise a cap of 1 at half of the objective would stay forever.)
//
// The start ends when a full batch takes 90 % of the objective, or any batch misses it. After that, one quick batch may
// be luck where times scatter. After [aimdQuick] quick batches in a row the replica has become faster, and the cap goes
// to the size that the slowest of them proves; if even that batch was below 45 %, the fast start begins again. A
// replica that becomes slower misses repeatedly, and each miss removes a tenth. A single pause, however long, is one
// miss.
type aimd struct {
	size, max      int
	objectiveNanos int64
	limitMet       bool    // the fast start is over
	carried        bool    // the previous controller had settled: the replica is known well enough to plan with
	missed         bool    // the previous batch missed
	quick          int     // full batches in a row that prove a larger cap
	worst          float64 // the largest share of the objective that one of them took
	proven         int     // the cap that all of them prove
	waited         int     // full batches since a small cap last moved
	patience       int     // how many of them are needed before one more is tried
}

func (c *aimd) cap() int { return c.size }

func (c *aimd) settled() bool { return c.limitMet || c.carried || c.size == c.max }

func (c *aimd) observe(n int, full bool, evalNanos int64) {
	if n < 1 || n > c.size {
		// It was sent before the cap was lowered. A miss brings no news. A hit must not clear missed either: where
		// batches are pipelined, one of two misses would be forgotten.
		return
	}
	share := float64(max(evalNanos, 1)) / float64(c.objectiveNanos)
	missed := c.missed
	c.missed = share > 1
	switch {
	case c.missed:
		// Batches far from full occur at low load, where the cap could not grow back. One that misses may have been
		// delayed by chance; two in a row show that the replica is slow.
		if 2*n > c.size || missed {
			c.lower()
		}
	case !full:
		// A batch that the cap did not limit says nothing about a larger one.
	case share >= aimdRest:
		c.limitMet = true
		c.quick = 0
	default:
		c.raise(n, share)
	}
}

func (c *aimd) lower() {
	if c.size < aimdSmall {
		c.patience = min(aimdMaxPatience, max(aimdMinPatience, 2*c.patience))
	}
	c.size = max(1, c.size*9/10)
	c.limitMet = true
	c.quick, c.waited = 0, 0
}

// raise handles a full batch of n that took that share of the objective, less than aimdRest.
func (c *aimd) raise(n int, share float64) {
	proven := int(float64(n) * min(2, aimdRest/share))
	if share >= aimdFar {
		c.quick = 0
	} else if proven > c.size && c.limitMet {
		c.quickBatch(share, proven)
	}
	next := n + aimdStep
	switch {
	case !c.limitMet && n < aimdSmall:
		next = max(n+1, proven)
	case !c.limitMet:
		next = max(next, proven)
	case n < aimdSmall:
		next = min(next, max(n+1, proven))
		if c.waited++; c.waited < c.patience {
			next = n
		}
	}
	if next = min(next, c.max); next > c.size {
		c.size = next
		c.waited = 0
	}
}

// quickBatch handles a full batch that was quick enough to prove a larger cap than the current one.
func (c *aimd) quickBatch(share float64, proven int) {
	if c.quick == 0 {
		c.worst, c.proven = share, proven
	}
	c.quick++
	c.worst, c.proven = max(c.worst, share), min(c.proven, proven)
	if c.quick < aimdQuick {
		return
	}
	c.size = max(c.size, min(c.proven, c.max))
	c.limitMet = c.worst > aimdDouble
	c.quick, c.waited, c.patience = 0, 0, 0
}
