package driver

import (
	"math"
	"sync/atomic"

	"github.com/xebec-serving/xebec/scheduler/planner"
)

// Choice is the plan for one function, as the query path reads it: which of its candidates a query goes to, or may go
// to. It is written once per epoch and read for every query, both without a lock. In the other direction it carries to
// the planner what only the query path sees: arrivals, refusals, and the candidates that the policy wished for.
//
// The mode decides which methods apply. One: Pick. All: CountArrived and Members. Shares: ShouldRefuse, Limits and
// CountWish. CountRefused and SetGains apply to all modes.
type Choice struct {
	mode planner.Mode
	lane *Lane // marked active by queries that may reach no lane; may be nil

	// planned is the table in force; nil: no limits. A reader that stalls until its table is written again reads a
	// mixture of two plans, which is as good as either.
	planned atomic.Pointer[table]
	tables  [3]table
	next    int

	_       [64]byte // keeps what every query writes off the cache line of what every query reads
	turn    atomic.Uint64
	arrived atomic.Uint64
	refused atomic.Uint64
	wished  []atomic.Uint64 // by candidate

	gains []atomic.Uint64 // by candidate: bits of the policy's gain, of NaN until it reports one
}

// table is the plan of a function. Its numbers are the bits of floating-point numbers.
type table struct {
	// values has an entry per candidate. One: the sum of the parts up to it. All: its part. Shares: its limit.
	values    []atomic.Uint64
	from      []atomic.Uint64 // All: where on the circle its part begins, see planner.FunctionPlan.Pick
	answered  atomic.Uint64   // Shares: the part of the queries that is not refused
	unlimited atomic.Bool     // Shares: there are only refusals, no limits
	drops     atomic.Uint64   // All, Shares: the set of candidates whose value is below 1
}

// NewChoice makes the choice of a function with this many candidates, at most 64. lane is the first candidate's.
func NewChoice(mode planner.Mode, candidates int, lane *Lane) *Choice {
	c := &Choice{mode: mode, lane: lane, wished: make([]atomic.Uint64, candidates), gains: make([]atomic.Uint64, candidates)}
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

// goldenRatio is the fractional part of the golden ratio, as a fraction of 2^64. Its multiples are spread most evenly
// over the unit interval (Knuth, The Art of Computer Programming, volume 3, section 6.4), so each candidate gets its
// part of the queries over short runs too.
const goldenRatio = 0x9e3779b97f4a7c15

// point is the next query's point in the unit interval.
func (c *Choice) point() float64 { return float64(c.turn.Add(1)*goldenRatio>>11) / (1 << 53) }

// Pick returns the candidate of the next query of a function with mode One; -1: refuse it.
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

// Members is the set of candidates that the next query of a function with mode All may ask: bit i stands for candidate
// i. All ones: any. 0: refuse the query.
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

// ShouldRefuse reports whether to refuse the next query of a function with mode Shares, because the plan has no room for it
// at any candidate.
func (c *Choice) ShouldRefuse() bool {
	t := c.planned.Load()
	if t == nil {
		return false
	}
	answer := load(&t.answered)
	return answer < 1 && c.point() >= answer
}

// Limits writes, for each candidate of a function with mode Shares, which part of the policy's wishes there is room
// for, from 0 to 1. It writes into dst, which has room for all candidates, and returns the part of dst that it used. It
// usually returns nil: there is room for everything. Queries withheld by a limit go to candidates with limit 1. If
// there are none, the policy chooses. The plan counts on all queries that are not refused being evaluated.
func (c *Choice) Limits(dst []float64) []float64 {
	t := c.planned.Load()
	if t == nil || t.unlimited.Load() {
		return nil
	}
	for i := range t.values {
		dst[i] = load(&t.values[i])
	}
	return dst[:len(t.values)]
}

// CountWish counts a query that the policy would give to candidate i if there were no limits. It is called for queries that
// need the scheduler, refused ones included.
func (c *Choice) CountWish(i int) { c.wished[i].Add(1) }

// CountArrived counts n queries of a function with mode All that need the scheduler, refused ones included.
func (c *Choice) CountArrived(n int) {
	c.arrived.Add(uint64(n))
	c.markLaneActive()
}

// CountRefused counts n queries that were refused because of Pick, Members or ShouldRefuse. No lane sees them, so the planner
// learns of them here.
func (c *Choice) CountRefused(n int) {
	c.refused.Add(uint64(n))
	c.markLaneActive()
}

func (c *Choice) markLaneActive() {
	if c.lane != nil && !c.lane.active.Load() {
		c.lane.markActive()
	}
}

// SetGains sets what an answer of each candidate is worth to the policy, from 0 to 1. It may be called at any time, by
// one caller at a time; each epoch reads it once. A gain of NaN leaves the declared one in force.
func (c *Choice) SetGains(gains []float64) {
	for i := range min(len(gains), len(c.gains)) {
		store(&c.gains[i], gains[i])
	}
}

// gain is the value that SetGains stored.
func (c *Choice) gain(i int) (gain float64, ok bool) {
	gain = load(&c.gains[i])
	return gain, !math.IsNaN(gain)
}

// Refused is the number of queries that have been refused.
func (c *Choice) Refused() uint64 { return c.refused.Load() }

// Limited is the set of candidates that the plan limits. With mode All: members left out of some or all queries. With
// mode Shares: candidates that get less than the policy wishes.
func (c *Choice) Limited() uint64 {
	if t := c.planned.Load(); t != nil {
		return t.drops.Load()
	}
	return 0
}

// counted is the count for the planner.Collector: arrivals with mode All, refusals with the others.
func (c *Choice) counted() uint64 {
	if c.mode == planner.All {
		return c.arrived.Load()
	}
	return c.refused.Load()
}

// Set puts a plan in force, one caller at a time. nil removes all limits.
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

// limits reports whether the plan differs from running without one.
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

// fullPart: parts above it count as 1, to allow for rounding.
const fullPart = 1 - 1e-9

func (t *table) pick(parts []float64) {
	sum := 0.0
	for i := range t.values {
		sum += partOf(parts, i)
		upTo := sum
		if upTo > fullPart {
			upTo = 2 // the last one takes the rounding error
		}
		store(&t.values[i], upTo)
	}
}

func (t *table) members(parts []float64) {
	at, drops := 0.0, uint64(0)
	for i := range t.values {
		part := partOf(parts, i)
		if part > fullPart {
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
	store(&t.answered, 1-max(0, p.Refused))
	t.unlimited.Store(p.Limits == nil)
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

// partOf is parts[i] clamped to between 0 and 1; 0 if there is none.
func partOf(parts []float64, i int) float64 {
	if i < len(parts) && parts[i] > 0 {
		return min(parts[i], 1)
	}
	return 0
}

// Planned writes what is in force into dst, which has room for all candidates: the parts of the queries, or with mode
// Shares the limits. It returns the part of dst that it used, or nil if nothing is limited. It is for display.
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
