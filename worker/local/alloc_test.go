//go:build !race

package local_test

import (
	"context"
	"testing"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// A batch of fixed tensors travels to the worker and back without an allocation on either side.
func TestAllocsBatch(t *testing.T) {
	learns := xebec.WithFeedback(func(context.Context, *xebec.Batch) error { return nil })
	for _, poller := range workertest.Pollers {
		for _, ring := range []bool{true, false} {
			for name, options := range map[string][]xebec.Option{"plain": nil, "learns": {learns}} {
				t.Run(string(poller)+map[bool]string{true: "/ring/", false: "/socket/"}[ring]+name, func(t *testing.T) {
					l := startLoad(t, poller, inThisProcess(ring, options...), 64, 64, 1)
					defer l.stop()
					for range 100 { // buffers grow first
						l.one()
					}
					if n := testing.AllocsPerRun(2000, l.one); n != 0 {
						t.Errorf("%v allocations for a batch, expected 0", n)
					}
				})
			}
		}
	}
}
