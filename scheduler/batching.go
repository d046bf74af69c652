package scheduler

// controller finds the largest batch that a replica should get. Quantile regression is to come as another one.
type controller interface {
	// cap is the most queries that the next batch may have, at least 1.
	cap() int
	// observe learns from a batch of n queries; full: n was all that the cap allowed.
	observe(n int, full bool, evalNanos int64)
	// settled reports whether the cap has met its limit, so that what it allows is what the replica can do.
	settled() bool
}

func newController(b Batching) controller {
	switch {
	case b.Pad, b.Policy == Fixed, b.Policy == AIMD && b.ObjectiveNanos == 0:
		return fixedCap(b.MaxBatch)
	case b.Policy == None:
		return fixedCap(1)
	}
	return &aimd{size: aimdStart, max: b.MaxBatch, objectiveNanos: b.ObjectiveNanos}
}

type fixedCap int

func (c fixedCap) cap() int                 { return int(c) }
func (c fixedCap) observe(int, bool, int64) {}
func (c fixedCap) settled() bool            { return true }

const (
	// aimdStart: a replica of which nothing is known gets its first queries one by one.
	aimdStart = 1
	// aimdStep is added after a full batch well within the objective.
	aimdStep = 2
)

// aimd is additive increase, multiplicative decrease. A full batch of 100 that took 17.9 ms of 20 ms raises the cap to
// 102; at 18 ms it stays; at 20.1 ms it falls to 90.
type aimd struct {
	size, max      int
	objectiveNanos int64
	met            bool
}

func (c *aimd) cap() int { return c.size }

func (c *aimd) settled() bool { return c.met || c.size == c.max }

func (c *aimd) observe(n int, full bool, evalNanos int64) {
	switch {
	case evalNanos > c.objectiveNanos:
		c.size = max(1, c.size*9/10)
		c.met = true
	case !full:
		// A batch that the cap did not limit says nothing about a larger one.
	case evalNanos*10 >= c.objectiveNanos*9:
		c.met = true
	default:
		c.size = min(c.max, c.size+aimdStep)
	}
}
