package scheduler

import "github.com/xebec-serving/xebec/api"

const (
	// probeNanos: one query in this time is let through to a replica although its profile says that it will be late.
	probeNanos = api.Nanos(1e9)
	// hopefulNanos: a query that has this long is never refused for what a profile says.
	hopefulNanos = int64(3600e9)
)

// admit says why a query that arrives is refused, or OK.
func (m *Machine) admit(it *Item) api.Code {
	f := m.function(it.Function)
	switch {
	case m.closed:
		return m.closeCode
	case f == nil || f.removed:
		return api.ModelRemoved
	case it.bytes > m.cfg.Batching.MaxBatchBytes:
		return api.TooLarge
	case it.Deadline <= m.now:
		return api.DeadlineExceeded
	case f.plan.Shed:
		m.counters.Shed++
		return api.Overloaded
	case !m.makeRoom(it.bytes):
		m.counters.QueueFull++
		return api.Overloaded
	case m.hopeless(f, it) && !m.probe():
		m.counters.RefusedEarly++
		return api.Overloaded
	}
	return api.OK
}

// makeRoom reports whether the queue takes one more query of that size. Late queries, whose callers have their answers,
// give way.
func (m *Machine) makeRoom(bytes int) bool {
	for m.queuedItems() >= m.cfg.MaxQueue || m.bytes+bytes > m.cfg.MaxQueueBytes && m.queuedItems() > 0 {
		if m.late.len() == 0 {
			return false
		}
		m.finish(m.takeFrom(&m.late), api.Overloaded)
	}
	return true
}

// hopeless reports whether, by all that is known, the query would end after its deadline. Nothing is known while a ready
// replica has shown too few batches or its cap is still growing.
//
// The estimate is a count: how many queries the ready replicas finish before the deadline, whole batches at their caps
// and one smaller one at the end, against how many would be served before this one. With one replica, idle, a cap of 32
// and 2 ms + 10 µs × n: a deadline in 5 ms leaves room for two batches of 32 (2 × 2.32 ms) and nothing in the last
// 0.36 ms, so the 65th query is refused.
func (m *Machine) hopeless(f *function, it *Item) bool {
	left := int64(it.Deadline - m.now)
	if m.ready == 0 || left >= hopefulNanos {
		return false
	}
	// Each lost query that waits costs its replica a batch of one before anything else.
	alone := (m.retries.len() + m.ready - 1) / m.ready
	byBytes := max(1, m.cfg.Batching.MaxBatchBytes/max(1, it.bytes)) // as if all were of this size
	room := 0
	for _, r := range m.replicas {
		if !r.open() {
			continue
		}
		most := min(r.cap(), byBytes)
		if !r.profile.known() || most == r.cap() && !r.controller.settled() {
			return false
		}
		mine := left - r.remaining(m.now) - int64(alone)*r.profile.predict(1)
		if mine <= 0 {
			continue
		}
		each := max(1, r.profile.predict(most))
		room += int(mine/each)*most + r.profile.within(mine%each, most)
		if room > m.live { // everything that waits could go first
			return false
		}
	}
	if room == 0 {
		return true
	}
	// The round robin serves others meanwhile, in the proportion of their weights, as far as they have something waiting.
	own := f.queue.ahead(it.Deadline, room)
	others := m.live - f.queue.len()
	if others > 0 {
		turn := float64(own+1) * (m.ringWeight(f) - f.share()) / f.share()
		others = min(others, int(min(turn, float64(others))))
	}
	return own+others >= room
}

// ringWeight is the sum of the shares of f and of all functions that have queries waiting.
func (m *Machine) ringWeight(f *function) float64 {
	sum := 0.0
	if f.next == nil {
		sum = f.share()
	}
	if g := m.cursor; g != nil {
		for {
			sum += g.share()
			if g = g.next; g == m.cursor {
				break
			}
		}
	}
	return sum
}

// probe lets one query a second and replica through.
func (m *Machine) probe() bool {
	for _, r := range m.replicas {
		if r.open() && m.now-r.probedAt >= probeNanos {
			r.probedAt = m.now
			m.counters.Probes++
			return true
		}
	}
	return false
}
