//go:build !race

package driver

import (
	"testing"

	"github.com/xebec-serving/xebec/scheduler/planner"
)

// TestNoAlloc: a query through a lane allocates nothing. (The race detector itself allocates.)
func TestNoAlloc(t *testing.T) {
	c, l := newLoopback(t)
	f := newFuture()
	for range 100 {
		f.call(c, l)
	}
	if n := testing.AllocsPerRun(1000, func() { f.call(c, l) }); n != 0 {
		t.Errorf("%v allocations for a query", n)
	}
}

// TestCorkDoesNotAlloc: nor does a query with a cork.
func TestCorkDoesNotAlloc(t *testing.T) {
	c, l := newLoopback(t)
	f := newFuture()
	var cork Cork
	for range 100 {
		f.callCorked(c, l, &cork)
	}
	if n := testing.AllocsPerRun(1000, func() { f.callCorked(c, l, &cork) }); n != 0 {
		t.Errorf("%v allocations for a query", n)
	}
}

// TestChoiceDoesNotAlloc: neither reading nor setting a plan allocates.
func TestChoiceDoesNotAlloc(t *testing.T) {
	one, all, shares := NewChoice(planner.One, 3, nil), NewChoice(planner.All, 3, nil), NewChoice(planner.Shares, 3, nil)
	p := &planner.FunctionPlan{Evaluate: []float64{0.5, 0.2, 0.2}, Limits: []float64{0.5, 0.2, 1}, Refused: 0.1}
	dst := make([]float64, 3)
	gains := []float64{0.5, 0.2, 0.1}
	if n := testing.AllocsPerRun(1000, func() {
		for _, c := range []*Choice{one, all, shares} {
			c.Set(p)
			c.SetGains(gains)
			c.CountRefused(1)
			c.Planned(dst)
		}
		one.Pick()
		all.CountArrived(1)
		all.Members()
		shares.CountWish(1)
		shares.ShouldRefuse()
		shares.Limits(dst)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
