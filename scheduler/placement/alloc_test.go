//go:build !race

package placement

import "testing"

// TestPlanDoesNotAlloc checks that Plan does not allocate with room for everything, with room for half, and when a
// third is evicted for another.
func TestPlanDoesNotAlloc(t *testing.T) {
	for _, nodes := range []int{1, 16} {
		for _, room := range []float64{1.5, 0.5} {
			in, p, out := largeInput(200, nodes, room), New(), &Output{}
			for _, change := range []func(){func() {}, func() { applyPlan(in, out) }, func() { swapIdle(in) }} {
				change()
				p.Plan(in, out)
				if n := testing.AllocsPerRun(20, func() { p.Plan(in, out) }); n > 0 {
					t.Errorf("%d nodes with room for %g of what is wanted: %v allocations a plan", nodes, room, n)
				}
			}
		}
	}
}
