package planner

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// meterNanos is the time constant of a Meter: after this time 63 % of a change shows.
	meterNanos = 100e6
	// A rate falls fallFactor times as fast as it rises if the fall is no chance: less than half of the expected count
	// arrived, and at least clearMeter queries were expected. Queries must not be refused for a burst that is over.
	fallFactor = 4
	clearMeter = 20
)

// Meter computes a rate from a growing count that is observed at any intervals. The rate is the exponentially weighted
// mean of the past and does not depend on how often it is observed: at a steady rate two observations give the same as
// one. It falls faster when a flood ends. The zero value is ready.
type Meter struct {
	started   bool
	at        api.Nanos
	total     uint64
	weight    float64 // how much of the past has been seen, from 0 to 1
	perSecond float64
}

// Observe records that the count is total at now and returns the rate per second. The first call returns 0. If the
// count is below the last one, it was restarted from 0. If now is not after the last call, nothing is recorded, and the
// next call sees what was counted.
func (m *Meter) Observe(now api.Nanos, total uint64) (perSecond float64) {
	if !m.started {
		*m = Meter{started: true, at: now, total: total}
		return 0
	}
	if now <= m.at {
		// If the clock was set back by more than meterNanos, continue from here.
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
	// This observation weighs (1 − keep)/weight in the mean since the first call: all of it at first, so that the rate
	// is not too low while little has been seen.
	m.weight = 1 - keep*(1-m.weight)
	m.perSecond += (1 - keep) / m.weight * (float64(counted)*1e9/nanos - m.perSecond)
	return m.perSecond
}

// shareNanos is the time constant for a policy's wishes. They change slowly, as the policy learns, and a shorter time
// would show the noise of few queries.
const shareNanos = 1e9

// shareMeter computes the parts of a function's queries that a policy wishes for each candidate. It keeps decayed sums
// of counts that only grow.
type shareMeter struct {
	started bool
	at      api.Nanos
	totals  []uint64
	sums    []float64
}

func (m *shareMeter) init(candidates int) {
	m.totals, m.sums = make([]uint64, candidates), make([]float64, candidates)
}

// observe records what has been wished and writes the shares. It adds one virtual query divided by the gains, so that
// no share is 0 whose gain is not, and the shares of few queries are not all or nothing.
func (m *shareMeter) observe(now api.Nanos, wishes PolicySource, function int, candidates []Candidate) {
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
