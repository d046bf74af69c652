package learned

import "math"

// ledger holds what a state with unconfirmed deltas keeps in addition to the numbers that policies see, until the store
// has them. Invariant: value = total + inFlight + delta.
type ledger struct {
	// total is the state as the store is known to have it. If the store has none, it is what the state started from on
	// this gateway, which is sent as the Base.
	total []float64
	// inFlight has been sent but not answered. It may or may not be part of the store's total.
	inFlight []float64
	// delta has not been sent.
	delta []float64
}

// ledgerVectors is the number of vectors in a ledger.
const ledgerVectors = 3

func ledgerIn(v []float64) ledger {
	n := len(v) / ledgerVectors
	return ledger{total: v[:n:n], inFlight: v[n : 2*n : 2*n], delta: v[2*n:]}
}

// open starts a ledger for a state that the store has completely.
func (l ledger) open(value []float64) {
	copy(l.total, value)
	clear(l.inFlight)
	clear(l.delta)
}

// startFlight moves delta to inFlight.
func (l ledger) startFlight() {
	copy(l.inFlight, l.delta)
	clear(l.delta)
}

// sum writes the numbers that policies see.
func (l ledger) sum(value []float64) {
	for i := range value {
		value[i] = l.total[i] + l.inFlight[i] + l.delta[i]
	}
}

// settled reports whether nothing is left to be sent or answered.
func (l ledger) settled() bool { return isZero(l.inFlight) && isZero(l.delta) }

// adopt writes the ledger of a state whose value was composed from another layout. Unsent deltas of candidates that
// stay are carried over. Those of removed candidates are already in value, and become part of their heirs' totals.
func (l ledger) adopt(c *composer, value []float64, old *layout, from ledger) {
	copy(l.total, value)
	clear(l.inFlight)
	clear(l.delta)
	c.carry(l.total, old.state(from.total))
	c.carry(l.inFlight, old.state(from.inFlight))
	c.carry(l.delta, old.state(from.delta))
	l.sum(value)
}

func isZero(v []float64) bool {
	for _, x := range v {
		if x != 0 {
			return false
		}
	}
	return true
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func add(v, delta []float64) {
	for i, d := range delta {
		v[i] += d
	}
}
