//go:build !race

package obs

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func TestObserveAllocatesNothing(t *testing.T) {
	var e Endpoint
	var l Latency
	e.Observe(api.OK, 1, 1e6)
	if n := testing.AllocsPerRun(1000, func() { e.ObserveSLO(api.OK, 1, 1e6, 1e6); e.CountMalformed(api.Overloaded); l.Observe(1e6) }); n != 0 {
		t.Errorf("Observe allocates %g times", n)
	}
}
