package driver

import (
	"testing"

	"github.com/xebec-serving/xebec/scheduler"
)

// TestChoiceKeepsToItsParts: every candidate gets its part of the queries, also over a few dozen of them, and what is in no
// part is refused.
func TestChoiceKeepsToItsParts(t *testing.T) {
	for _, c := range []struct {
		parts []float64
		want  []int // of 100 queries; the last is refused
	}{
		{nil, []int{100, 0, 0, 0}},
		{[]float64{1, 0, 0}, []int{100, 0, 0, 0}},
		{[]float64{0.5, 0.3, 0.2}, []int{50, 30, 20, 0}},
		{[]float64{0.25, 0, 0.25}, []int{25, 0, 25, 50}},
		{[]float64{0, 0, 1}, []int{0, 0, 100, 0}},
		{[]float64{0, 0, 0}, []int{0, 0, 0, 100}},
		{[]float64{-3, 0.5}, []int{0, 50, 0, 50}},
		{[]float64{0.1, 0.2, 0.7, 0.9}, []int{10, 20, 70, 0}}, // more than there are: the rest is nobody's
	} {
		ch := NewChoice(3, nil)
		ch.Set(c.parts)
		got := make([]int, 4)
		for range 100 {
			i := ch.Pick()
			if i < 0 {
				i = 3
				ch.Refuse(2)
			}
			got[i]++
		}
		for i := range got {
			if d := got[i] - c.want[i]; d < -2 || d > 2 {
				t.Errorf("parts %v: %v of 100 queries, want about %v", c.parts, got, c.want)
				break
			}
		}
		if int(ch.Refused()) != 2*got[3] {
			t.Errorf("parts %v: %d requests of two queries were refused, counted %d", c.parts, got[3], ch.Refused())
		}
		ch.Set(nil)
		if i := ch.Pick(); i != 0 {
			t.Errorf("without a plan a query goes to candidate %d", i)
		}
	}
}

// TestRefusalsWakeThePlanner: a function whose queries are all refused before they come to a lane is planned for all the
// same, or nothing would ever let them in again.
func TestRefusalsWakeThePlanner(t *testing.T) {
	_, l := newTestLane(t, scheduler.DefaultConfig())
	e := &Epoch{rouse: make(chan struct{}, 1)}
	l.epoch.Store(e)
	ch := NewChoice(1, l)
	ch.Set([]float64{0})
	if ch.Pick() != -1 {
		t.Fatal("not refused")
	}
	ch.Refuse(1)
	select {
	case <-e.rouse:
	default:
		t.Error("the epoch was not woken")
	}
	if e.awake.Load() != l || !l.stirred.Load() {
		t.Error("the lane is not on the epoch's list")
	}
	ch.Refuse(1) // once is enough
	if l.nextAwake != nil {
		t.Error("the lane is on the list twice")
	}
}
