package learned

import "math"

// ledger is what a state that has learned something keeps beside the numbers that policies see, until the store has it too.
// The invariant: value = total + flying + delta.
type ledger struct {
	// total is the state as the store is known to have it, or, where the store has none, what the state started from here:
	// the Base of what is sent.
	total []float64
	// flying has been sent, and its answer has not come: it may or may not be part of the store's total.
	inFlight []float64
	// delta has not been sent.
	delta []float64
}

// width of a ledger's memory, in vectors.
const ledgerVectors = 3

func ledgerIn(v []float64) ledger {
	n := len(v) / ledgerVectors
	return ledger{total: v[:n:n], inFlight: v[n : 2*n : 2*n], delta: v[2*n:]}
}

// open begins a ledger for a state of which the store knows everything.
func (l ledger) open(value []float64) {
	copy(l.total, value)
	clear(l.inFlight)
	clear(l.delta)
}

// depart moves what has not been sent to what has.
func (l ledger) startFlight() {
	copy(l.inFlight, l.delta)
	clear(l.delta)
}

// sum writes what policies see.
func (l ledger) sum(value []float64) {
	for i := range value {
		value[i] = l.total[i] + l.inFlight[i] + l.delta[i]
	}
}

// settled reports whether nothing is left to be sent or answered.
func (l ledger) settled() bool { return isZero(l.inFlight) && isZero(l.delta) }

// adopt writes the ledger of a state whose value has been composed from one of another layout. What has not been sent is carried
// on for the candidates that stay; what the others had goes into the totals of their heirs.
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
