package driver

import (
	"math"
	"sync/atomic"

	"github.com/xebec-serving/xebec/scheduler/planner"
)

// Choice is what the plan says of one function, as the query path reads it: which of its candidates a query goes to, or may.
// It is written once in an epoch and read for every query; both without a lock. In the other direction it carries to the
// planner what only the query path sees: who arrived, who was refused, and whom the policy would have asked.
//
// Which methods are of use follows from the mode. One: Pick. All: Arrived and Members. Shares: Refusing, Limits and Wish.
// Refuse and SetGains are for all modes.
type Choice struct {
	mode planner.Mode
	wake *Lane // told of queries that no lane may see; may be nil

	// What is in force is one of the tables; nil: nothing is limited. A reader who is held up for so long that his table is
	// being written again reads a mixture of two plans, which is as good as either.
	planned atomic.Pointer[table]
	tables  [3]table
	next    int

	_       [64]byte // what every query writes is not in the line of what every query reads
	turn    atomic.Uint64
	arrived atomic.Uint64
	refused atomic.Uint64
	wished  []atomic.Uint64 // by candidate

	gains []atomic.Uint64 // by candidate: bits of what the policy says, of NaN until it says something
}

// table is a plan of a function. Its numbers are bits of floating-point ones.
type table struct {
	// values are for each candidate, with the mode One: the sum of the parts up to it; All: its part; Shares: its limit.
	values []atomic.Uint64
	from   []atomic.Uint64 // All: where on the circle its part begins, see planner.FunctionPlan.Pick
	answer atomic.Uint64   // Shares: the part of the queries that is not refused
	free   atomic.Bool     // Shares: there are no limits, only refusals
	drops  atomic.Uint64   // All, Shares: the set of candidates whose value is below 1
}

// NewChoice makes the choice of a function with so many candidates, at most 64. lane is the first one's.
func NewChoice(mode planner.Mode, candidates int, lane *Lane) *Choice {
	c := &Choice{mode: mode, wake: lane, wished: make([]atomic.Uint64, candidates), gains: make([]atomic.Uint64, candidates)}
	for i := range c.tables {
		c.tables[i].values = make([]atomic.Uint64, candidates)
		c.tables[i].from = make([]atomic.Uint64, candidates)
	}
	for i := range c.gains {
		store(&c.gains[i], math.NaN())
	}
	return c
}

func store(a *atomic.Uint64, v float64) { a.Store(math.Float64bits(v)) }

func load(a *atomic.Uint64) float64 { return math.Float64frombits(a.Load()) }

// goldenRatio is the fractional part of the golden ratio, as a fraction of 2^64: its multiples are spread most evenly over
// the unit interval (Knuth, The Art of Computer Programming, volume 3, section 6.4), so that each candidate gets its part
// of the queries not only in the long run.
const goldenRatio = 0x9e3779b97f4a7c15

// point is the next query's point of the unit interval.
func (c *Choice) point() float64 { return float64(c.turn.Add(1)*goldenRatio>>11) / (1 << 53) }

// Pick says which candidate the next query of a function with mode One goes to; -1: it is to be refused.
func (c *Choice) Pick() int {
	t := c.planned.Load()
	if t == nil {
		return 0
	}
	u := c.point()
	for i := range t.values {
		if u < load(&t.values[i]) {
			return i
		}
	}
	return -1
}

// Members is the set of candidates that the next query of a function with mode All may ask: bit i stands for candidate i. All
// ones: any; 0: the query is to be refused.
func (c *Choice) Members() uint64 {
	t := c.planned.Load()
	if t == nil {
		return ^uint64(0)
	}
	u, set := c.point(), uint64(0)
	for i := range t.values {
		from := u - load(&t.from[i])
		if from < 0 {
			from++
		}
		if part := load(&t.values[i]); from < part || part >= 1 {
			set |= 1 << i
		}
	}
	return set
}

// Refusing reports whether the next query of a function with mode Shares is to be refused: the plan has no place for it
// anywhere.
func (c *Choice) Refusing() bool {
	t := c.planned.Load()
	if t == nil {
		return false
	}
	answer := load(&t.answer)
	return answer < 1 && c.point() >= answer
}

// Limits writes into dst, which has room for all candidates of a function with mode Shares, which part of what the policy
// wishes for each of them there is room for, from 0 to 1, and returns that part of dst; nil, which is usual: there is room
// for all of it. What is held back by a limit is to go to those who have 1, or where there are none, to be asked of whom the
// policy likes: the plan counts on all queries that are not refused.
func (c *Choice) Limits(dst []float64) []float64 {
	t := c.planned.Load()
	if t == nil || t.free.Load() {
		return nil
	}
	for i := range t.values {
		dst[i] = load(&t.values[i])
	}
	return dst[:len(t.values)]
}

