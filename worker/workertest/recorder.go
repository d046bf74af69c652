package workertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

// patience is how long a test waits for an event. Only a defect exhausts it.
const patience = 60 * time.Second

// TB is what the package needs of a test. A process in a multi-process test provides its own.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Recorder records a replica's events. It detects broken promises: overlapping calls, a batch that is reported twice,
// anything after Gone.
type Recorder struct {
	// OnReady, OnDone and OnLeaving are called within the event if they are set.
	OnReady   func(worker.Replica)
	OnDone    func(worker.Replica, *api.BatchResult)
	OnLeaving func(worker.Replica, string)

	inside atomic.Int32

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each event
	replica worker.Replica
	ready   bool
	done    map[uint64]api.BatchResult
	first   map[uint64]bool // batches whose first output was reported
	leaving []string
	ends    []worker.End
	faults  []string
	events  int
}

func newRecorder() *Recorder {
	return &Recorder{changed: make(chan struct{}), done: map[uint64]api.BatchResult{}}
}

// event records one event under the lock and checks the promises.
func (c *Recorder) event(name string, r worker.Replica, note func()) (leave func()) {
	overlap := c.inside.Add(1) != 1
	c.mu.Lock()
	defer c.mu.Unlock()
	if overlap {
		c.faults = append(c.faults, name+" while another event was being handled")
	}
	if len(c.ends) > 0 {
		c.faults = append(c.faults, name+" after Gone")
	}
	c.events++
	if c.replica == nil {
		c.replica = r
	}
	if r != c.replica {
		c.faults = append(c.faults, name+" with another Replica than the event before")
	}
	note()
	close(c.changed)
	c.changed = make(chan struct{})
	return func() { c.inside.Add(-1) }
}

// Ready implements worker.Events.
func (c *Recorder) Ready(r worker.Replica) {
	defer c.event("Ready", r, func() {
		if c.ready {
			c.faults = append(c.faults, "Ready twice")
		}
		c.ready = true
	})()
	if c.OnReady != nil {
		c.OnReady(r)
	}
}

// Done implements worker.Events.
func (c *Recorder) Done(r worker.Replica, res *api.BatchResult) {
	defer c.event("Done", r, func() {
		if _, twice := c.done[res.ID]; twice {
			c.faults = append(c.faults, fmt.Sprintf("Done twice for batch %d", res.ID))
		}
		c.done[res.ID] = *res
	})()
	if c.OnDone != nil {
		c.OnDone(r, res)
	}
}

// FirstOutput implements worker.Events.
func (c *Recorder) FirstOutput(r worker.Replica, batch uint64, _ int64) {
	defer c.event("FirstOutput", r, func() {
		if _, done := c.done[batch]; done || c.first[batch] {
			c.faults = append(c.faults, fmt.Sprintf("FirstOutput out of place for batch %d", batch))
		}
		if c.first == nil {
			c.first = map[uint64]bool{}
		}
		c.first[batch] = true
	})()
}

// Leaving implements worker.Events.
func (c *Recorder) Leaving(r worker.Replica, reason string) {
	defer c.event("Leaving", r, func() { c.leaving = append(c.leaving, reason) })()
	if c.OnLeaving != nil {
		c.OnLeaving(r, reason)
	}
}

// Gone implements worker.Events.
func (c *Recorder) Gone(r worker.Replica, end worker.End) {
	defer c.event("Gone", r, func() { c.ends = append(c.ends, end) })()
}

// wait blocks until cond holds. It calls cond under the lock.
func (c *Recorder) wait(tb TB, what string, cond func() bool) {
	tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		c.mu.Lock()
		ok, changed := cond(), c.changed
		ends := c.ends
		c.mu.Unlock()
		if ok {
			return
		}
		if len(ends) > 0 {
			tb.Fatalf("waiting for %s: the replica is gone: %s", what, ends[0].Reason)
		}
		select {
		case <-changed:
		case <-timer.C:
			tb.Fatalf("waiting for %s: no event for %v", what, patience)
		}
	}
}

// WaitReady blocks until the worker takes batches.
func (c *Recorder) WaitReady(tb TB) worker.Replica {
	tb.Helper()
	var r worker.Replica
	c.wait(tb, "Ready", func() bool { r = c.replica; return c.ready })
	return r
}

// WaitLeaving blocks until Leaving and returns its reason.
func (c *Recorder) WaitLeaving(tb TB) string {
	tb.Helper()
	var reason string
	c.wait(tb, "Leaving", func() bool {
		if len(c.leaving) == 0 {
			return false
		}
		reason = c.leaving[0]
		return true
	})
	return reason
}

// WaitGone blocks until the replica is gone.
func (c *Recorder) WaitGone(tb TB) worker.End {
	tb.Helper()
	var end worker.End
	c.wait(tb, "Gone", func() bool {
		if len(c.ends) == 0 {
			return false
		}
		end = c.ends[0]
		return true
	})
	return end
}

// WaitDone blocks until a batch is reported done.
func (c *Recorder) WaitDone(tb TB, batch uint64) api.BatchResult {
	tb.Helper()
	var res api.BatchResult
	c.wait(tb, fmt.Sprintf("batch %d", batch), func() (ok bool) { res, ok = c.done[batch]; return ok })
	return res
}

// Result returns what was reported for a batch so far.
func (c *Recorder) Result(batch uint64) (api.BatchResult, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	res, ok := c.done[batch]
	return res, ok
}

// count is how many events there were.
func (c *Recorder) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

// isGone reports whether Gone has come.
func (c *Recorder) isGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends) > 0
}

// check reports broken promises, and an end that did not come exactly once.
func (c *Recorder) check(tb TB) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		tb.Errorf("events: %s", f)
	}
	if len(c.ends) != 1 {
		tb.Errorf("events: Gone came %d times, expected once", len(c.ends))
	}
}

// WaitDoneOrGone blocks until a batch is reported done or the replica is gone.
func (c *Recorder) WaitDoneOrGone(tb TB, batch uint64) (res api.BatchResult, gone bool) {
	tb.Helper()
	c.wait(tb, fmt.Sprintf("batch %d or Gone", batch), func() bool {
		var done bool
		res, done = c.done[batch]
		gone = !done && len(c.ends) > 0
		return done || gone
	})
	return res, gone
}
