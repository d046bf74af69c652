package versions

import (
	"testing"

	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
)

// TestLossSumNeverFalls: a loss of 0 leaves the sum of a version's losses as it is. A sum that falls, if only by a rounding error, is a
// restart to Prometheus, which would then count all of it again.
func TestLossSumNeverFalls(t *testing.T) {
	seen := new(query.Comparison)
	s := &State{c: &Catalog{}, families: map[string]*Family{"m": {Name: "m", Serving: "1", rules: rules{tee: &Rule{Kind: Shadow, serving: "1", other: "2", Seen: seen}}}}}
	seen.Other.Losses.Observe(1)
	last := 0.0
	for n := uint64(1); n <= 100; n++ {
		out := obs.LifecycleSample{Outcomes: map[string]uint64{}}
		s.Read(&out)
		if len(out.Arms) != 2 || out.Arms[1].Rule != Shadow || out.Arms[1].Feedback != n {
			t.Fatalf("after %d losses the rule is shown as %+v", n, out.Arms)
		}
		if sum := out.Arms[1].LossSum; sum < last {
			t.Fatalf("after %d losses their sum is %v, and it was %v", n, sum, last)
		} else {
			last = sum
		}
		seen.Other.Losses.Observe(0)
	}
}
