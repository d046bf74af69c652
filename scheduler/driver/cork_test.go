package driver

import (
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

func (k *ticket) submit(l *Lane, cork *Cork) { l.SubmitAll([]*scheduler.Item{&k.Item}, cork) }

// wantBatch answers the next batch, which has n queries.
func (r *manual) wantBatch(t *testing.T, l *Lane, n int) {
	t.Helper()
	b := <-r.batches
	if len(b.Queries) != n {
		t.Errorf("a batch of %d, want %d", len(b.Queries), n)
	}
	l.BatchDone(1, &api.BatchResult{ID: b.ID, EvalNanos: 1000})
}

func TestCork(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	r := newManual()
	l.AddReplica(1, r, 0)
	var cork Cork
	var tickets []*ticket
	for range 5 {
		k := newTicket(t, c, 0, hour, 0)
		k.submit(l, &cork)
		tickets = append(tickets, k)
		if len(r.batches) > 0 {
			t.Fatal("a corked query was sent before the release")
		}
		if l.Held() == 0 {
			t.Error("the lane does not count what lies in its intake")
		}
	}
	cork.Release()
	r.wantBatch(t, l, 5)
	for _, k := range tickets {
		k.want(api.OK, api.OK)
	}
	if l.Held() != 0 {
		t.Errorf("%d queries are left", l.Held())
	}
	cork.Release() // has nothing left to do

	// Another goroutine that works the lane takes what lies there, and the release finds nothing.
	k := newTicket(t, c, 0, hour, 0)
	k.submit(l, &cork)
	var s scheduler.Snapshot
	l.Snapshot(&s)
	r.wantBatch(t, l, 1)
	k.want(api.OK, api.OK)
	cork.Release()
	if len(r.batches) > 0 {
		t.Error("the release sent another batch")
	}

	// A query without a cork that finds others in the intake goes with them.
	with, without := newTicket(t, c, 0, hour, 0), newTicket(t, c, 0, hour, 0)
	with.submit(l, &cork)
	without.submit(l, nil)
	cork.Release()
	r.wantBatch(t, l, 2)
	with.want(api.OK, api.OK)
	without.want(api.OK, api.OK)
}

// A cancelled query that nothing has taken in ends at once.
func TestCancelOfACorkedQuery(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	var cork Cork
	k := newTicket(t, c, 0, hour, 0)
	k.submit(l, &cork)
	l.Cancel(&k.Item)
	k.want(api.Cancelled, api.Cancelled)
	cork.Release()
}

// More lanes than a cork has places for are worked before the release, and none twice.
func TestCorkOfManyLanes(t *testing.T) {
	c := NewClock()
	t.Cleanup(c.Close)
	var cork Cork
	var tickets []*ticket
	for range 3*corkedLanes + 1 {
		l := NewLane(scheduler.DefaultConfig(), c)
		l.AddFunction(1)
		l.AddReplica(1, &loopback{l: l, id: 1}, 0)
		k := newTicket(t, c, 0, hour, 0)
		k.submit(l, &cork)
		tickets = append(tickets, k)
	}
	for i, k := range tickets[:3*corkedLanes] {
		select {
		case <-k.released:
		default:
			t.Errorf("query %d waits", i)
		}
	}
	cork.Release()
	for _, k := range tickets {
		k.want(api.OK, api.OK)
	}
}

// fragile is an owner that panics when its query is answered.
type fragile struct{ scheduler.Item }

func (*fragile) Answered(*scheduler.Item, api.Code) { panic("a defect") }
func (*fragile) Released(*scheduler.Item, api.Code) {}

// A panic of a query's owner keeps no other lane from being worked.
func TestPanicInARelease(t *testing.T) {
	c := NewClock()
	t.Cleanup(c.Close)
	var cork Cork
	var others []*ticket
	for i := range 3 {
		l := NewLane(scheduler.DefaultConfig(), c)
		l.AddFunction(1)
		l.AddReplica(1, &loopback{l: l, id: 1}, 0)
		if i == 1 {
			f := new(fragile)
			f.Owner = f
			f.Query = newTicket(t, c, 0, hour, 0).Query
			l.SubmitAll([]*scheduler.Item{&f.Item}, &cork)
			continue
		}
		k := newTicket(t, c, 0, hour, 0)
		k.submit(l, &cork)
		others = append(others, k)
	}
	panics := 0
	release := func() {
		defer func() {
			if recover() != nil {
				panics++
			}
		}()
		cork.Release()
	}
	release()
	release()
	for _, k := range others {
		k.want(api.OK, api.OK)
	}
	if panics != 1 {
		t.Errorf("%d panics, want 1", panics)
	}
}

// Goroutines with corks, goroutines without, and looks at the lane: each query ends once.
func TestCorksOfManyGoroutines(t *testing.T) {
	c, l := newTestLane(t, scheduler.DefaultConfig())
	l.AddReplica(1, &loopback{l: l, id: 1}, 0)
	var submitters sync.WaitGroup
	const each = 300
	for i := range 6 {
		submitters.Go(func() {
			var cork *Cork
			if i < 4 {
				cork = new(Cork)
			}
			for n := range each {
				k := newTicket(t, c, 0, hour, 0)
				k.submit(l, cork)
				if cork != nil && n%7 != 6 {
					continue
				}
				if cork != nil {
					cork.Release()
				}
				<-k.released
			}
			if cork != nil {
				cork.Release()
			}
		})
	}
	submitters.Wait()
	var s scheduler.Snapshot
	l.Snapshot(&s)
	if got := s.Counters.Ended[api.OK]; s.Held > 0 || got != 6*each {
		t.Errorf("%d queries have ended and %d wait after the last release, want %d and none", got, s.Held, 6*each)
	}
}
