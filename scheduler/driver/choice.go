package driver

import (
	"math"
	"sync/atomic"
)

// Choice is what the plan says of one function, as the query path reads it: which of its candidates a query goes to. It is
// written once in an epoch and read for every query; both without a lock.
type Choice struct {
	planned atomic.Bool     // false: every query goes to the first candidate, and nothing below is looked at
	upTo    []atomic.Uint64 // bits of the sum of the parts up to each candidate
	turn    atomic.Uint64
	refused atomic.Uint64
	wake    *Lane // told of refusals, which no lane would see; may be nil
}

// NewChoice makes the choice of a function with so many candidates. lane is the first one's.
func NewChoice(candidates int, lane *Lane) *Choice {
	return &Choice{upTo: make([]atomic.Uint64, candidates), wake: lane}
}

// goldenRatio is the fractional part of the golden ratio, as a fraction of 2^64: its multiples are spread most evenly over
// the unit interval (Knuth, The Art of Computer Programming, volume 3, section 6.4), so that each candidate gets its part
// of the queries not only in the long run.
const goldenRatio = 0x9e3779b97f4a7c15

// Pick says which candidate the next query goes to; -1: it is to be refused.
func (c *Choice) Pick() int {
	if !c.planned.Load() {
		return 0
	}
	u := float64(c.turn.Add(1)*goldenRatio>>11) / (1 << 53)
	for i := range c.upTo {
		if u < math.Float64frombits(c.upTo[i].Load()) {
			return i
		}
	}
	return -1
}

// Refuse counts n queries that were refused because Pick said so: the planner is to know of them, for no lane does.
func (c *Choice) Refuse(n int) {
	c.refused.Add(uint64(n))
	if c.wake != nil {
		c.wake.stir()
	}
}

// Set puts parts in force: for each candidate the part of the queries that goes to it. nil means that all go to the first.
func (c *Choice) Set(parts []float64) {
	if len(parts) == 0 || parts[0] >= 1 {
		c.planned.Store(false)
		return
	}
	sum := 0.0
	for i := range c.upTo {
		if i < len(parts) && parts[i] > 0 {
			sum += parts[i]
		}
		upTo := sum
		if upTo > 1-1e-9 {
			upTo = 2 // the last one takes what rounding leaves
		}
		c.upTo[i].Store(math.Float64bits(upTo))
	}
	c.planned.Store(true)
}

// Refused is how many queries have been refused.
func (c *Choice) Refused() uint64 { return c.refused.Load() }
