package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/loadgen"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

const (
	// maxInFlight is twice the largest batch: one in evaluation, one behind it. It also bounds the queue of an open loop.
	maxInFlight = 2 * maxBatch
	// minInFlight keeps a container busy that evaluates queries one by one.
	minInFlight = 64
	// look is how often a closed loop reads the cap and the clock.
	look = 10 * time.Millisecond
	// leastBatches is the least number of returned batches in a measured window, even if the container is slow.
	leastBatches = 3
	// A cap that did not grow by more than settleGrowth within settleWindow has settled.
	settleWindow = 2 * time.Second
	settleGrowth = 1.02
)

// client sends one query after the other and owns its item.
type client struct {
	scheduler.Item
	load *load
	row  int
}

// Answered checks the answer.
func (c *client) Answered(_ *scheduler.Item, code api.Code) {
	l := c.load
	if code != api.OK {
		l.c.blame(fmt.Errorf("a query ended with %s", code))
		return
	}
	if err := l.c.model.check(c.row, c.Outputs); err != nil {
		l.c.blame(err)
	}
	if l.timed {
		now := l.c.clock.Now()
		l.mu.Lock()
		l.latencies = append(l.latencies, answered{now, int64(now - c.Arrived)})
		l.mu.Unlock()
	}
}

// Released returns the client to the generator, which is another goroutine, so that the goroutine that delivers answers is not held up.
func (c *client) Released(*scheduler.Item, api.Code) {
	l := c.load
	l.mu.Lock()
	l.back = append(l.back, c)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

type answered struct {
	at           api.Nanos
	latencyNanos int64
}

// load is the generator's side of a run against one lane.
type load struct {
	c     *container
	lane  *driver.Lane
	timed bool
	wake  chan struct{}

	// Only the generator uses these.
	idle  []*client
	out   int // submitted and not returned
	made  int
	batch []*scheduler.Item

	mu        sync.Mutex
	back      []*client
	spare     []*client
	latencies []answered
}

func (c *container) newLoad(lane *driver.Lane, timed bool) *load {
	c.records()
	return &load{c: c, lane: lane, timed: timed, wake: make(chan struct{}, 1)}
}

// collect takes back the released clients.
func (l *load) collect() {
	l.mu.Lock()
	l.back, l.spare = l.spare[:0], l.back
	l.mu.Unlock()
	l.idle = append(l.idle, l.spare...)
	l.out -= len(l.spare)
}

// add prepares a query that was due at the given time. submit sends all added queries.
func (l *load) add(due api.Nanos) {
	var c *client
	if n := len(l.idle); n > 0 {
		c, l.idle = l.idle[n-1], l.idle[:n-1]
	} else {
		row := l.made % len(l.c.model.queries)
		c = &client{load: l, row: row}
		c.Inputs = l.c.model.queries[row : row+1]
		c.Owner = c
		l.made++
	}
	c.Arrived, c.Deadline, c.Expires = due, api.Never, api.Never
	l.batch = append(l.batch, &c.Item)
}

func (l *load) submit() {
	l.out += len(l.batch)
	l.lane.SubmitAll(l.batch, nil)
	l.batch = l.batch[:0]
}

// answers returns the number of recorded latencies; forget drops them.
func (l *load) answers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.latencies)
}

func (l *load) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latencies = l.latencies[:0]
}

