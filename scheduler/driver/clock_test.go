package driver

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/timer"
)

// eventually waits for a condition, yielding.
func eventually(is func() bool) {
	for !is() {
		runtime.Gosched()
	}
}

func TestClockSleepsWhenIdle(t *testing.T) {
	c := NewClock()
	defer c.Close()
	asleep := func() bool { return c.sleepUntil.Load() == int64(api.Never) }
	eventually(asleep)

	lanes := make([]*Lane, 20)
	for i := range lanes {
		lanes[i] = NewLane(scheduler.DefaultConfig(), c)
		lanes[i].AddFunction(1)
	}
	if !asleep() {
		t.Error("lanes without queries woke the clock")
	}
	var tickets []*ticket
	for i, l := range lanes {
		k := newTicket(t, c, 0, api.Nanos(i+1)*5e5, 0)
		tickets = append(tickets, k)
		l.Submit(&k.Item)
	}
	for _, k := range tickets {
		k.want(api.NoReplica, api.NoReplica)
		if now := c.Now(); now < k.Deadline {
			t.Errorf("answered %d ns before the deadline", k.Deadline-now)
		}
	}
	eventually(asleep)
	for _, l := range lanes {
		if l.sleeper.armed.Load() != int64(api.Never) || l.sleeper.listed.Load() {
			t.Error("a lane without a wish is still in the wheel")
		}
	}
}

// TestEarlierWishWakesClock: the clock sleeps until a far deadline, and another lane gets a nearer one.
func TestEarlierWishWakesClock(t *testing.T) {
	c := NewClock()
	defer c.Close()
	far, near := NewLane(scheduler.DefaultConfig(), c), NewLane(scheduler.DefaultConfig(), c)
	far.AddFunction(1)
	near.AddFunction(1)
	for range 20 {
		a := newTicket(t, c, 0, hour, 0)
		far.Submit(&a.Item)
		eventually(func() bool { until := c.sleepUntil.Load(); return until > 0 && until <= int64(a.Deadline) })
		b := newTicket(t, c, 0, 2e7, 0)
		near.Submit(&b.Item)
		b.want(api.NoReplica, api.NoReplica)
		far.Cancel(&a.Item)
		a.want(api.Cancelled, api.Cancelled)
	}
}

// TestWishesThatMoveLater: a lane whose earliest deadline moves away, as under steady load, does not wake the clock and
// does not change the wheel.
func TestWishesThatMoveLater(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	first := newTicket(t, c, 0, hour, 0)
	l.Submit(&first.Item)
	armed := int64(first.Deadline)
	eventually(func() bool { return l.sleeper.armed.Load() == armed && c.sleepUntil.Load() > 0 })
	looks := c.looks.Load()
	last := first
	for range 100 {
		k := newTicket(t, c, 0, hour, 0)
		l.Submit(&k.Item)
		l.Cancel(&last.Item)
		last.want(api.Cancelled, api.Cancelled)
		last = k
		if l.sleeper.listed.Load() || l.sleeper.armed.Load() != armed || l.sleeper.wish.Load() <= armed {
			t.Fatalf("wish %d, armed %d, listed %v: want a later wish and no call of the clock",
				l.sleeper.wish.Load(), l.sleeper.armed.Load(), l.sleeper.listed.Load())
		}
	}
	if n := c.looks.Load(); n != looks {
		t.Errorf("the clock woke %d times for wishes that moved later", n-looks)
	}
	l.Cancel(&last.Item)
}

