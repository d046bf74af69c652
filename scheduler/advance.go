package scheduler

import "github.com/xebec-serving/xebec/api"

const (
	// hungMinNanos is the shortest time after which a replica may count as hung, whatever its profile: garbage
	// collection or a storm of page faults is not a hang.
	hungMinNanos = int64(800e6) //xebec:limit no replica counts as hung sooner
	// hungColdNanos applies to replicas whose profile is not known and whose model sets no timeout.
	hungColdNanos = int64(api.DefaultModelTimeout)
	// hungFactor: a healthy replica answers within hungFactor times its P99.
	hungFactor = 10
	// hungAgainNanos is the time between the two checks that must find a replica overdue before it counts as hung. If
	// this process itself stalled (it was stopped or swapped out, or its machine was), the first check runs before the
	// driver has read the answers that arrived during the stall. Reading them takes microseconds, or the next one or
	// two time slices on a busy machine.
	hungAgainNanos = int64(100e6) //xebec:limit time between the two checks that find a replica hung
)

// Advance tells the machine that time has passed. It answers queries in flight whose deadlines are over and kills
// replicas that have been silent too long. Call it at [Machine.NextWake] or later, then call Ready, which expires
// queries that wait.
func (m *Machine) Advance(now api.Nanos) {
	m.tick(now)
	for _, r := range m.replicas {
		for _, fl := range r.flights {
			m.expireFlight(fl)
		}
		m.checkHung(r)
	}
}

// checkHung kills a replica that is hung: it is overdue now, and was at a check at least hungAgainNanos ago.
func (m *Machine) checkHung(r *replica) {
	if r.leaving || r.oldest() == nil {
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

// hungCheckAt is when a replica that holds batches must be checked.
func (m *Machine) hungCheckAt(r *replica) api.Nanos {
	at := r.oldestAt + api.Nanos(m.hungNanos(r))
	if r.overdueAt > 0 {
		at = max(at, r.overdueAt+api.Nanos(hungAgainNanos))
	}
	return at
}

// hungNanos is how long the replica's oldest batch may take. Batches of a size that the replica has not evaluated yet keep
// the long limit too, because some models compile themselves for each size.
func (m *Machine) hungNanos(r *replica) int64 {
	if m.cfg.TimeoutNanos == 0 && (!r.profile.known() || !r.sizes.has(r.oldest().size())) {
		return hungColdNanos
	}
	return max(hungFactor*r.profile.p99Nanos, m.cfg.TimeoutNanos, hungMinNanos)
}

// expireFlight answers the queries of a batch whose deadlines have passed. They stay in the batch and are released with
// it, because a transport may be writing their outputs.
func (m *Machine) expireFlight(fl *flight) {
	for ; fl.due() <= m.now; fl.next++ {
		it := fl.items[fl.next]
		if it.twinOf != nil {
			it = it.twinOf
		}
		if !it.answered { // else its other batch has answered it
			m.answer(it, api.DeadlineExceeded)
		}
	}
}

// expireQueued answers waiting queries whose deadlines have passed. A query that is still worth evaluating stays,
// behind those whose callers still wait. One that was lost with a replica is dropped: it is no longer worth a batch of
// its own.
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
	m.expireHomes()
	for m.retries.first() <= m.now {
		it := m.takeRetry()
		code := api.DeadlineExceeded
		if it.failed != api.OK {
			code = it.failed
		}
		m.finish(it, code)
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
	m.dropLive(it, m.expiryCode(it))
}

// expiryCode is what a query is answered with that has waited until its deadline.
func (m *Machine) expiryCode(it *Item) api.Code {
	if m.ready == 0 && m.readySeenAt < it.acceptedAt {
		return api.NoReplica
	}
	return api.DeadlineExceeded
}

// dropLive answers a waiting query. If it is still worth evaluating, it stays in the late queue.
func (m *Machine) dropLive(it *Item, code api.Code) {
	if it.Expires <= max(m.now, it.Deadline) {
		m.finish(it, code)
		return
	}
	m.answer(it, code)
	m.queueLate(it)
}

// NextWake is when Advance (or Ready, for a batch that is held back or late) next has work if nothing else happens
// before; Never when only an event can bring work. Its cost is one look at each function that has queries waiting and
// at each outstanding batch.
func (m *Machine) NextWake() api.Nanos {
	at := min(m.earliest(), m.retries.first(), m.late.first(), m.holdUntil, m.followAt, m.hedging.dueAt)
	at = min(at, m.homes.homeless.first())
	for _, r := range m.replicas {
		at = min(at, r.own.first())
		for _, fl := range r.flights {
			at = min(at, fl.due())
		}
		if !r.leaving && r.oldest() != nil {
			at = min(at, m.hungCheckAt(r))
		}
	}
	return at
}
