//go:build !race

package drift

import (
	"math/rand/v2"
	"testing"
)

func TestObserveAllocatesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	watch := NewWatch(world{}.baseline(r, 1000))
	in, out := (world{}).query(r)
	// More than a window, so that the windows are swapped.
	if n := testing.AllocsPerRun(2*windowQueries, func() { observe(watch, in, out) }); n != 0 {
		t.Errorf("Observe allocates %g times", n)
	}
}
