//go:build linux && !race && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

// TestNoAllocation sends batches through the whole binding. The count is the process's, so it includes the gateway's
// side.
func TestNoAllocation(t *testing.T) {
	bothWays(t, func(t *testing.T, options ...Option) {
		for name, c := range map[string]struct {
			in, out []api.TensorSpec
			predict func(context.Context, *Batch) error
			batch   gatewaytest.Columns
		}{
			"fixed":  {pixels, digit, first, fixedBatch()},
			"ragged": {text, answers, copying, raggedBatch()},
		} {
			for _, concurrency := range []int{1, 4} {
				noAllocation(t, name, c.in, c.out, c.predict, c.batch, append(slices.Clip(options), WithConcurrency(concurrency))...)
			}
		}
	})
}

func noAllocation(t *testing.T, name string, in, out []api.TensorSpec, predict func(context.Context, *Batch) error, batch gatewaytest.Columns, options ...Option) {
	g := gatewaytest.New(t, in, out)
	g.Start(serving(g, predict, options...))
	round := steady(t, g, batch, 1<<16)
	for range 400 { // until each lane has seen the traffic
		round()
	}
	limit := 0.0
	if g.Mode&wire.ModeRing == 0 {
		limit = 2 // the gateway's side builds a REQUEST frame
	}
	if n := testing.AllocsPerRun(200, round); n > limit {
		t.Errorf("%s, %d at once: %v allocations a batch", name, g.Hello.Concurrency, n)
	}
	g.Drain()
}
