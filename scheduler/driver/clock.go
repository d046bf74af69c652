package driver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/timer"
)

// tickNanos is the shortest pause between two looks at what is due: deadlines that lie closer together are served together.
// A power of two, a quarter of a millisecond. A process that idles looks once in a millisecond at most all the same, for
// that is how exactly Go's runtime sleeps when nothing else is to be done, so that it costs what a tick of 1 ms does; one
// that is at work wakes in time, and answers at the deadline come six times as close to it as with 1 ms.
const tickNanos = 1 << 18

// Clock is the process's monotonic clock and wakes lanes when their time has come: not early, and up to a quarter of a
// millisecond late, to which Go's runtime and the operating system add what they need, 1 ms at most in a process that idles.
//
// It costs one goroutine for all lanes, which sleeps until the earliest wake-up that any lane asks for. Lanes' times lie
// in a timing wheel: the goroutine looks at those whose time has come, however many others wait.
//
// A lane under steady load changes its mind with every query, and mostly to a later time, since its earliest deadline
// moves away. That costs it nothing but the storing of its wish: the wheel keeps the earlier time, at which the goroutine
// finds the lane's wish to be later and sets it anew. So the wheel hears of a lane about once per latency objective. One
// look in each tick is the upper bound, whatever lanes ask for.
type Clock struct {
	start time.Time
	// until is when the goroutine will look next; 0 while it is awake. Who needs it sooner kicks.
	until   atomic.Int64
	kick    chan struct{}
	joining atomic.Pointer[sleeper] // those who want to be woken before the wheel would, chained by sleeper.joinNext
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once

	looks atomic.Uint64 // how often the goroutine has woken, for tests
}

// sleeper is what wants to be woken: a lane, or a shard of [Timers].
type sleeper struct {
	wake  atomic.Int64 // its wish
	rouse func()       // called on the clock's goroutine when the wish's time has come; must not block

	// armed is the time for which it lies in the wheel; Never when it does not. A wish that is not before it needs nothing.
	armed    atomic.Int64
	listed   atomic.Bool // it is in the list of those who join
	joinNext *sleeper
	timer    timer.Timer[sleeper] // the clock's goroutine's
}

func (s *sleeper) init(rouse func()) {
	s.rouse = rouse
	s.timer.Of = s
	s.wake.Store(int64(api.Never))
	s.armed.Store(int64(api.Never))
}

// NewClock starts a clock. Close it after its lanes have gone quiet.
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

// Now reads the clock: nanoseconds since it was started, always positive.
func (c *Clock) Now() api.Nanos { return api.Nanos(time.Since(c.start)) + 1 }

// Close ends the clock's goroutine and waits for it. Now goes on working, deadlines are not watched any more.
func (c *Clock) Close() {
	c.once.Do(func() { close(c.stop) })
	<-c.done
}

// run looks, sleeps until the wheel has something or somebody kicks, and looks again.
func (c *Clock) run() {
	defer close(c.done)
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	wheel := timer.New[sleeper](tickNanos)
	for {
		now := c.Now()
		c.look(wheel, now)
		next, early := c.settle(wheel)
		if !early {
			var ok bool
			if early, ok = c.sleep(pause, next, c.kick); !ok {
				return
			}
		}
		c.until.Store(0)
		if early {
			// Whoever joins now need not kick, and is seen a tick after the last look: so looks stay bounded.
			if _, ok := c.sleep(pause, now+tickNanos, nil); !ok {
				return
			}
		}
	}
}

// settle says until when the goroutine is going to sleep, or that it must look again before.
//
// No wake-up is lost, as with any sleeper: who has a wish that the wheel does not know joins the list and then reads
// until; this stores until and then reads the list. One of the two sees the other.
func (c *Clock) settle(wheel *timer.Wheel[sleeper]) (next api.Nanos, early bool) {
	next = wheel.Next()
	c.until.Store(int64(next))
	return next, c.joining.Load() != nil
}

// sleep waits until the given time, or for a kick; ok is false when the clock is to end.
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

// look puts those who join into the wheel and rouses those whose time has come.
func (c *Clock) look(wheel *timer.Wheel[sleeper], now api.Nanos) {
	c.looks.Add(1)
	for s := c.joining.Swap(nil); s != nil; {
		next := s.joinNext
		s.joinNext = nil
		s.listed.Store(false) // before its wish is read: a wish that comes later joins again
		s.arm(wheel, 0)
		s = next
	}
	wheel.Advance(now)
	for t := wheel.Pop(); t != nil; t = wheel.Pop() {
		s := t.Of
		if api.Nanos(s.wake.Load()) <= now {
			s.rouse()
		}
		// If somebody else is at work for it, its wish is still the old one: look again, but not in this tick.
		s.arm(wheel, now+1)
	}
}

// arm puts the sleeper into the wheel for its wish, but not before the time earliest. One that wishes nothing any more leaves
// the wheel, and with that the clock's memory: at the time for which it was armed, not sooner.
//
// The wish may change meanwhile, and its owner compares it with armed: it stores the wish and then reads armed, and this
// stores armed and then reads the wish again. If the owner saw the old value and did not join, this sees the new wish.
func (s *sleeper) arm(wheel *timer.Wheel[sleeper], earliest api.Nanos) {
	for {
		wish := s.wake.Load()
		at := max(api.Nanos(wish), earliest)
		s.armed.Store(int64(at))
		if s.wake.Load() >= wish {
			wheel.Set(&s.timer, at)
			return
		}
	}
}

// watch changes the sleeper's wish. One goroutine at a time calls it for a sleeper: the holder of its lock.
func (c *Clock) watch(s *sleeper, at api.Nanos) {
	s.wake.Store(int64(at))
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
	// Before the tick at which the clock looks anyway?
	if int64(at) <= c.until.Load()-tickNanos {
		select {
		case c.kick <- struct{}{}:
		default: // a kick is on its way already
		}
	}
}
