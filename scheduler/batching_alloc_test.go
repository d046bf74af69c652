//go:build !race

package scheduler

import "testing"

// TestControllersDoNotAlloc: a batch allocates nothing, even while the cap moves.
func TestControllersDoNotAlloc(t *testing.T) {
	for _, p := range []Policy{AIMD, Quantile} {
		s := newLoaded(adaptive(p, 20e6), 2, models[0])
		s.noise = lognormal(1, 0.05)
		slow := 0
		if n := testing.AllocsPerRun(3000, func() {
			if slow++; slow%200 == 0 {
				s.factor = 6 - s.factor
			}
			s.batch(1)
		}); n != 0 {
			t.Errorf("%v: %v allocations a batch", p, n)
		}
	}
}