// drain waits until every client has returned.
func (l *load) drain(ctx context.Context) error {
	for {
		l.collect()
		if l.out == 0 {
			return l.c.failure()
		}
		select {
		case <-l.wake:
		case <-l.c.gone:
			return l.c.failure()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// saturated is the result of a closed loop: the batches that returned in the measured window, the container's CPU time in it, and how long
// the cap took to settle.
type saturated struct {
	records []batchRecord
	cpu     time.Duration
	settled time.Duration
}

// window is the measured part of a run.
type window struct{ from, to api.Nanos }

// saturate keeps the lane's queue full: three caps of queries are in flight, one in evaluation, one behind it and one on its way, within
// bounds. The measured window begins after the warm-up. If settle is more than 0 it also waits until the cap has settled, but at most for
// settle. The window lasts for duration, and until the least number of batches has returned in it.
func (c *container) saturate(ctx context.Context, lane *driver.Lane, warmup, settle, duration time.Duration, least int) (run saturated, err error) {
	l := c.newLoad(lane, false)
	tick := time.NewTicker(look)
	defer tick.Stop()
	var (
		snapshot scheduler.Snapshot
		began    = c.clock.Now()
		measured window
		watch    = capWatch{settleWindow: api.Nanos(settleWindow), max: maxBatch}
		target   = minInFlight
		before   time.Duration // CPU time at the beginning of the measured window
	)
	for {
		l.collect()
		now := c.clock.Now()
		for l.out+len(l.batch) < target {
			l.add(now)
		}
		if len(l.batch) > 0 {
			l.submit()
		}
		select {
		case <-l.wake:
			continue
		case <-tick.C:
		case <-c.gone:
			return run, c.failure()
		case <-ctx.Done():
			return run, ctx.Err()
		}
		if err := c.failure(); err != nil {
			return run, err
		}
		lane.Snapshot(&snapshot)
		size := snapshot.Replicas[0].Cap
		target = min(max(3*size, minInFlight), maxInFlight)
		now = c.clock.Now()
		passed := time.Duration(now - began)
		switch {
		case measured.from == 0:
			if passed >= warmup && (settle == 0 || watch.settled(now, size) || passed >= settle) {
				measured.from, run.settled = now, passed
				c.records()
				if before, err = c.cpu(); err != nil {
					return run, err
				}
			}
		case time.Duration(now-measured.from) >= duration && c.recorded() >= least:
			measured.to = now
			after, err := c.cpu()
			if err != nil {
				return run, err
			}
			run.cpu = after - before
			if err := l.drain(ctx); err != nil {
				return run, err
			}
			run.records = measured.of(c.records())
			return run, nil
		}
	}
}

// of returns the batches that returned in the window.
func (w window) of(records []batchRecord) []batchRecord {
	var in []batchRecord
	for _, r := range records {
		if r.at >= w.from && r.at < w.to {
			in = append(in, r)
		}
	}
	return in
}

// capWatch detects when a cap stops growing.
type capWatch struct {
	settleWindow api.Nanos
	max          int
	best         int       // the last cap that counted as growth
	since        api.Nanos // when it was seen
}

func (w *capWatch) settled(now api.Nanos, size int) bool {
	if float64(size) > settleGrowth*float64(w.best) {
		w.best, w.since = size, now
	}
	return size >= w.max || now-w.since >= w.settleWindow
}

// offered is the result of an open loop.
type offered struct {
	records   []batchRecord
	latencies []int64 // nanoseconds, from due to answered
	seconds   float64
	cpu       time.Duration
	refused   bool // the queue was full because the container did not keep up
}

// offer sends queries at the times of a Poisson process, regardless of their answers. Queries that become due while the generator sleeps, about
// 60 µs at a time, are submitted together. Latency counts from when a query was due.
func (c *container) offer(ctx context.Context, lane *driver.Lane, rate float64, seed uint64, warmup, duration time.Duration) (offered, error) {
	var o offered
	schedule, err := loadgen.NewSchedule(rate, loadgen.Poisson, seed, 0, 1)
	if err != nil {
		return o, err
	}
	l := c.newLoad(lane, true)
	began := c.clock.Now()
	measured := window{from: began + api.Nanos(warmup), to: api.Never}
	var before, after time.Duration
	for warm := false; ; {
		now := c.clock.Now()
		if !warm && now >= measured.from {
			warm = true
			measured = window{from: now, to: now + api.Nanos(duration)}
			c.records()
			l.forget()
			if before, err = c.cpu(); err != nil {
				return o, err
			}
		}
		if now >= measured.to && c.recorded() >= leastBatches && l.answers() > 0 {
			measured.to = now
			break
		}
		l.collect()
		for began+api.Nanos(schedule.Due()) <= now {
			due := began + api.Nanos(schedule.Next())
			if l.out+len(l.batch) >= maxInFlight {
				o.refused = true
				continue
			}
			l.add(due)
		}
		if len(l.batch) > 0 {
			l.submit()
		}
		if err := c.failure(); err != nil {
			return o, err
		}
		if err := ctx.Err(); err != nil {
			return o, err
		}
		// The Go runtime's timers are only as precise as a millisecond when nothing else runs.
		pause := unix.NsecToTimespec(min(max(int64(began)+schedule.Due()-int64(c.clock.Now()), 1), int64(look)))
		_ = unix.Nanosleep(&pause, nil) // when interrupted, the loop sleeps again
	}
	if after, err = c.cpu(); err != nil {
		return o, err
	}
	if err := l.drain(ctx); err != nil {
		return o, err
	}
	o.records = measured.of(c.records())
	for _, a := range l.latencies {
		if a.at >= measured.from && a.at < measured.to {
			o.latencies = append(o.latencies, a.latencyNanos)
		}
	}
	o.seconds, o.cpu = float64(measured.to-measured.from)/1e9, after-before
	return o, nil
}
