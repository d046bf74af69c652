//go:build !race

package driver

import "testing"

// TestNoAllocation: a query through a lane costs no memory. (The race detector allocates by itself.)
func TestNoAllocation(t *testing.T) {
	c, l := newLoopback(t)
	f := newFuture()
	for range 100 {
		f.call(c, l)
	}
	if n := testing.AllocsPerRun(1000, func() { f.call(c, l) }); n != 0 {
		t.Errorf("%v allocations for a query", n)
	}
}
