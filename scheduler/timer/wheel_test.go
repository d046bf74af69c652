package timer

import (
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// TestAgainstSortedList sets, moves, stops and pops timers in any order, with time steps from nothing to centuries.
func TestAgainstSortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tick := rapid.SampledFrom([]int64{0, 1 << 15, 1 << 18, 1e6, 3e9}).Draw(t, "tick")
		j := newChecker(t, tick, 12)
		// A step is drawn by its magnitude, so that all levels of the wheel are used, and near a tick's ends.
		step := func(t *rapid.T) api.Nanos {
			d := rapid.Int64Range(0, 1<<rapid.IntRange(0, 62).Draw(t, "log2")).Draw(t, "step")
			if rapid.Bool().Draw(t, "round") {
				d = d/j.tick*j.tick + rapid.Int64Range(-1, 1).Draw(t, "beside")
			}
			return api.Nanos(d)
		}
		from := func(now, d api.Nanos) api.Nanos {
			if now > api.Never-max(0, d) {
				return api.Never
			}
			return now + d
		}
		timer := rapid.IntRange(0, len(j.timers)-1)
		t.Repeat(map[string]func(*rapid.T){
			"set":     func(t *rapid.T) { j.doSet(timer.Draw(t, "timer"), from(j.now, step(t))) },
			"setPast": func(t *rapid.T) { j.doSet(timer.Draw(t, "timer"), j.now-step(t)) },
			"setLike": func(t *rapid.T) { // for the same time as another
				j.doSet(timer.Draw(t, "timer"), j.timers[timer.Draw(t, "other")].at)
			},
			"setEnd":  func(t *rapid.T) { j.doSet(timer.Draw(t, "timer"), api.Never-min(step(t), api.Never)) },
			"stop":    func(t *rapid.T) { j.doStop(timer.Draw(t, "timer")) },
			"advance": func(t *rapid.T) { j.doAdvance(from(j.now, step(t))) },
			"follow":  func(t *rapid.T) { j.doAdvance(j.w.Next()) },
			"back":    func(t *rapid.T) { j.doAdvance(j.now - step(t)) },
			"pop":     func(t *rapid.T) { j.doPop() },
			"rearm": func(t *rapid.T) { // as an owner does when the timer expires
				if i := j.doPop(); i >= 0 {
					j.doSet(i, from(j.now, step(t)-1))
				}
			},
		})
		j.finish()
	})
}

// FuzzProgram reads bytes as a program: an operation, a timer, and a magnitude with its detail.
func FuzzProgram(f *testing.F) {
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 4*4096 {
			return // longer ones are slow and find nothing more
		}
		j := newChecker(t, 1<<18, 8)
		for ; len(program) >= 4; program = program[4:] {
			op, i := program[0], int(program[1])%len(j.timers)
			d := api.Nanos(uint64(program[3]) << (program[2] % 56))
			later := api.Never
			if j.now <= api.Never-d {
				later = j.now + d
			}
			switch op % 8 {
			case 0, 1:
				j.doSet(i, later)
			case 2:
				j.doSet(i, j.now-d)
			case 3:
				j.doAdvance(later)
			case 4:
				j.doPop()
			case 5:
				j.doStop(i)
			case 6:
				j.doAdvance(j.w.Next())
			case 7:
				if i := j.doPop(); i >= 0 {
					j.doSet(i, later)
				}
			}
		}
		j.finish()
	})
}

func popAll(w *Wheel[int]) (of []int) {
	for t := w.Pop(); t != nil; t = w.Pop() {
		of = append(of, *t.Of)
	}
	return of
}

// TestPopStopSet: what an owner may do with its timers and others while they are being popped.
func TestPopStopSet(t *testing.T) {
	w := New[int](1 << 20)
	timers := make([]Timer[int], 6)
	for i := range timers {
		timers[i].Of = &i
		w.Set(&timers[i], api.Nanos(10-i)<<20)
	}
	w.Advance(20 << 20)
	if of := *w.Pop().Of; of != 5 {
		t.Fatalf("popped timer %d first, want the earliest, 5", of)
	}
	if !w.Stop(&timers[4]) || w.Stop(&timers[4]) || w.Stop(&timers[5]) {
		t.Error("Stop: want true, once, for a timer that waits to be popped, and false for one that was popped")
	}
	w.Set(&timers[5], 0)         // again, for a time that has passed: not in this round
	w.Set(&timers[3], 21<<20)    // out of the due list
	w.Set(&timers[0], api.Never) // and this one for good
	if got := popAll(w); !slices.Equal(got, []int{2, 1}) {
		t.Errorf("popped %v, want 2 and 1", got)
	}
	if next := w.Next(); next != 20<<20 {
		t.Errorf("Next is %d with an overdue timer, want the time reached, %d", next, 20<<20)
	}
	w.Advance(19 << 20)
	if got := popAll(w); len(got) > 0 {
		t.Errorf("popped %v after the time went back", got)
	}
	w.Advance(20 << 20)
	if got := popAll(w); !slices.Equal(got, []int{5}) {
		t.Errorf("popped %v, want the overdue timer, 5", got)
	}
	w.Advance(api.Never)
	if got := popAll(w); !slices.Equal(got, []int{3}) {
		t.Errorf("popped %v at the end of time, want 3", got)
	}
	if next := w.Next(); next != api.Never {
		t.Errorf("Next is %d at the end, want Never", next)
	}
}

// TestTicks: a tick is a power of two with which the wheel covers all of time.
func TestTicks(t *testing.T) {
	for _, c := range []struct{ asked, want int64 }{
		{0, DefaultTickNanos}, {-5, DefaultTickNanos}, {1, 1 << 15}, {1 << 15, 1 << 15}, {1e6, 1 << 19}, {1 << 20, 1 << 20},
		{int64(api.Never), 1 << 62},
	} {
		if got := New[int](c.asked).TickNanos(); got != c.want {
			t.Errorf("asked for a tick of %d ns: got %d, want %d", c.asked, got, c.want)
		}
	}
}

// TestJumpCostsNoTicks: 292 years in one step, which would not end tick by tick. The timers come out in order.
func TestJumpCostsNoTicks(t *testing.T) {
	w := New[int](1 << 15)
	var timers [1000]Timer[int]
	for i := range timers {
		timers[i].Of = &i
		w.Set(&timers[i], api.Nanos(len(timers)-i)<<53)
	}
	w.Advance(api.Never)
	got := popAll(w)
	slices.Reverse(got)
	if len(got) != len(timers) || !slices.IsSorted(got) {
		t.Errorf("popped %d of %d timers, in order: %v", len(got), len(timers), slices.IsSorted(got))
	}
}
