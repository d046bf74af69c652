package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// coldStarts measures how long those wait who wake a version: from the first query that found no replica to the first answer after it.
// It also knows what the start of a replica takes.
type coldStarts struct {
	// startNanos is what starts take, from the launch to the worker that is ready: a mean of the last ones. 0: there has been none.
	startNanos atomic.Int64
	estimated  bool // by a quiet launch; as startNanos written with the deployment's lock held

	calledAt atomic.Int64 // api.Nanos of the query that woke it; 0: nobody waits
	mu       sync.Mutex
	count    uint64
	sum      time.Duration
	last     time.Duration
	waits    *obs.Latency // of versions that have been woken
}

// called notes that a query has found no replica. One that nobody answered, and that was long ago, does not count any more.
func (c *coldStarts) called(now api.Nanos) {
	if old := c.calledAt.Load(); old == 0 || int64(now)-old > int64(api.MaxColdStart) {
		c.calledAt.CompareAndSwap(old, int64(max(now, 1)))
	}
}

// answered is told of a batch that was answered.
func (c *coldStarts) answered(now api.Nanos) {
	if c.calledAt.Load() == 0 {
		return // as for nearly every batch
	}
	called := c.calledAt.Swap(0)
	if called == 0 {
		return
	}
	wait := int64(now) - called
	if wait > int64(api.MaxColdStart) {
		return // whoever called has left long ago
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

// missedNobody is told when a replica comes and no query waits: who called has had his answer elsewhere, or a default, and how long it is until
// the next query is no wait of anybody.
func (c *coldStarts) missedNobody() { c.calledAt.Store(0) }

// started notes what a launch took. One that was quiet takes longer than one that is waited for, and counts only where there is nothing else.
func (c *coldStarts) started(took time.Duration, quiet bool) {
	const keep = 0.7
	mean := float64(c.startNanos.Load())
	switch {
	case mean == 0 || c.estimated && !quiet:
		mean, c.estimated = float64(took), quiet
	case quiet:
		return
	}
	c.startNanos.Store(int64(keep*mean + (1-keep)*float64(took)))
}

// read is for people and metrics; nil: it was never woken.
func (c *coldStarts) read() *api.ColdStartStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		return nil
	}
	ms := func(nanos float64) float64 { return nanos / 1e6 }
	return &api.ColdStartStatus{Count: c.count, LastMS: ms(float64(c.last)), P50MS: ms(c.waits.Quantile(0.5)), P99MS: ms(c.waits.Quantile(0.99))}
}

// histogram is for a scrape; its count is 0 where the version was never woken.
func (c *coldStarts) histogram() obs.Histogram {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		return obs.Histogram{}
	}
	h := c.waits.Histogram(obs.ColdStartBounds)
	h.Sum = c.sum.Seconds()
	return h
}
