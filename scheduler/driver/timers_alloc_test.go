//go:build !race

package driver

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

type silent struct{ rang chan struct{} }

func (s *silent) Ring(*Alarm) { s.rang <- struct{}{} }

// TestTimersDoNotAlloc: neither an alarm that is stopped nor one that rings allocates. (The race detector itself
// allocates.)
func TestTimersDoNotAlloc(t *testing.T) {
	c := NewClock()
	defer c.Close()
	ts := NewTimers(c)
	s := &silent{rang: make(chan struct{}, 1)}
	a := Alarm{Owner: s}
	n := testing.AllocsPerRun(20, func() {
		for i := range api.Nanos(100) {
			ts.Set(&a, hour+i)
		}
		ts.Stop(&a)
		ts.Set(&a, 1)
		<-s.rang
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
