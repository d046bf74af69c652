package driver

import (
	"runtime"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// eventually waits for a condition, yielding.
func eventually(is func() bool) {
	for !is() {
		runtime.Gosched()
	}
}

func TestClockSleepsWhileNobodyWaits(t *testing.T) {
	c := NewClock()
	defer c.Close()
	asleep := func() bool { return c.until.Load() == int64(api.Never) }
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
		eventually(func() bool { return !l.listed.Load() })
	}
}

// TestClockHearsEarlierWishes: it sleeps until a far deadline when a nearer one turns up at another lane.
func TestClockHearsEarlierWishes(t *testing.T) {
	c := NewClock()
	defer c.Close()
	far, near := NewLane(scheduler.DefaultConfig(), c), NewLane(scheduler.DefaultConfig(), c)
	far.AddFunction(1)
	near.AddFunction(1)
	for range 20 {
		a := newTicket(t, c, 0, hour, 0)
		far.Submit(&a.Item)
		eventually(func() bool { until := c.until.Load(); return until > 0 && until <= int64(a.Deadline) })
		b := newTicket(t, c, 0, 1e6, 0)
		near.Submit(&b.Item)
		b.want(api.NoReplica, api.NoReplica)
		far.Cancel(&a.Item)
		a.want(api.Cancelled, api.Cancelled)
	}
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
