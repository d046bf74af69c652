//go:build !race

package timer

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestNoAlloc: no operation allocates. (The race detector itself allocates.)
func TestNoAlloc(t *testing.T) {
	w := New[int](0)
	timers := make([]Timer[int], 100)
	now, popped := api.Nanos(0), 0
	n := testing.AllocsPerRun(100, func() {
		for i := range timers {
			w.Set(&timers[i], now+api.Nanos(i)<<uint(i%40))
		}
		for i := 0; i < len(timers); i += 3 {
			w.Stop(&timers[i])
		}
		now = w.Next() + 1<<22
		w.Advance(now)
		for w.Pop() != nil {
			popped++
		}
	})
	if n != 0 || popped == 0 {
		t.Errorf("%v allocations per run; %d timers expired in all", n, popped)
	}
}
