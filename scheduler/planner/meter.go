package planner

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// meterNanos is the time constant of a Meter: after so long a change has shown to 63 %.
	meterNanos = 100e6
	// A rate falls four times as fast as it rises where that is no chance: when less than half of what was expected has come,
	// and that was at least clearMeter queries. Nobody shall be refused for a burst that is over.
	fallFactor = 4
	clearMeter = 20
)

// Meter finds a rate from a count that only grows, looked at whenever somebody looks. Its rate is the exponentially weighted
// mean of the past, and does not depend on how often it is looked at: two looks at a steady rate find what one would. When a
// flood ends it falls faster. The zero value is ready.
type Meter struct {
	started   bool
	at        api.Nanos
	total     uint64
	weight    float64 // how much of the past has been seen, from 0 to 1
	perSecond float64
}

// Observe takes in that the count is total at now, and returns the rate per second. The first look finds 0. A count below
// the last one was started anew, from 0. At a time that is not later than the last one nothing is taken in: what was counted
// shows at the next look.
func (m *Meter) Observe(now api.Nanos, total uint64) (perSecond float64) {
	if !m.started {
		*m = Meter{started: true, at: now, total: total}
		return 0
	}
	if now <= m.at {
		// Should the clock have gone back for good, time goes on from here.
		if m.at-now > meterNanos {
			m.at = now
		}
		return m.perSecond
	}
	nanos := float64(now) - float64(m.at)
	counted := total - m.total
	if total < m.total {
		counted = total
	}
	m.at, m.total = now, total

	keep := math.Exp(-nanos / meterNanos)
	if expected := m.perSecond * nanos / 1e9; expected >= clearMeter && float64(counted) < expected/2 {
		keep = math.Exp(-fallFactor * nanos / meterNanos)
	}
	// Of the mean over the time since the first look, this look has (1 − keep)/weight: all of it at first, so that a rate is
	// not too low while little has been seen.
	m.weight = 1 - keep*(1-m.weight)
	m.perSecond += (1 - keep) / m.weight * (float64(counted)*1e9/nanos - m.perSecond)
	return m.perSecond
}

// shareNanos is the time constant of what is known of a policy's wishes. They change as the policy learns, which is slow, and
// of few queries a shorter time would show what chance did.
const shareNanos = 1e9

// shareMeter finds what parts of a function's queries a policy wishes for each candidate, from counts that only grow, of
// which it keeps decayed sums.
type shareMeter struct {
	started bool
	at      api.Nanos
	totals  []uint64
	sums    []float64
}

func (m *shareMeter) init(candidates int) {
	m.totals, m.sums = make([]uint64, candidates), make([]float64, candidates)
}

// observe takes in what has been wished and writes the shares. As if one query had been divided by the gains before the
// first was counted, nobody's share is 0 whose gain is not, and those of few queries are not all or nothing.
func (m *shareMeter) observe(now api.Nanos, wishes Wishes, function int, candidates []Candidate) {
	keep := 1.0
	if m.started && now > m.at {
		keep = math.Exp(-(float64(now) - float64(m.at)) / shareNanos)
	}
	gains, sum := 0.0, 0.0
	for i := range candidates {
		total := wishes.Wished(function, i)
		counted := total - m.totals[i]
		if total < m.totals[i] {
			counted = total
		}
		if m.totals[i] = total; m.started {
			m.sums[i] = keep*m.sums[i] + float64(counted)
		}
		sum += m.sums[i]
		gains += gainOf(candidates[i].Gain)
	}
	m.started, m.at = true, now
	for i := range candidates {
		prior := 1 / float64(len(candidates))
		if gains > 0 {
			prior = gainOf(candidates[i].Gain) / gains
		}
		candidates[i].Share = (m.sums[i] + prior) / (sum + 1)
	}
}
