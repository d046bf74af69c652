package driver

import (
	"math/rand/v2"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/timer"
)

const (
	// timerShards spreads the alarms, so that callers of Set and Stop rarely contend for a lock.
	timerShards = 16
	// ringAtOnce bounds how long a shard's lock is held while alarms ring.
	ringAtOnce = 64
)

// Ringer is notified when one of its alarms is due.
type Ringer interface {
	// Ring is called on the clock's goroutine, once for each Set that was not stopped. All other alarms and lanes wait
	// for it, so it must not block. No lock is held; it may set the alarm again.
	Ring(a *Alarm)
}

// Alarm is one deadline, embedded in the object that waits for it. It must not be copied once it has been set. It may
// be set any number of times, with the same Timers. Calls of Set and Stop for one alarm must not overlap.
type Alarm struct {
	Owner Ringer // set before Set is called

	shard *timerShard
	timer timer.Timer[Alarm]
}

// Timers rings alarms at their times: never early, and as late as its [Clock] wakes lanes. It is made for many alarms
// of which most are stopped: Set and Stop do not allocate, and their cost does not depend on the number of alarms. It
// needs no closing; after the clock is closed no alarm rings.
type Timers struct {
	clock  *Clock
	shards [timerShards]timerShard
}

type timerShard struct {
	mu      sync.Mutex
	wheel   *timer.Wheel[Alarm]
	wish    api.Nanos // not after the time of any alarm in the wheel
	sleeper sleeper
	_       [64]byte // keeps the next shard's lock on its own cache line
}

// NewTimers makes timers without alarms.
func NewTimers(clock *Clock) *Timers {
	ts := &Timers{clock: clock}
	for i := range ts.shards {
		s := &ts.shards[i]
		s.wheel, s.wish = timer.New[Alarm](tickNanos), api.Never
		s.sleeper.init(func() { ts.ring(s) })
	}
	return ts
}

// Set makes the alarm ring at the time at, a reading of the clock; at Never it does not ring. It returns true if the
// alarm was set for another time, for which it will not ring any more, and false if it was not set, as in Stop.
func (ts *Timers) Set(a *Alarm, at api.Nanos) (moved bool) {
	if a.shard == nil {
		a.shard, a.timer.Of = &ts.shards[rand.Uint32N(timerShards)], a
	}
	s := a.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	moved = a.timer.IsSet()
	s.wheel.Set(&a.timer, at)
	if at < s.wish {
		s.wish = at
		ts.clock.watch(&s.sleeper, at)
	}
	return moved
}

// Stop cancels the alarm. It returns true if the alarm was set and will not ring. It returns false if there is nothing
// to stop; if the alarm had been set, Ring has been called or is about to be, perhaps at this moment, and the alarm's
// memory must stay until Ring has returned.
func (ts *Timers) Stop(a *Alarm) bool {
	s := a.shard
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wheel.Stop(&a.timer)
}

// ring is called by the clock when the shard's time has come.
func (ts *Timers) ring(s *timerShard) {
	var due [ringAtOnce]*Alarm
	s.mu.Lock()
	s.wheel.Advance(ts.clock.Now())
	for {
		n := 0
		for n < len(due) {
			t := s.wheel.Pop()
			if t == nil {
				s.wish = s.wheel.Next()
				ts.clock.watch(&s.sleeper, s.wish)
				break
			}
			due[n] = t.Of
			n++
		}
		s.mu.Unlock()
		for _, a := range due[:n] {
			a.Owner.Ring(a)
		}
		if n < len(due) {
			return
		}
		s.mu.Lock()
	}
}
