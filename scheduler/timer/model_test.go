package timer

import (
	"cmp"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// checker runs a wheel beside a model that keeps its timers in one sorted list, and compares them at every step.
type checker struct {
	t interface {
		Helper()
		Fatalf(format string, args ...any)
	}
	w      *Wheel[int]
	timers []Timer[int]

	tick    int64
	now     api.Nanos // the latest time passed to Advance
	reached int64     // the tick of now
	seq     int
	set     []entry // timers that are not due
	due     []entry // timers that are due, in the order in which they must come out
}

type entry struct {
	i    int // index of the timer
	at   api.Nanos
	tick int64
	seq  int
}

func newChecker(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, tickNanos int64, timers int) *checker {
	j := &checker{t: t, w: New[int](tickNanos), timers: make([]Timer[int], timers)}
	j.tick = j.w.TickNanos()
	for i := range j.timers {
		j.timers[i].Of = new(int)
		*j.timers[i].Of = i
	}
	return j
}

func (j *checker) remove(i int) (was bool) {
	is := func(e entry) bool { return e.i == i }
	n := len(j.set) + len(j.due)
	j.set, j.due = slices.DeleteFunc(j.set, is), slices.DeleteFunc(j.due, is)
	return len(j.set)+len(j.due) < n
}

func (j *checker) doSet(i int, at api.Nanos) {
	j.t.Helper()
	j.w.Set(&j.timers[i], at)
	j.remove(i)
	tick := j.reached
	if at > 0 {
		tick = max(tick, int64(at-1)/j.tick+1)
	}
	j.seq++
	if tick <= int64(api.Never)/j.tick && at != api.Never {
		j.set = append(j.set, entry{i, at, tick, j.seq})
	}
	j.check()
}

func (j *checker) doStop(i int) {
	j.t.Helper()
	if got, want := j.w.Stop(&j.timers[i]), j.remove(i); got != want {
		j.t.Fatalf("Stop of timer %d returned %v, want %v", i, got, want)
	}
	j.check()
}

func (j *checker) doAdvance(now api.Nanos) {
	j.t.Helper()
	j.w.Advance(now)
	if target := int64(now) / j.tick; now >= 0 && target >= j.reached {
		j.now, j.reached = max(j.now, now), target
		slices.SortFunc(j.set, func(a, b entry) int { return cmp.Or(cmp.Compare(a.tick, b.tick), cmp.Compare(a.seq, b.seq)) })
		n := 0
		for n < len(j.set) && j.set[n].tick <= j.reached {
			n++
		}
		j.due = append(j.due, j.set[:n]...)
		j.set = slices.Delete(j.set, 0, n)
	}
	j.check()
}

// doPop pops one timer and returns its index, or -1.
func (j *checker) doPop() int {
	j.t.Helper()
	got := j.w.Pop()
	if len(j.due) == 0 {
		if got != nil {
			j.t.Fatalf("popped timer %d at %d, want none", *got.Of, j.now)
		}
		return -1
	}
	want := j.due[0]
	j.due = slices.Delete(j.due, 0, 1)
	if got == nil {
		j.t.Fatalf("popped nothing, want timer %d", want.i)
	}
	if *got.Of != want.i {
		j.t.Fatalf("popped timer %d set for %d, want timer %d set for %d", *got.Of, got.at, want.i, want.at)
	}
	if want.at > j.now {
		j.t.Fatalf("popped timer %d set for %d at %d, before its time", want.i, want.at, j.now)
	}
	j.check()
	return want.i
}

// check compares what is visible from outside.
func (j *checker) check() {
	j.t.Helper()
	for i := range j.timers {
		is := func(e entry) bool { return e.i == i }
		want := slices.ContainsFunc(j.set, is) || slices.ContainsFunc(j.due, is)
		if got := j.timers[i].IsSet(); got != want {
			j.t.Fatalf("timer %d: IsSet returned %v, want %v", i, got, want)
		}
	}
	next := j.w.Next()
	switch {
	case len(j.due) > 0:
		if want := api.Nanos(j.reached * j.tick); next != want {
			j.t.Fatalf("with expired timers Next is %d, want %d", next, want)
		}
	case len(j.set) == 0:
		if next != api.Never {
			j.t.Fatalf("Next of an empty wheel is %d, want Never", next)
		}
	default:
		first := slices.MinFunc(j.set, func(a, b entry) int { return cmp.Compare(a.tick, b.tick) }).tick
		if next > api.Nanos(first*j.tick) {
			j.t.Fatalf("Next is %d, but a timer expires at %d", next, first*j.tick)
		}
		if first/64 == j.reached/64 && next != api.Nanos(first*j.tick) {
			j.t.Fatalf("Next is %d, want the tick of a near timer, %d", next, first*j.tick)
		}
		if first > j.reached && next <= api.Nanos(j.reached*j.tick) {
			j.t.Fatalf("Next is %d, want a time after %d", next, j.reached*j.tick)
		}
	}
}

// finish follows Next to the end: no timer is left behind, and each comes out within a tick of its time, counted from
// now if that had passed before.
func (j *checker) finish() {
	j.t.Helper()
	for j.doPop() >= 0 {
	}
	began := j.now
	for steps := 0; ; steps++ {
		next := j.w.Next()
		if next == api.Never {
			break
		}
		if steps > (levels+1)*len(j.timers) {
			j.t.Fatalf("%d calls of Advance were not enough for %d timers", steps, len(j.timers))
		}
		j.doAdvance(next)
		for i := j.doPop(); i >= 0; i = j.doPop() {
			if late := next - max(j.timers[i].at, began); int64(late) >= j.tick {
				j.t.Fatalf("popped timer %d %d ns late, with a tick of %d", i, late, j.tick)
			}
		}
	}
	if len(j.set) > 0 {
		j.t.Fatalf("the wheel lost %v", j.set)
	}
}
