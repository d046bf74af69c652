//go:build !race

package worker_test

import (
	"testing"

	"github.com/xebec-serving/xebec/worker/workertest"
)

// A batch of fixed tensors goes to the worker and comes back without an allocation on either side.
func TestAllocsBatch(t *testing.T) {
	for _, poller := range workertest.Pollers {
		for _, ring := range []bool{true, false} {
			t.Run(string(poller)+map[bool]string{true: "/ring", false: "/socket"}[ring], func(t *testing.T) {
				l := startLoad(t, poller, inThisProcess(ring), 64, 64, 1)
				defer l.stop()
				for range 100 { // buffers grow to the traffic
					l.one()
				}
				if n := testing.AllocsPerRun(2000, l.one); n != 0 {
					t.Errorf("%v allocations for a batch, expected 0", n)
				}
			})
		}
	}
}
