//go:build !race

package selection

import (
	"math"
	"testing"
)

// TestPoliciesDoNotAlloc: no registered policy allocates for a query or for feedback.
func TestPoliciesDoNotAlloc(t *testing.T) {
	for _, name := range Names() {
		for _, width := range []int{0, 4} {
			b := newCycle(t, name, 64, width)
			if n := testing.AllocsPerRun(200, b.selectOnce); n > 0 {
				t.Errorf("%s: Select allocates %v times", name, n)
			}
			if n := testing.AllocsPerRun(200, b.combineOnce); n > 0 {
				t.Errorf("%s: Combine of width %d allocates %v times", name, width, n)
			}
			if n := testing.AllocsPerRun(200, b.observeOnce); n > 0 {
				t.Errorf("%s: Observe allocates %v times", name, n)
			}
			dst := make([]float64, 64)
			if n := testing.AllocsPerRun(200, func() {
				b.p.Shares(b.q.State, b.q.Allowed, dst)
				b.p.Gains(b.q.State, dst)
				CandidateWeights(b.p, b.q.State, dst)
			}); n > 0 {
				t.Errorf("%s: Shares, Gains and Weigh allocate %v times", name, n)
			}
		}
	}
	loss, a, b := Loss{Kind: Squared, Scale: 2}, make([]float64, 100), make([]float64, 100)
	if n := testing.AllocsPerRun(200, func() { a[0] += loss.Of(a, b) + math.SmallestNonzeroFloat64 }); n > 0 {
		t.Errorf("a loss allocates %v times", n)
	}
}
