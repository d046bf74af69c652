package driver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/timer"
)

// tickNanos is the shortest time between two looks at what is due; deadlines that lie closer together are handled
// together. It is a power of two, a quarter of a millisecond. An idle process still looks at most once a millisecond,
// because Go's runtime sleeps no more precisely when nothing else runs, so this tick costs as much as one of 1 ms. A
// busy process wakes in time and answers six times as close to the deadline as with 1 ms.
const tickNanos = 1 << 18 //xebec:limit granularity of deadlines

// Clock is the process's monotonic clock and wakes lanes when their time has come. It is never early. It is up to a
// quarter of a millisecond late, plus what Go's runtime and the operating system add, which is at most 1 ms in an idle
// process.
//
// It costs one goroutine for all lanes, which sleeps until the earliest wake-up that any lane asks for. Lanes' times
// lie in a timing wheel, so the goroutine looks only at those whose time has come.
//
// A lane under steady load changes its wake-up time with every query, mostly to a later one, because its earliest
// deadline moves away. That costs only the store of the wish: the wheel keeps the earlier time, and when it comes, the
// goroutine finds the later wish and sets the timer again. So the wheel handles a lane about once per latency
// objective. Whatever lanes ask for, the clock looks at most once per tick.
type Clock struct {
	start time.Time
	// sleepUntil is when the goroutine will look next; 0 while it is awake. A lane that needs it sooner kicks.
	sleepUntil atomic.Int64
	kick       chan struct{}
	joining    atomic.Pointer[sleeper] // sleepers that must wake before the wheel would wake them, chained by sleeper.joinNext
	stop       chan struct{}
	done       chan struct{}
	once       sync.Once

	looks atomic.Uint64 // number of wake-ups of the goroutine, for tests
}

// sleeper can be woken by the clock: a lane, or a shard of [Timers].
type sleeper struct {
	wish   atomic.Int64 // the requested wake-up time
	onWake func()       // called on the clock's goroutine at that time; must not block

	// armed is the time set in the wheel; Never if none. A wish that is not before it needs no action.
	armed    atomic.Int64
	listed   atomic.Bool // it is in the joining list
	joinNext *sleeper
	timer    timer.Timer[sleeper] // belongs to the clock's goroutine
}

func (s *sleeper) init(onWake func()) {
	s.onWake = onWake
	s.timer.Of = s
	s.wish.Store(int64(api.Never))
	s.armed.Store(int64(api.Never))
}

// NewClock starts a clock. Close it after its lanes have no queries left.
func NewClock() *Clock {
	c := &Clock{
		start: time.Now(),
		kick:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	go c.run()
	return c
}

// Now is the time in nanoseconds since the clock was started, always positive.
func (c *Clock) Now() api.Nanos { return api.Nanos(time.Since(c.start)) + 1 }

// Close ends the clock's goroutine and waits for it. Now keeps working; wake-ups stop.
func (c *Clock) Close() {
	c.once.Do(func() { close(c.stop) })
	<-c.done
}

// run looks, sleeps until the wheel has something due or a kick arrives, and looks again.
func (c *Clock) run() {
	defer close(c.done)
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	wheel := timer.New[sleeper](tickNanos)
	for {
		now := c.Now()
		c.look(wheel, now)
		next, early := c.prepareSleep(wheel)
		if !early {
			var ok bool
			if early, ok = c.sleep(pause, next, c.kick); !ok {
				return
			}
		}
		c.sleepUntil.Store(0)
		if early {
			// A sleeper that joins now need not kick, and is seen a tick after the last look. This bounds the number of
			// looks.
			if _, ok := c.sleep(pause, now+tickNanos, nil); !ok {
				return
			}
		}
	}
}

// prepareSleep returns until when the goroutine may sleep, or early if it must look again first.
//
// No wake-up is lost. A sleeper with a wish that the wheel does not know joins the list and then reads sleepUntil;
// prepareSleep stores sleepUntil and then reads the list. So at least one of the two sees the other.
func (c *Clock) prepareSleep(wheel *timer.Wheel[sleeper]) (next api.Nanos, early bool) {
	next = wheel.Next()
	c.sleepUntil.Store(int64(next))
	return next, c.joining.Load() != nil
}

// sleep waits until the given time, or for a kick; ok is false when the clock is closed.
func (c *Clock) sleep(pause *time.Timer, until api.Nanos, kick <-chan struct{}) (kicked, ok bool) {
	var passed <-chan time.Time
	if until != api.Never {
		pause.Reset(time.Duration(max(0, until-c.Now())))
		passed = pause.C
	}
	select {
	case <-passed:
		return false, true
	case <-kick:
		return true, true
	case <-c.stop:
		return false, false
	}
}

// look puts the joining sleepers into the wheel and wakes those whose time has come.
func (c *Clock) look(wheel *timer.Wheel[sleeper], now api.Nanos) {
	c.looks.Add(1)
	for s := c.joining.Swap(nil); s != nil; {
		next := s.joinNext
		s.joinNext = nil
		s.listed.Store(false) // before its wish is read: a later wish joins again
		s.arm(wheel, 0)
		s = next
	}
	wheel.Advance(now)
	for t := wheel.Pop(); t != nil; t = wheel.Pop() {
		s := t.Of
		if api.Nanos(s.wish.Load()) <= now {
			s.onWake()
		}
		// If another goroutine is working for it, its wish is still the old one: look again, but not in this tick.
		s.arm(wheel, now+1)
	}
}

// arm sets the sleeper's timer in the wheel to its wish, but not before earliest. A sleeper that no longer wants to
// wake leaves the wheel, and the clock's memory, at the time for which it was armed, not sooner.
//
// The wish may change meanwhile. Its owner stores the wish and then reads armed; arm stores armed and then reads the
// wish again. If the owner saw the old value and did not join, arm sees the new wish.
func (s *sleeper) arm(wheel *timer.Wheel[sleeper], earliest api.Nanos) {
	for {
		wish := s.wish.Load()
		at := max(api.Nanos(wish), earliest)
		s.armed.Store(int64(at))
		if s.wish.Load() >= wish {
			wheel.Set(&s.timer, at)
			return
		}
	}
}

// watch sets the sleeper's wish. Calls for one sleeper must not overlap; the holder of its lock makes them.
func (c *Clock) watch(s *sleeper, at api.Nanos) {
	s.wish.Store(int64(at))
	if int64(at) >= s.armed.Load() {
		return
	}
	if !s.listed.Load() && s.listed.CompareAndSwap(false, true) {
		for {
			head := c.joining.Load()
			s.joinNext = head
			if c.joining.CompareAndSwap(head, s) {
				break
			}
		}
	}
	// Is it before the tick at which the clock looks anyway?
	if int64(at) <= c.sleepUntil.Load()-tickNanos {
		select {
		case c.kick <- struct{}{}:
		default: // a kick is already pending
		}
	}
}
