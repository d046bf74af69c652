package driver

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestLateNanos: an answer caused by a deadline is counted once, whether its query waited, was in flight or arrived
// late. Other answers and releases are not counted. No query is answered before its deadline.
func TestLateNanos(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	count, mostNanos := uint64(0), int64(0)
	submit := func(slo, ttl api.Nanos) *ticket {
		k := newTicket(t, c, 0, slo, ttl)
		l.Submit(&k.Item)
		return k
	}
	expired := func(k *ticket) {
		t.Helper()
		<-k.answered
		now := c.Now()
		if now < k.Deadline || k.code != api.DeadlineExceeded && k.code != api.NoReplica {
			t.Errorf("answered %v, %d ns before the deadline", k.code, k.Deadline-now)
		}
		count++
		mostNanos += int64(now - k.Deadline)
		if n, sum := l.LateNanos().Count(), l.LateNanos().Sum(); n != count || sum < 0 || sum > mostNanos {
			t.Errorf("%d answers are counted, late by %d ns in all: want %d and at most %d", n, sum, count, mostNanos)
		}
	}
	for i := range 10 {
		k := submit(api.Nanos(i)*3e5, 0) // the first has passed on arrival, the others wait
		expired(k)
		<-k.released
		k = submit(api.Nanos(i)*3e5, 2e6)
		expired(k)
		<-k.released // at the end of its lifetime
	}

	k := submit(hour, 0)
	l.Cancel(&k.Item)
	k.want(api.Cancelled, api.Cancelled)
	r := newManual()
	l.AddReplica(1, r, 0)
	for range 5 {
		k = submit(hour, 0)
		l.BatchDone(1, &api.BatchResult{ID: (<-r.batches).ID, EvalNanos: 1})
		k.want(api.OK, api.OK)
		k = submit(1e6, 0)
		expired(k)
		select {
		case b := <-r.batches:
			l.BatchDone(1, &api.BatchResult{ID: b.ID, EvalNanos: 1})
		case <-k.released: // the machine was busy, and the deadline had passed on arrival
		}
		<-k.released
	}
	l.Close(api.ShuttingDown)
	k = submit(hour, 0)
	k.want(api.ShuttingDown, api.ShuttingDown)
	if n := l.LateNanos().Count(); n != count {
		t.Errorf("%d answers are counted in the end, want %d", n, count)
	}
}
