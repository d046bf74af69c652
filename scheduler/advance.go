package scheduler

import "github.com/xebec-serving/xebec/api"

const (
	// hungMinNanos: no replica is taken for hung sooner, whatever its profile; a collector's pause or a page fault storm
	// is not a hang.
	hungMinNanos = int64(1e9)
	// hungColdNanos is for replicas whose profile is not known and whose model sets no timeout.
	hungColdNanos = int64(10e9)
	// hungFactor times its P99 is more than a healthy replica takes.
	hungFactor = 10
	// hungAgainNanos is how far apart two looks are at which a replica is overdue, before it is taken for hung. Where this process itself
	// stood still (it was stopped, swapped out, or its machine was), the first look comes before anybody has had the time
	// to take in the answers that have been there for long. That takes microseconds, and on a full machine the core's next turn or two.
	hungAgainNanos = int64(100e6)
)

// Advance: time has passed. Queries in flight whose deadline is over are answered, and replicas that have been silent too
// long are to be killed. Call it at [Machine.NextWake] or later, and Ready after it, which looks after what waits.
func (m *Machine) Advance(now api.Nanos) {
	m.tick(now)
	for _, r := range m.replicas {
		for _, fl := range r.flights {
			m.expireFlight(fl)
		}
		m.judge(r)
	}
}

// judge asks for the end of a replica that is hung: it is overdue, and was when somebody looked hungAgainNanos ago or earlier.
func (m *Machine) judge(r *replica) {
	if len(r.flights) == 0 || r.leaving {
		return
	}
	limit := m.hungNanos(r)
	switch {
	case int64(m.now-r.oldestAt) < limit:
		r.overdueAt = 0 // the limit may have grown
	case r.overdueAt == 0:
		r.overdueAt = m.now
	case int64(m.now-r.overdueAt) >= hungAgainNanos:
		m.killHung(r, limit)
	}
}

// judgeAt is when a replica that holds batches is to be looked at.
func (m *Machine) judgeAt(r *replica) api.Nanos {
	at := r.oldestAt + api.Nanos(m.hungNanos(r))
	if r.overdueAt > 0 {
		at = max(at, r.overdueAt+api.Nanos(hungAgainNanos))
	}
	return at
}

// hungNanos is how long the replica's oldest batch may take.
func (m *Machine) hungNanos(r *replica) int64 {
	if m.cfg.TimeoutNanos == 0 && !r.profile.known() {
		return hungColdNanos
	}
	return max(hungFactor*r.profile.p99Nanos, m.cfg.TimeoutNanos, hungMinNanos)
}

// expireFlight answers the queries of a batch whose deadline has passed. They stay in the batch, for a transport may be
// writing their outputs, and are released with it.
func (m *Machine) expireFlight(fl *flight) {
	for ; fl.due() <= m.now; fl.next++ {
		it := fl.items[fl.next]
		if it.of != nil {
			it = it.of
		}
		if !it.answered { // else by its other batch
			m.answer(it, api.DeadlineExceeded)
		}
	}
}

// expireQueued answers what waits beyond its deadline. A query that is worth evaluating all the same stays, behind those
// whose callers still wait; one that was lost with a replica is not worth a batch of its own any more.
func (m *Machine) expireQueued() {
	if f := m.cursor; f != nil {
		for n := m.ringLen(); n > 0; n-- {
			next := f.next
			for f.queue.first() <= m.now {
				m.expireLive(m.takeLive(f))
			}
			f = next
		}
	}
	for m.retries.first() <= m.now {
		m.finish(m.takeFrom(&m.retries), api.DeadlineExceeded)
	}
	for m.late.first() <= m.now {
		m.finish(m.takeFrom(&m.late), api.DeadlineExceeded)
	}
}

func (m *Machine) ringLen() int {
	n := 1
	for f := m.cursor.next; f != m.cursor; f = f.next {
		n++
	}
	return n
}

func (m *Machine) expireLive(it *Item) {
	code := api.DeadlineExceeded
	if m.ready == 0 && m.readySeenAt < it.acceptedAt {
		code = api.NoReplica
	}
	m.dropLive(it, code)
}

// dropLive answers a query that waited; one that is worth evaluating all the same waits on for that.
func (m *Machine) dropLive(it *Item, code api.Code) {
	if it.Expires <= max(m.now, it.Deadline) {
		m.finish(it, code)
		return
	}
	m.answer(it, code)
	m.waitLate(it)
}

// NextWake is the time at which Advance (or, for a batch that is held back or late, Ready) has something to do if nothing else
// happens before; Never when only an event can bring work. It costs a look at each function that has queries waiting and
// at each outstanding batch.
func (m *Machine) NextWake() api.Nanos {
	at := min(m.earliest(), m.retries.first(), m.late.first(), m.holdUntil, m.followAt, m.hedging.dueAt)
	for _, r := range m.replicas {
		for _, fl := range r.flights {
			at = min(at, fl.due())
		}
		if len(r.flights) > 0 && !r.leaving {
			at = min(at, m.judgeAt(r))
		}
	}
	return at
}
