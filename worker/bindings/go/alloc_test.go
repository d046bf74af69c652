//go:build linux && !race && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
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
			g := gatewaytest.New(t, c.in, c.out)
			g.Start(serving(g, c.predict, options...))
			round := steady(t, g, c.batch, 1<<16)
			for range 100 {
				round()
			}
			limit := 0.0
			if len(options) > 0 {
				limit = 2 // the gateway's side builds a REQUEST frame
			}
			if n := testing.AllocsPerRun(200, round); n > limit {
				t.Errorf("%s: %v allocations a batch", name, n)
			}
			g.Drain()
		}
	})
}