// Wish counts a query that the policy would have given to candidate i, if nothing were limited: of those queries that need
// the scheduler, whether they are refused or not.
func (c *Choice) Wish(i int) { c.wished[i].Add(1) }

// Arrived counts n queries of a function with mode All that need the scheduler, refused or not.
func (c *Choice) Arrived(n int) {
	c.arrived.Add(uint64(n))
	c.rouse()
}

// Refuse counts n queries that were refused because Pick, Members or Refusing said so: the planner is to know of them, for
// no lane does.
func (c *Choice) Refuse(n int) {
	c.refused.Add(uint64(n))
	c.rouse()
}

func (c *Choice) rouse() {
	if c.wake != nil && !c.wake.stirred.Load() {
		c.wake.stir()
	}
}

// SetGains says what the policy finds an answer of each candidate worth, from 0 to 1. It may be called at any time, by one
// caller at a time; each epoch reads it once. Gains that are no number leave what is declared in force.
func (c *Choice) SetGains(gains []float64) {
	for i := range min(len(gains), len(c.gains)) {
		store(&c.gains[i], gains[i])
	}
}

// gain is what SetGains was told.
func (c *Choice) gain(i int) (gain float64, ok bool) {
	gain = load(&c.gains[i])
	return gain, !math.IsNaN(gain)
}

// Refused is how many queries have been refused.
func (c *Choice) Refused() uint64 { return c.refused.Load() }

// Dropping is the set of the members of a function with mode All that the plan leaves out of some queries or of all; with mode
// Shares, of the candidates that get less than the policy wishes.
func (c *Choice) Dropping() uint64 {
	if t := c.planned.Load(); t != nil {
		return t.drops.Load()
	}
	return 0
}

// counted is what the planner.Collector is to know: who arrived with mode All, who was refused with the others.
func (c *Choice) counted() uint64 {
	if c.mode == planner.All {
		return c.arrived.Load()
	}
	return c.refused.Load()
}

// Set puts a plan in force, one caller at a time; nil: nothing is limited any more.
func (c *Choice) Set(p *planner.FunctionPlan) {
	if p == nil || len(p.Evaluate) == 0 || !c.limits(p) {
		c.planned.Store(nil)
		return
	}
	t := &c.tables[c.next]
	c.next = (c.next + 1) % len(c.tables)
	switch c.mode {
	case planner.One:
		t.pick(p.Evaluate)
	case planner.All:
		t.members(p.Evaluate)
	default:
		t.limit(p)
	}
	c.planned.Store(t)
}

// limits reports whether the plan is another than what happens without one.
func (c *Choice) limits(p *planner.FunctionPlan) bool {
	switch c.mode {
	case planner.One:
		return p.Evaluate[0] < 1
	case planner.All:
		for _, part := range p.Evaluate {
			if part < 1 {
				return true
			}
		}
		return false
	}
	return p.Limits != nil || p.Refused > 0
}

// whole: parts above it are all, but for rounding.
const whole = 1 - 1e-9

func (t *table) pick(parts []float64) {
	sum := 0.0
	for i := range t.values {
		sum += partOf(parts, i)
		upTo := sum
		if upTo > whole {
			upTo = 2 // the last one takes what rounding leaves
		}
		store(&t.values[i], upTo)
	}
}

func (t *table) members(parts []float64) {
	at, drops := 0.0, uint64(0)
	for i := range t.values {
		part := partOf(parts, i)
		if part > whole {
			part = 1
		} else {
			drops |= 1 << i
		}
		store(&t.from[i], at)
		store(&t.values[i], part)
		if at += part; at >= 1 {
			at--
		}
	}
	t.drops.Store(drops)
}

func (t *table) limit(p *planner.FunctionPlan) {
	store(&t.answer, 1-max(0, p.Refused))
	t.free.Store(p.Limits == nil)
	drops := uint64(0)
	for i := range t.values {
		limit := 1.0
		if p.Limits != nil {
			limit = partOf(p.Limits, i)
		}
		if store(&t.values[i], limit); limit < 0.99 {
			drops |= 1 << i
		}
	}
	t.drops.Store(drops)
}

// partOf is parts[i] as a part: from 0 to 1, 0 where there is none.
func partOf(parts []float64, i int) float64 {
	if i < len(parts) && parts[i] > 0 {
		return min(parts[i], 1)
	}
	return 0
}

// Planned writes into dst, which has room for all candidates, what is in force, and returns that part of dst: the parts of
// the queries, or with mode Shares the limits. nil: nothing is limited. It is for people.
func (c *Choice) Planned(dst []float64) []float64 {
	t := c.planned.Load()
	if t == nil {
		return nil
	}
	for i := range t.values {
		v := load(&t.values[i])
		if c.mode == planner.One {
			v = min(v, 1)
			if i > 0 {
				v -= min(load(&t.values[i-1]), 1)
			}
		}
		dst[i] = v
	}
	return dst[:len(t.values)]
}
