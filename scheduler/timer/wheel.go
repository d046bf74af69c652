package timer

import (
	"math/bits"

	"github.com/xebec-serving/xebec/api"
)

const (
	digitBits = 6
	slots     = 1 << digitBits
	levels    = 8
	// minTickLog2 is the smallest tick with which eight digits cover api.Nanos, which has 63 bits.
	minTickLog2 = 63 - levels*digitBits
)

// DefaultTickNanos is a quarter of a millisecond: finer than the precision of an operating system's sleep, and a small
// part of any latency objective. With it, 100 ms are 381 ticks, so a timer that is not stopped is moved once or twice.
const DefaultTickNanos = 1 << 18

// Timer is one deadline, embedded in the object that waits for it. The zero Timer is not set. A timer belongs to one
// wheel from Set until it is stopped or popped. Until then it must not be copied, and its memory must stay.
type Timer[T any] struct {
	// Of leads from a popped timer back to the object that embeds it. The wheel never reads it.
	Of *T

	next, prev *Timer[T]
	at         api.Nanos
	where      uint16 // 1 + the slot into which it was put last, even while it waits to be popped; 0: not set
}

// IsSet reports whether the timer is in a wheel: set, and neither stopped nor popped since.
func (t *Timer[T]) IsSet() bool { return t.where != 0 }

// list is a doubly linked list through the timers.
type list[T any] struct{ first, last *Timer[T] }

// Wheel holds timers. Make it with New. It is not safe for concurrent use.
type Wheel[T any] struct {
	tickLog2 uint8
	occupied uint8          // a bit for each level that holds a timer
	slotBits [levels]uint64 // a bit for each slot that holds a timer
	reached  uint64         // the tick up to which timers have expired
	due      list[T]        // expired and not popped yet
	slots    [levels * slots]list[T]
}

// New makes an empty wheel, of 8 KiB, at time 0. The tick is rounded down to a power of two, but not below 2^15 ns (33
// µs); 0 means DefaultTickNanos.
func New[T any](tickNanos int64) *Wheel[T] {
	if tickNanos <= 0 {
		tickNanos = DefaultTickNanos
	}
	log2 := bits.Len64(uint64(tickNanos)) - 1
	return &Wheel[T]{tickLog2: uint8(max(minTickLog2, log2))}
}

// TickNanos is the wheel's tick.
func (w *Wheel[T]) TickNanos() int64 { return 1 << w.tickLog2 }

// Set arms the timer for the time at, or moves it there, even if it has expired and waits to be popped. A time that has
// passed expires with the next Advance, after the timers that were due before. Never, or a time in the last tick before
// it, only stops the timer. O(1).
func (w *Wheel[T]) Set(t *Timer[T], at api.Nanos) {
	if t.where != 0 {
		w.unlink(t)
	}
	t.at = at
	if at > api.Never-api.Nanos(w.TickNanos()-1) {
		t.where = 0
		return
	}
	w.place(t)
}

// Stop disarms the timer. It reports whether the timer was set, that is, whether Pop would have returned it. O(1).
func (w *Wheel[T]) Stop(t *Timer[T]) bool {
	if t.where == 0 {
		return false
	}
	w.unlink(t)
	t.where = 0
	return true
}

// Advance moves the wheel's time to now: timers whose time has come can be popped. Call it at Next or later. Its cost
// is that of the timers that expire or move to a lower level, however far time has gone.
func (w *Wheel[T]) Advance(now api.Nanos) {
	if now < 0 {
		return
	}
	target := uint64(now) >> w.tickLog2
	if target < w.reached {
		return
	}
	for w.occupied != 0 {
		level, slot, start := w.earliest()
		if start > target {
			break
		}
		w.reached = start
		i := level*slots + slot
		l := w.slots[i]
		w.slots[i] = list[T]{}
		w.vacate(i)
		if level == 0 {
			// Their where stays as it is: unlink tells from the ends of the lists which one a timer is in.
			w.due.append(l)
			continue
		}
		for t := l.first; t != nil; {
			next := t.next
			w.place(t)
			t = next
		}
	}
	w.reached = target
}

// Pop returns the next timer that has expired, nil when there is none. The owner has the timer back and may set it
// again at once; it is not returned again before the next Advance.
func (w *Wheel[T]) Pop() *Timer[T] {
	t := w.due.first
	if t == nil {
		return nil
	}
	w.due.first = t.next
	if t.next == nil {
		w.due.last = nil
	} else {
		t.next.prev = nil
	}
	t.next, t.where = nil, 0
	return t
}

// Next is the time at which to call Advance: not after the end of the earliest timer's tick, and exactly then if it is
// within the current 64 ticks; earlier if the wheel has to move a distant slot's timers down before. It is Never when
// no timer is set. While expired timers wait to be popped it is the time that the wheel has reached.
func (w *Wheel[T]) Next() api.Nanos {
	if w.due.first != nil {
		return api.Nanos(w.reached << w.tickLog2)
	}
	if w.occupied == 0 {
		return api.Never
	}
	_, _, start := w.earliest()
	return api.Nanos(start << w.tickLog2)
}

// earliest is the slot that is due first, and the tick at which it begins. There must be one.
func (w *Wheel[T]) earliest() (level, slot int, start uint64) {
	level = bits.TrailingZeros8(w.occupied)
	slot = bits.TrailingZeros64(w.slotBits[level])
	shift := level * digitBits
	above := w.reached >> (shift + digitBits) << (shift + digitBits)
	return level, slot, above | uint64(slot)<<shift
}

// place puts a timer that is in no list into the slot for its time.
func (w *Wheel[T]) place(t *Timer[T]) {
	// The first tick that begins at or after the time; a time that has passed is due in the current tick.
	tick := w.reached
	if t.at > 0 {
		tick = max(tick, uint64(t.at-1)>>w.tickLog2+1)
	}
	level := (bits.Len64((tick^w.reached)|1) - 1) / digitBits
	slot := int(tick>>(level*digitBits)) & (slots - 1)
	i := level*slots + slot
	w.occupied |= 1 << level
	w.slotBits[level] |= 1 << slot

	l := &w.slots[i]
	t.next, t.prev, t.where = nil, l.last, uint16(i+1)
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
}

// unlink removes a timer that is set from its list: its slot's or the due one. It leaves where to the caller.
func (w *Wheel[T]) unlink(t *Timer[T]) {
	i := int(t.where) - 1
	l := &w.slots[i]
	switch {
	case t.prev != nil:
		t.prev.next = t.next
	case l.first == t:
		l.first = t.next
	default:
		w.due.first = t.next
	}
	switch {
	case t.next != nil:
		t.next.prev = t.prev
	case l.last == t:
		l.last = t.prev
	default:
		w.due.last = t.prev
	}
	if l.first == nil {
		w.vacate(i)
	}
	t.next, t.prev = nil, nil
}

// vacate marks a slot as empty.
func (w *Wheel[T]) vacate(i int) {
	level := i / slots
	w.slotBits[level] &^= 1 << (i % slots)
	if w.slotBits[level] == 0 {
		w.occupied &^= 1 << level
	}
}

// append appends l, which must not be empty.
func (d *list[T]) append(l list[T]) {
	if d.last == nil {
		*d = l
		return
	}
	d.last.next, l.first.prev = l.first, d.last
	d.last = l.last
}
