//go:build !race

package planner

import "testing"

// TestPlanDoesNotAlloc checks that Plan does not allocate, with room for everything and with a demand of three times
// the capacity.
func TestPlanDoesNotAlloc(t *testing.T) {
	for _, overload := range []float64{0.05, 0.7, 3} {
		in, p, out := largeInput(200, overload), New(), &Output{}
		for i := range in.Functions {
			f := &in.Functions[i]
			if f.Background = i%11 == 0; i%3 == 1 {
				f.Mode = Shares
			}
			for c := range f.Candidates {
				f.Candidates[c].Share = 1 / float64(c+1)
			}
		}
		p.Plan(in, out)
		if n := testing.AllocsPerRun(100, func() {
			in.Now += 10e6
			p.Plan(in, out)
		}); n > 0 {
			t.Errorf("overload %v: %v allocations a plan", overload, n)
		}
	}
}
