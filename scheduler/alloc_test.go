//go:build !race

package scheduler

import "testing"

// TestNoAlloc: a query allocates nothing once the machine has seen as many at once. (The race detector itself
// allocates.)
func TestNoAlloc(t *testing.T) {
	for _, functions := range []int{1, 3} {
		tn := newRoundTrip(64, functions)
		tn.mixed = true
		for range 100 {
			tn.run(t)
		}
		if n := testing.AllocsPerRun(100, func() { tn.run(t) }); n != 0 {
			t.Errorf("%d functions: %v allocations in a round trip of 64 queries", functions, n)
		}
	}
}
