package workertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/local"
)

// patience is how long a test waits for something that must come: only a defect ever waits so long.
const patience = 60 * time.Second

// TB is what the package needs of a test. A process that plays a part in one brings its own.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// End is how a replica went, as Gone reported it.
type End struct {
	Reason    string
	Violation bool
}

// Recorder keeps what a replica's events said, and notices when they break their own promises: overlapping calls, a batch
// that is reported twice, anything after Gone.
type Recorder struct {
	// OnReady, OnDone and OnLeaving, where set, are called within the event.
	OnReady   func(*local.Replica)
	OnDone    func(*local.Replica, *api.BatchResult)
	OnLeaving func(*local.Replica, string)

	inside atomic.Int32

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each event
	replica *local.Replica
	ready   bool
	done    map[uint64]api.BatchResult
	leaving []string
	ends    []End
	faults  []string
}

func newRecorder() *Recorder {
	return &Recorder{changed: make(chan struct{}), done: map[uint64]api.BatchResult{}}
}

// event notes one event under the lock; it reports what it broke.
func (c *Recorder) event(name string, note func()) (leave func()) {
	overlap := c.inside.Add(1) != 1
	c.mu.Lock()
	defer c.mu.Unlock()
	if overlap {
		c.faults = append(c.faults, name+" while another event was being handled")
	}
	if len(c.ends) > 0 {
		c.faults = append(c.faults, name+" after Gone")
	}
	note()
	close(c.changed)
	c.changed = make(chan struct{})
	return func() { c.inside.Add(-1) }
}

// Ready implements local.Events.
func (c *Recorder) Ready(r *local.Replica) {
	defer c.event("Ready", func() {
		if c.ready {
			c.faults = append(c.faults, "Ready twice")
		}
		c.replica, c.ready = r, true
	})()
	if c.OnReady != nil {
		c.OnReady(r)
	}
}

// Done implements local.Events.
func (c *Recorder) Done(r *local.Replica, res *api.BatchResult) {
	defer c.event("Done", func() {
		if _, twice := c.done[res.ID]; twice {
			c.faults = append(c.faults, fmt.Sprintf("Done twice for batch %d", res.ID))
		}
		c.done[res.ID] = *res
	})()
	if c.OnDone != nil {
		c.OnDone(r, res)
	}
}

// Leaving implements local.Events.
func (c *Recorder) Leaving(r *local.Replica, reason string) {
	defer c.event("Leaving", func() { c.leaving = append(c.leaving, reason) })()
	if c.OnLeaving != nil {
		c.OnLeaving(r, reason)
	}
}

// Gone implements local.Events.
func (c *Recorder) Gone(_ *local.Replica, reason string, violation bool) {
	defer c.event("Gone", func() { c.ends = append(c.ends, End{reason, violation}) })()
}

// wait blocks until cond, which is called under the lock, holds.
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
			tb.Fatalf("waiting for %s: the replica is gone: %+v", what, ends[0])
		}
		select {
		case <-changed:
		case <-timer.C:
			tb.Fatalf("waiting for %s: nothing came for %v", what, patience)
		}
	}
}

// WaitReady blocks until the worker takes batches.
func (c *Recorder) WaitReady(tb TB) *local.Replica {
	tb.Helper()
	var r *local.Replica
	c.wait(tb, "Ready", func() bool { r = c.replica; return c.ready })
	return r
}

// WaitLeaving blocks until the worker has asked for leave, and gives its reason.
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
func (c *Recorder) WaitGone(tb TB) End {
	tb.Helper()
	var end End
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

// Result gives what was reported of a batch so far.
func (c *Recorder) Result(batch uint64) (api.BatchResult, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	res, ok := c.done[batch]
	return res, ok
}

// check reports broken promises, and how often Gone came.
func (c *Recorder) check(tb TB) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		tb.Errorf("events: %s", f)
	}
	if len(c.ends) != 1 {
		tb.Errorf("events: Gone came %d times, expected once: %+v", len(c.ends), c.ends)
	}
}

// WaitDoneOrGone blocks until a batch is reported done or the replica is gone without.
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
