package scheduler

import "github.com/xebec-serving/xebec/api"

// pipelineEagerNanos is three times what a batch costs to hand over and back across cores, about. Where the fixed cost of
// a batch is below it, a batch is sent behind another although it could still grow. The essay has the measurements.
const pipelineEagerNanos = 100_000

// holdSlackNanos is what a held batch keeps in hand before its most urgent query must start: a driver's clock may wake
// the machine that late.
const holdSlackNanos = 2_000_000

// Ready decides what follows from the events so far: overdue queries that wait are answered, batches are formed for
// every replica that has room, and all actions decided since the last call are moved into a, which is emptied first. The
// machine takes over the memory of a's lists, so that two Actions that take turns never grow once they are large enough.
//
// Feed all events that are at hand before calling Ready: queries that arrive together shall travel together.
func (m *Machine) Ready(now api.Nanos, a *Actions) {
	m.tick(now)
	m.expireQueued()
	m.dispatch()
	a.Reset()
	*a, m.out = m.out, *a
}

func (m *Machine) dispatch() {
	m.holdUntil = api.Never
	for m.ready > 0 && m.queuedItems() > 0 {
		if r := m.pickIdle(); r != nil {
			if !m.feedIdle(r) {
				return
			}
			continue
		}
		if m.retries.len() > 0 || m.live == 0 {
			return // lost queries wait for an idle replica, and late ones are in no hurry
		}
		r := m.pickBusy()
		if r == nil {
			return
		}
		m.send(r)
	}
}

// feedIdle sends the idle replica r what it shall have next. It reports whether anything was sent.
func (m *Machine) feedIdle(r *replica) bool {
	if m.retries.len() > 0 && m.retries.first() <= m.earliest() {
		m.sendAlone(r)
		return true
	}
	if m.live > 0 {
		if until := m.heldUntil(r); until > m.now {
			m.holdUntil = until
			return false
		}
	}
	m.send(r)
	return true
}

// earliest is the first deadline of all sub-queues.
func (m *Machine) earliest() api.Nanos {
	at := api.Never
	if f := m.cursor; f != nil {
		for {
			at = min(at, f.queue.first())
			if f = f.next; f == m.cursor {
				break
			}
		}
	}
	return at
}

// heldUntil is the time until which a batch for r that is not full waits for more queries: not beyond the moment at
// which its most urgent query must start, with the expected evaluation counted twice. A replica of which little is known
// is not held back, so that more becomes known.
func (m *Machine) heldUntil(r *replica) api.Nanos {
	holdNanos := m.cfg.Batching.HoldNanos
	if r.plan.HoldNanos != 0 {
		holdNanos = max(0, min(r.plan.HoldNanos, MaxHoldNanos))
	}
	if holdNanos == 0 || m.fills(r) || !r.profile.known() {
		return m.now
	}
	due := m.earliest() // far from the ends of the clock: an addition or subtraction of seconds does not overflow
	due -= api.Nanos(2*r.profile.predict(m.live) + holdSlackNanos)
	return min(m.waitSince+api.Nanos(holdNanos), due)
}

// fills reports whether a batch for r could not grow by waiting.
func (m *Machine) fills(r *replica) bool {
	return m.live >= r.cap() || m.liveBytes >= m.cfg.Batching.MaxBatchBytes
}

// pickIdle is the replica without work that would be done first with what waits; the one that was ready first, of equals.
func (m *Machine) pickIdle() *replica {
	var best *replica
	var bestNanos int64
	for _, r := range m.replicas {
		if !r.open() || len(r.flights) > 0 {
			continue
		}
		nanos := r.profile.predict(min(m.live, r.cap()))
		if best == nil || nanos < bestNanos {
			best, bestNanos = r, nanos
		}
	}
	return best
}

// pickBusy is the replica that gets a batch behind those it has: with the fewest outstanding, then the one that would be
// done first. A batch that could still grow is kept back: it would not start now, and waiting makes it larger.
func (m *Machine) pickBusy() *replica {
	var best *replica
	var bestNanos int64
	for _, r := range m.replicas {
		if !r.open() || !r.room() {
			continue
		}
		n := min(m.live, r.cap())
		nanos := r.profile.predict(n)
		if !m.fills(r) && !m.eager(r) {
			continue
		}
		nanos += r.remaining(m.now)
		if best == nil || len(r.flights) < len(best.flights) || len(r.flights) == len(best.flights) && nanos < bestNanos {
			best, bestNanos = r, nanos
		}
	}
	return best
}

// eager reports whether a batch costs r so little that keeping it busy is worth more than larger batches.
func (m *Machine) eager(r *replica) bool {
	return r.profile.known() && r.profile.intercept <= float64(m.eagerNanos)
}

// sendAlone sends the most urgent of the lost queries in a batch of its own.
func (m *Machine) sendAlone(r *replica) {
	fl := m.newFlight()
	fl.alone = true
	fl.add(m.takeFrom(&m.retries))
	m.launch(r, fl)
}

// send fills a batch for r and sends it: queries in time first, shared out between the functions by deficit round robin
// (Shreedhar and Varghese, 1995; every query costs 1), then late ones.
func (m *Machine) send(r *replica) {
	fl := m.newFlight()
	limit, maxBytes := r.cap(), m.cfg.Batching.MaxBatchBytes
	bytes, fits := 0, true
	for fits && m.cursor != nil && len(fl.items) < limit {
		f := m.cursor
		if !m.visiting {
			m.visiting = true
			f.deficit += f.share() / m.minWeight // at least 1: every visit serves someone
		}
		for f.deficit >= 1 && len(fl.items) < limit {
			it := f.queue.heap[0].it
			if fits = len(fl.items) == 0 || bytes+it.bytes <= maxBytes; !fits {
				break
			}
			bytes += it.bytes
			f.deficit--
			fl.add(m.takeLive(f))
			if f.next == nil { // that was its last
				break
			}
		}
		if f.next != nil && f.deficit < 1 {
			m.cursor, m.visiting = f.next, false
		}
	}
	for fits && m.late.len() > 0 && len(fl.items) < limit {
		it := m.late.heap[0].it
		if fits = len(fl.items) == 0 || bytes+it.bytes <= maxBytes; fits {
			bytes += it.bytes
			fl.add(m.takeFrom(&m.late))
		}
	}
	fl.full = len(fl.items) == r.controller.cap()
	m.launch(r, fl)
}

func (fl *flight) add(it *Item) {
	it.place = flying
	fl.items = append(fl.items, it)
	fl.batch.Queries = append(fl.batch.Queries, &it.Query)
}

func (m *Machine) launch(r *replica, fl *flight) {
	fl.due = fl.nextDue()
	fl.batch.ID = r.nextBatch
	r.nextBatch++
	if m.cfg.Batching.Pad {
		fl.batch.Pad = max(0, m.cfg.Batching.MaxBatch-len(fl.items))
	}
	if len(r.flights) == 0 {
		r.oldestAt = m.now
	}
	r.flights = append(r.flights, fl)
	m.out.Dispatches = append(m.out.Dispatches, Dispatch{r.id, &fl.batch})
}

// nextDue is the earliest deadline of a query in the batch whose caller still waits.
func (fl *flight) nextDue() api.Nanos {
	due := api.Never
	for _, it := range fl.items {
		if !it.answered {
			due = min(due, it.Deadline)
		}
	}
	return due
}
