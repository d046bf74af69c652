package capacity

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// ColdStarts measures how long queries wait that wake a version: from the first query that found no replica to the first
// answer after it. It also estimates how long a replica takes to start.
type ColdStarts struct {
	// startNanos is how long starts take, from the launch to the ready worker: a running mean. 0: there has been none.
	startNanos atomic.Int64
	mu         sync.Mutex
	estimated  bool // startNanos comes from a quiet launch

	calledAt atomic.Int64 // api.Nanos of the query that woke the version; 0: none waits
	count    uint64
	sum      time.Duration
	last     time.Duration
	waits    *obs.Latency // nil for versions that were never woken
}

// called notes that a query found no replica. An unanswered call of long ago does not count any more.
func (c *ColdStarts) called(now api.Nanos) {
	if old := c.calledAt.Load(); old == 0 || int64(now)-old > int64(api.MaxColdStart) {
		c.calledAt.CompareAndSwap(old, int64(max(now, 1)))
	}
}

// Pending reports whether a query that woke the version has no answer yet: true for hardly any batch.
func (c *ColdStarts) Pending() bool { return c.calledAt.Load() != 0 }

// Answered is called when a batch was answered while a cold start was pending.
func (c *ColdStarts) Answered(now api.Nanos) {
	called := c.calledAt.Swap(0)
	if called == 0 {
		return
	}
	wait := int64(now) - called
	if wait > int64(api.MaxColdStart) {
		return // the caller left long ago
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == nil {
		c.waits = new(obs.Latency)
	}
	c.count++
	c.last = time.Duration(wait)
	c.sum += c.last
	c.waits.Observe(wait)
}

// Forget is called when a replica is ready and no query waits: the query that woke it was answered elsewhere or by a default,
// so the time to the next answer is not a wait.
func (c *ColdStarts) Forget() { c.calledAt.Store(0) }

// Started notes how long a launch took. A quiet launch runs at the lowest priority and takes longer, so it counts only while
// there is nothing else.
func (c *ColdStarts) Started(took time.Duration, quiet bool) {
	const keep = 0.7
	c.mu.Lock()
	defer c.mu.Unlock()
	mean := float64(c.startNanos.Load())
	switch {
	case mean == 0 || c.estimated && !quiet:
		mean, c.estimated = float64(took), quiet
	case quiet:
		return
	}
	c.startNanos.Store(int64(keep*mean + (1-keep)*float64(took)))
}

// StartTime is how long starts take; 0: there has been none.
func (c *ColdStarts) StartTime() time.Duration { return time.Duration(c.startNanos.Load()) }

// status is for people; nil: the version was never woken.
func (c *ColdStarts) status() *api.ColdStartStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		return nil
	}
	ms := func(nanos float64) float64 { return nanos / 1e6 }
	return &api.ColdStartStatus{Count: c.count, LastMS: ms(float64(c.last)), P50MS: ms(c.waits.Quantile(0.5)), P99MS: ms(c.waits.Quantile(0.99))}
}

// Histogram is for a scrape; its count is 0 where the version was never woken.
func (c *ColdStarts) Histogram() obs.Histogram {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		return obs.Histogram{}
	}
	h := c.waits.Histogram(obs.ColdStartBounds)
	h.Sum = c.sum.Seconds()
	return h
}
