package driver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// tickNanos is the shortest pause between two looks at the lanes: deadlines that lie closer together are served together.
const tickNanos = api.Nanos(time.Millisecond)

// Clock is the process's monotonic clock and wakes lanes when their time has come: not early, and up to 1 ms late (and
// what the operating system adds).
//
// It costs one goroutine for all lanes, which sleeps until the earliest wake-up that any lane asks for and looks at no
// lane that has asked for none. A lane under steady load asks for about one wake-up per latency objective, not per
// query, since its earliest deadline only moves away; a thousand a second is the upper bound.
type Clock struct {
	start time.Time
	// until is when the goroutine will look next; 0 while it is awake. A lane that needs it sooner kicks.
	until   atomic.Int64
	kick    chan struct{}
	joining atomic.Pointer[Lane] // lanes that have begun to ask for wake-ups, chained by Lane.joinNext
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
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

// Lost wake-ups are avoided as with any sleeper: a lane stores its wish and then reads until; the clock stores until and
// then reads the wishes again. One of the two sees the other.
func (c *Clock) run() {
	defer close(c.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var lanes []*Lane
	for {
		c.until.Store(0)
		lanes = c.wakeDue(c.join(lanes))
		next := c.earliest(lanes)
		if next != api.Never {
			// Rest a tick before the next look, so that looks stay bounded whatever the lanes ask for. A wish that is
			// withdrawn meanwhile stands all the same: a lane that serves one short query after the other would have to
			// kick for each of them otherwise.
			if !c.sleep(timer, tickNanos, nil) {
				return
			}
			next = min(next, c.earliest(lanes))
		}
		c.until.Store(int64(next))
		if c.joining.Load() != nil || c.earliest(lanes) < next {
			continue
		}
		pause := api.Never
		if next != api.Never {
			pause = next - c.Now()
		}
		if !c.sleep(timer, pause, c.kick) {
			return
		}
	}
}

// sleep waits for the pause to pass or a kick; false: the clock is to end.
func (c *Clock) sleep(timer *time.Timer, pause api.Nanos, kick <-chan struct{}) bool {
	var passed <-chan time.Time
	if pause != api.Never {
		timer.Reset(time.Duration(max(0, pause)))
		passed = timer.C
	}
	select {
	case <-passed:
	case <-kick:
	case <-c.stop:
		return false
	}
	return true
}

// join adds the lanes that have begun to ask for wake-ups.
func (c *Clock) join(lanes []*Lane) []*Lane {
	for l := c.joining.Swap(nil); l != nil; {
		next := l.joinNext
		l.joinNext = nil
		lanes = append(lanes, l)
		l = next
	}
	return lanes
}

// wakeDue wakes the lanes whose time has come and drops those that ask for nothing.
func (c *Clock) wakeDue(lanes []*Lane) []*Lane {
	kept, now := lanes[:0], c.Now()
	for _, l := range lanes {
		if api.Nanos(l.wake.Load()) <= now {
			l.advance()
		}
		if l.wake.Load() == int64(api.Never) {
			l.listed.Store(false)
			// It may have begun to ask again just now; whoever sets listed has it in the list.
			if l.wake.Load() == int64(api.Never) || !l.listed.CompareAndSwap(false, true) {
				continue
			}
		}
		kept = append(kept, l)
	}
	clear(lanes[len(kept):])
	return kept
}

func (c *Clock) earliest(lanes []*Lane) api.Nanos {
	at := int64(api.Never)
	for _, l := range lanes {
		at = min(at, l.wake.Load())
	}
	return api.Nanos(at)
}

// watch tells the clock that the lane's wish has changed. Called by the holder of the lane's lock, after storing wake.
func (c *Clock) watch(l *Lane, at api.Nanos) {
	if at == api.Never {
		return
	}
	if !l.listed.Load() && l.listed.CompareAndSwap(false, true) {
		for {
			head := c.joining.Load()
			l.joinNext = head
			if c.joining.CompareAndSwap(head, l) {
				break
			}
		}
	}
	if int64(at) < c.until.Load() {
		select {
		case c.kick <- struct{}{}:
		default: // a kick is on its way already
		}
	}
}