// TestLook calls look directly: a wish is put into the wheel if it is before the time set there, and a sleeper is not
// woken for a wish that has moved away.
func TestLook(t *testing.T) {
	const ms = api.Nanos(1e6)
	c := &Clock{kick: make(chan struct{}, 1)}
	wheel := timer.New[sleeper](tickNanos)
	var s sleeper
	woken := 0
	s.init(func() { woken++ })
	for _, step := range []struct {
		name  string
		wish  api.Nanos // 0: unchanged
		joins bool
		look  api.Nanos
		woken int
		armed api.Nanos
	}{
		{"the first", 10 * ms, true, 1 * ms, 0, 10 * ms},
		{"moves later", 50 * ms, false, 2 * ms, 0, 10 * ms},
		{"its old time comes", 0, false, 11 * ms, 0, 50 * ms},
		{"moves earlier", 20 * ms, true, 12 * ms, 0, 20 * ms},
		{"earlier, but seen too late", 13 * ms, true, 14 * ms, 1, 14*ms + 1},
		{"another goroutine works for it", 0, false, 14*ms + tickNanos, 2, 14*ms + tickNanos + 1},
		{"moves later again", 30 * ms, false, 20 * ms, 2, 30 * ms},
		{"no wish", api.Never, false, 29 * ms, 2, 30 * ms},
		{"leaves", 0, false, 31 * ms, 2, api.Never},
	} {
		if step.wish != 0 {
			c.watch(&s, step.wish)
		}
		if s.listed.Load() != step.joins {
			t.Errorf("%s: joins: %v, want %v", step.name, !step.joins, step.joins)
		}
		c.look(wheel, step.look)
		if armed := api.Nanos(s.armed.Load()); woken != step.woken || armed != step.armed || s.listed.Load() {
			t.Errorf("%s: woken %d times, armed for %d, listed %v; want %d, %d and not listed",
				step.name, woken, armed, s.listed.Load(), step.woken, step.armed)
		}
	}
	if next := wheel.Next(); next != api.Never {
		t.Errorf("the wheel is not empty: next at %d", next)
	}
}

// TestNoLostWish runs the clock as fast as possible, in virtual time that jumps from one deadline to the next, while a
// sleeper changes its wish just as the clock arms it or goes to sleep. A lost wish hangs the test.
func TestNoLostWish(t *testing.T) {
	c := &Clock{kick: make(chan struct{}, 1)}
	var now, seen atomic.Int64
	quit := make(chan struct{})
	var driver sync.WaitGroup
	driver.Go(func() {
		wheel := timer.New[sleeper](tickNanos)
		for {
			c.look(wheel, api.Nanos(now.Load()))
			next, early := c.prepareSleep(wheel)
			switch {
			case early:
			case next != api.Never:
				now.Store(int64(next))
			default:
				for kicked := false; !kicked; { // asleep, but spinning to wake quickly
					select {
					case <-c.kick:
						kicked = true
					case <-quit:
						return
					default:
						runtime.Gosched()
					}
				}
			}
			c.sleepUntil.Store(0)
		}
	})
	var s sleeper
	s.init(func() { seen.Store(s.wish.Load()) })
	last := api.Nanos(0)
	for i := range 5_000 {
		if i%3 == 0 { // into the wheel and out again
			c.watch(&s, last+tickNanos)
			c.watch(&s, api.Never)
		}
		last = max(last, api.Nanos(now.Load())) + api.Nanos(i%5)*tickNanos/3 + 1
		c.watch(&s, last)
		for spins := 0; seen.Load() != int64(last); spins++ {
			if spins > 100 {
				runtime.Gosched()
			}
		}
		if i%2 == 0 {
			c.watch(&s, api.Never)
		}
	}
	c.watch(&s, api.Never)
	close(quit)
	driver.Wait()
}

// TestRandomWishes: many goroutines change the wishes of sleepers to earlier and later times at random, and
// then wait for the last one. A lost wish hangs the test.
func TestRandomWishes(t *testing.T) {
	c := NewClock()
	defer c.Close()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			woken := make(chan struct{}, 1)
			var s sleeper
			s.init(func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
			for range 20 {
				for range rand.IntN(20) {
					c.watch(&s, c.Now()+api.Nanos(rand.Int64N(int64(hour))>>rand.IntN(40)))
				}
				at := c.Now() + api.Nanos(rand.Int64N(3e6))
				c.watch(&s, at)
				for <-woken; c.Now() < at; <-woken { // for an earlier wish
				}
				c.watch(&s, api.Never)
			}
		})
	}
	all.Wait()
}

func TestClockIsMonotonicAndPositive(t *testing.T) {
	c := NewClock()
	last := c.Now()
	if last <= 0 {
		t.Errorf("the clock starts at %d", last)
	}
	for range 1000 {
		now := c.Now()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	c.Close()
	c.Close()
	if c.Now() < last {
		t.Error("a closed clock goes back")
	}
}
