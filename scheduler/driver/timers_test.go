package driver

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// bell is an alarm that counts its rings.
type bell struct {
	Alarm
	t     *testing.T
	ts    *Timers
	at    atomic.Int64 // must not ring before this
	rings atomic.Int32
	again int // how often it sets itself again, for a time that has passed
	rang  chan struct{}
}

func newBell(t *testing.T, ts *Timers) *bell {
	b := &bell{t: t, ts: ts, rang: make(chan struct{}, 1000)}
	b.Owner = b
	return b
}

func (b *bell) Ring(a *Alarm) {
	if now := b.ts.clock.Now(); a != &b.Alarm || int64(now) < b.at.Load() {
		b.t.Errorf("rung at %d, want not before %d", now, b.at.Load())
	}
	b.rings.Add(1)
	if b.again > 0 {
		b.again--
		b.ts.Set(a, 1)
	}
	b.rang <- struct{}{}
}

func (b *bell) set(at api.Nanos) bool {
	b.at.Store(int64(at))
	return b.ts.Set(&b.Alarm, at)
}

func newTestTimers(t *testing.T) *Timers {
	c := NewClock()
	t.Cleanup(c.Close)
	return NewTimers(c)
}

func TestAlarms(t *testing.T) {
	ts := newTestTimers(t)
	a, far := newBell(t, ts), newBell(t, ts)
	if ts.Stop(&a.Alarm) {
		t.Error("stopped an alarm that was never set")
	}
	if far.set(hour) {
		t.Error("the first Set returned true")
	}
	a.set(ts.clock.Now() + 2e6)
	<-a.rang
	if ts.Stop(&a.Alarm) {
		t.Error("stopped an alarm that has rung")
	}
	a.set(hour)
	if !a.set(1) { // has passed: it rings at once
		t.Error("Set of an alarm that is set returned false")
	}
	<-a.rang
	if !far.set(2*hour) || !ts.Stop(&far.Alarm) || ts.Stop(&far.Alarm) {
		t.Error("want Set and the first Stop to return true, and the second Stop false")
	}
	if a.set(api.Never) || ts.Stop(&a.Alarm) {
		t.Error("an alarm at Never is set")
	}
	a.again = 3
	a.set(ts.clock.Now())
	for range 4 {
		<-a.rang
	}
	if a.rings.Load() != 6 || far.rings.Load() != 0 {
		t.Errorf("rung %d and %d times, want 6 and 0", a.rings.Load(), far.rings.Load())
	}
	// Alarms that have rung ask for nothing any more. At most the clock still looks at the time of the one that was
	// stopped.
	eventually(func() bool { return ts.clock.sleepUntil.Load() > int64(hour)/2 })
}

// TestManyAlarmsAtOnce: more alarms than a shard rings under one lock, all set again while the others ring.
func TestManyAlarmsAtOnce(t *testing.T) {
	ts := newTestTimers(t)
	at := ts.clock.Now() + 5e6
	bells := make([]*bell, 10*timerShards*ringAtOnce)
	for i := range bells {
		bells[i] = newBell(t, ts)
		bells[i].again = 1
		bells[i].set(at)
	}
	for _, b := range bells {
		<-b.rang
		<-b.rang
		if n := b.rings.Load(); n != 2 {
			t.Errorf("rung %d times, want 2", n)
		}
	}
}

// TestStopRacesRing: an alarm rings once for each Set, unless a Stop or another Set has returned true.
func TestStopRacesRing(t *testing.T) {
	ts := newTestTimers(t)
	var all sync.WaitGroup
	var stopped, moved, rung atomic.Int64
	for range 4 {
		all.Go(func() {
			b := newBell(t, ts)
			mine := int32(0)
			ring := func() {
				<-b.rang // a missing ring hangs here
				mine++
				rung.Add(1)
			}
			for range 300 {
				first := ts.clock.Now() + api.Nanos(rand.Int64N(2e6))
				b.set(first)
				if rand.IntN(2) == 0 {
					second := ts.clock.Now() + api.Nanos(rand.Int64N(2e6))
					b.at.Store(int64(min(first, second)))
					if ts.Set(&b.Alarm, second) {
						moved.Add(1)
					} else {
						ring()
					}
				}
				for until := ts.clock.Now() + api.Nanos(rand.Int64N(3e6)); ts.clock.Now() < until && len(b.rang) == 0; {
					runtime.Gosched()
				}
				if ts.Stop(&b.Alarm) {
					stopped.Add(1)
				} else {
					ring()
				}
				if n := b.rings.Load(); n != mine {
					t.Errorf("rung %d times, want %d", n, mine)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("stopped %d, moved %d, rung %d", stopped.Load(), moved.Load(), rung.Load())
}
