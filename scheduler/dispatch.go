package scheduler

import (
	"cmp"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// pipelineEagerNanos is about three times the cost of handing a batch over and back between cores. If a batch's fixed
// cost is below it, a batch is sent behind another although it could still grow. The package comment has the
// measurements.
const pipelineEagerNanos = 100_000

// pipelineShortNanos is the least time before its expected end at which a busy replica gets its next batch, because a
// driver's clock may wake the machine that late. A batch that takes no longer than this is sent at once.
const pipelineShortNanos = 1_000_000

// holdSlackNanos is kept in reserve when a batch is held, before its most urgent query must start: a driver's clock may
// wake the machine that late.
const holdSlackNanos = 2_000_000

// Ready decides what follows from the events so far. It answers overdue queries that wait, forms batches for every
// replica that has room, sends late batches to a second replica, and moves all actions decided since the last call into
// a, which it empties first. The machine takes over the memory of a's lists, so two Actions used in turn stop growing
// once they are large enough.
//
// Report all events that are at hand before calling Ready, so that queries that arrive together share a batch.
func (m *Machine) Ready(now api.Nanos, a *Actions) {
	m.tick(now)
	if m.queuedItems() > 0 {
		m.expireQueued()
		m.dispatch()
	} else {
		m.holdUntil, m.followAt = api.Never, api.Never
		m.endTurn()
	}
	m.hedge()
	m.out.moveTo(a)
}

func (m *Machine) dispatch() {
	m.holdUntil, m.followAt = api.Never, api.Never
	m.dispatchHomes()
	for m.ready > 0 && m.forAny() > 0 {
		r := m.pickIdle()
		if r == nil && m.retries.len() == 0 && m.live > 0 {
			r = m.pickBusy() // queries that travel alone wait for an idle replica, and late ones are not urgent
		}
		if r == nil {
			break
		}
		if before := m.forAny(); !m.dispatchTo(r) && m.forAny() == before && !m.hasRejectedAll(r) {
			break
		}
	}
	m.dispatchHomes() // those that were less urgent than a query that travels alone
	m.endTurn()
}

// dispatchTo sends r its next batch. It reports whether one was sent.
func (m *Machine) dispatchTo(r *replica) bool {
	alone := m.retries.len() > 0 && m.mayBeginRetry(r) && m.retries.first() <= m.earliest()
	if !alone && m.live > 0 && r.idle() {
		if until := m.heldUntil(r); until > m.now {
			m.holdUntil = until
			return false
		}
	}
	if !m.mayUseDevice(r) {
		return false
	}
	if !alone && m.send(r) {
		return true
	}
	if m.retries.len() == 0 || !m.mayBeginRetry(r) {
		return false
	}
	return m.sendAlone(r) // the most urgent one, or all others are too urgent for r
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

// heldUntil is the time until which a batch for r that is not full waits for more queries. It is not after the moment
// at which its most urgent query must start, where the expected evaluation time is counted twice. A replica whose
// profile is not known is not held back, so that its profile becomes known.
func (m *Machine) heldUntil(r *replica) api.Nanos {
	holdNanos := m.cfg.Batching.HoldNanos
	if r.plan.HoldNanos != 0 {
		holdNanos = max(0, min(r.plan.HoldNanos, MaxHoldNanos))
	}
	if holdNanos == 0 || m.fills(r) || !r.profile.known() {
		return m.now
	}
	due := m.earliest() // far from the ends of the range: adding or subtracting seconds does not overflow
	due -= api.Nanos(2*r.profile.predict(m.live) + holdSlackNanos)
	return min(m.waitSince+api.Nanos(holdNanos), due)
}

// fills reports whether a batch for r could not grow by waiting.
func (m *Machine) fills(r *replica) bool {
	return m.live+r.own.len() >= m.capOf(r) || m.liveBytes >= m.cfg.Batching.MaxBatchBytes
}

// mayBegin reports whether r would begin a further batch at once. While a query waits that may have killed a replica, only
// a replica without work would: otherwise it might never get one for itself. Streams may last for hours, so only the replica
// that has the fewest is kept for it; the others go on.
func (m *Machine) mayBegin(r *replica) bool {
	return m.mayBeginRetry(r) || m.cfg.Streams && r.idle() && m.queuedItems() > m.retries.len() && r != m.emptiest()
}

// mayBeginRetry reports whether r may begin a query that must travel alone.
func (m *Machine) mayBeginRetry(r *replica) bool {
	return len(r.flights) == 0 || r.idle() && m.suspects == 0
}

// emptiest is the replica with the fewest batches; of equals, the one that became ready first.
func (m *Machine) emptiest() *replica {
	var best *replica
	for _, r := range m.replicas {
		if r.open() && (best == nil || len(r.flights) < len(best.flights)) {
			best = r
		}
	}
	return best
}

// pickIdle picks the idle replica that would finish first with the waiting queries; of equals, the one that became
// ready first. Replicas that are too slow for the most urgent query rank lower. Replicas reserved for functions without
// waiting queries rank lowest: they help out rather than idle.
func (m *Machine) pickIdle() *replica {
	if len(m.replicas) == 1 {
		if r := m.replicas[0]; r.open() && m.mayBegin(r) && !m.hasRejectedAll(r) {
			return r
		}
		return nil
	}
	var best *replica
	var bestNanos int64
	var bestRank int
	urgent := m.earliest()
	for _, r := range m.replicas {
		if !r.open() || !m.mayBegin(r) || m.hasRejectedAll(r) {
			continue
		}
		nanos, rank := r.profile.predict(min(m.live, m.capOf(r))), 0
		if r.meetsDeadline(m.now, urgent) {
			rank++
		}
		if m.hasShare(r) {
			rank += 2
		}
		if m.suspects > 0 && len(r.flights) == 0 {
			rank += 4 // only it may have them
		}
		if best == nil || rank > bestRank || rank == bestRank && nanos < bestNanos {
			best, bestNanos, bestRank = r, nanos, rank
		}
	}
	return best
}

// hasRejectedAll reports whether r has already found all waiting queries too urgent.
func (m *Machine) hasRejectedAll(r *replica) bool {
	return r.rejectedSeq == m.changeSeq && m.late.len() == 0 && (m.retries.len() == 0 || !m.mayBeginRetry(r)) && m.now-r.sentAt < probeNanos
}

// meetsDeadline reports whether r is expected to answer a query by its deadline if that is the next query that it gets.
func (r *replica) meetsDeadline(now, deadline api.Nanos) bool {
	left := int64(deadline - now)
	return left >= longDeadlineNanos || !r.profile.known() || r.remaining(now)+r.profile.predict(1) <= left
}

// otherMeetsDeadline reports whether a replica other than r is expected to answer a query by its deadline.
func (m *Machine) otherMeetsDeadline(r *replica, deadline api.Nanos) bool {
	for _, other := range m.replicas {
		if other != r && other.open() && other.meetsDeadline(m.now, deadline) {
			return true
		}
	}
	return false
}

// hasShare reports whether a function with queries waiting has a share of r.
func (m *Machine) hasShare(r *replica) bool {
	f := m.cursor
	if len(r.shares) == 0 || f == nil {
		return true
	}
	for {
		if r.shareOf(f) > 0 {
			return true
		}
		if f = f.next; f == m.cursor {
			return false
		}
	}
}

// places counts the batches that replicas would begin at once.
func (m *Machine) places() int {
	n := 0
	for _, r := range m.replicas {
		if r.open() && r.idle() {
			n += r.concurrency - len(r.flights)
		}
	}
	return n
}

// pickBusy picks the busy replica that gets a further batch: the one with the fewest outstanding, then the one that
// would finish first. A batch that could still grow is kept back: it would not start now, and waiting makes it larger.
func (m *Machine) pickBusy() *replica {
	var best *replica
	var bestNanos int64
	for _, r := range m.replicas {
		if !r.open() || !r.room() || m.hasRejectedAll(r) {
			continue
		}
		if !m.fills(r) && !m.eager(r) {
			continue
		}
		nanos := r.profile.predict(min(m.live, m.capOf(r)))
		if at := m.followTime(r, nanos); at > m.now {
			m.followAt = min(m.followAt, at)
			continue
		}
		nanos += r.remaining(m.now)
		if best == nil || len(r.flights) < len(best.flights) || len(r.flights) == len(best.flights) && nanos < bestNanos {
			best, bestNanos = r, nanos
		}
	}
	return best
}

// followTime is when a batch that takes nanos should be sent behind those that r has: at once if it is short, else when
// r is nearly done. A batch that has been sent cannot grow or be overtaken: a later query waits for all of it, however
// urgent it is, and a few batches of a flood in a row would make all other functions late.
func (m *Machine) followTime(r *replica, nanos int64) api.Nanos {
	if nanos <= pipelineShortNanos || !r.profile.known() {
		return m.now
	}
	lead := max(pipelineShortNanos, min(nanos/4, 2*pipelineShortNanos))
	return m.now + api.Nanos(max(0, r.remaining(m.now)-lead))
}

// eager reports whether a batch costs r so little that keeping it busy is worth more than larger batches.
func (m *Machine) eager(r *replica) bool {
	return r.profile.known() && r.profile.intercept <= float64(m.eagerNanos)
}

// sendAlone sends the most urgent of the queries that must travel alone. It ends those on the way that failed with their
// batch and would be late, and reports whether it has sent one.
func (m *Machine) sendAlone(r *replica) bool {
	for m.retries.len() > 0 {
		it := m.takeRetry()
		if it.failed != api.OK && !m.canRepeat(it) {
			m.finish(it, it.failed)
			continue
		}
		fl := m.newFlight()
		fl.alone = it.mayKill()
		fl.add(it)
		m.launch(r, fl)
		return true
	}
	return false
}

func (fl *flight) add(it *Item) {
	it.place = inFlight
	fl.items = append(fl.items, it)
	fl.trial = fl.trial || it.Trial
}

func (m *Machine) launch(r *replica, fl *flight) {
	fl.close()
	m.turn.used = true
	r.sentAt = m.now
	fl.batch.ID = r.nextBatch
	r.nextBatch++
	if m.cfg.Batching.Pad {
		fl.batch.Pad = max(0, m.cfg.Batching.MaxBatch-len(fl.items))
	}
	if len(r.flights) == 0 {
		r.overdueAt = 0
	}
	r.flights = append(r.flights, fl)
	r.begin(m.now)
	m.out.Dispatches = append(m.out.Dispatches, Dispatch{r.id, &fl.batch, fl.hedge})
}

// close puts the batch in its final order. Queries come out of a sub-queue by deadline, so there is something to sort
// only where functions with different objectives share a batch.
func (fl *flight) close() {
	sorted := true
	for i, it := range fl.items {
		if it.answered {
			break // late queries come last
		}
		sorted = sorted && (i == 0 || fl.items[i-1].Deadline <= it.Deadline)
		fl.live++
	}
	if !sorted {
		slices.SortFunc(fl.items[:fl.live], func(a, b *Item) int {
			return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), cmp.Compare(a.seq, b.seq))
		})
	}
	for _, it := range fl.items {
		it.Status, it.Detail = api.OK, ""
		fl.batch.Queries = append(fl.batch.Queries, &it.Query)
	}
}

// due is the earliest deadline of a query in the batch whose caller still waits; Never when there is none.
func (fl *flight) due() api.Nanos {
	if fl.next == fl.live {
		return api.Never
	}
	return fl.items[fl.next].Deadline
}
