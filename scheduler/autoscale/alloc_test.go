//go:build !race

package autoscale

import "testing"

// TestDecideAllocNothing checks that a tick does not allocate, whatever arrives.
func TestDecideAllocNothing(t *testing.T) {
	for name, d := range map[string]decider{"Scaler": new(Scaler), "Knative": new(Knative)} {
		in := newWorld(d).sample
		i := uint64(0)
		if n := testing.AllocsPerRun(5000, func() {
			i++
			in.Now += 0.25e9
			in.Arrived += i / 10
			in.Refused += i / 1000
			in.Queued = int(i % 7)
			in.Known = i%1000 > 100
			in.Config.WindowNanos = 60e9 + int64(i/1000)*1e9
			in.Wanted = d.Decide(&in).Replicas
			in.Ready = in.Wanted
		}); n != 0 {
			t.Errorf("%s: %v allocations a tick", name, n)
		}
	}
}
