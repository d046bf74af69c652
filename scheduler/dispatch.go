package scheduler

import (
	"cmp"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// pipelineEagerNanos is three times what a batch costs to hand over and back across cores, about. Where the fixed cost of
// a batch is below it, a batch is sent behind another although it could still grow. The essay has the measurements.
const pipelineEagerNanos = 100_000

// pipelineShortNanos is how long before its end a busy replica gets its next batch, at least: a driver's clock may wake the
// machine that late. A batch that takes no longer is sent at once.
const pipelineShortNanos = 1_000_000

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
	m.holdUntil, m.followAt = api.Never, api.Never
	for m.ready > 0 && m.queuedItems() > 0 {
		r := m.pickIdle()
		switch {
		case r != nil:
		case m.retries.len() > 0 || m.live == 0:
			r = nil // lost queries wait for an idle replica, and late ones are in no hurry
		default:
			r = m.pickBusy()
		}
		if r == nil {
			break
		}
		if before := m.queuedItems(); !m.feed(r) && m.queuedItems() == before {
			break
		}
	}
	m.endTurn()
}

// feed sends r what it shall have next. It reports whether anything was sent.
func (m *Machine) feed(r *replica) bool {
	alone := m.retries.len() > 0 && m.retries.first() <= m.earliest()
	if !alone && m.live > 0 && len(r.flights) == 0 {
		if until := m.heldUntil(r); until > m.now {
			m.holdUntil = until
			return false
		}
	}
	if !m.mayUse(r) {
		return false
	}
	if alone {
		m.sendAlone(r)
		return true
	}
	return m.send(r)
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
	return m.live >= m.capOf(r) || m.liveBytes >= m.cfg.Batching.MaxBatchBytes
}

// pickIdle is the replica without work that would be done first with what waits; the one that was ready first, of equals.
// One that is too slow for the most urgent query comes after those that are not, and one that has been given to other
// functions last: it helps out rather than idle.
func (m *Machine) pickIdle() *replica {
	var best *replica
	var bestNanos int64
	var bestRank int
	urgent := m.earliest()
	for _, r := range m.replicas {
		if !r.open() || len(r.flights) > 0 {
			continue
		}
		nanos, rank := r.profile.predict(min(m.live, m.capOf(r))), 0
		if r.makes(m.now, urgent) {
			rank++
		}
		if m.hasShare(r) {
			rank += 2
		}
		if best == nil || rank > bestRank || rank == bestRank && nanos < bestNanos {
			best, bestNanos, bestRank = r, nanos, rank
		}
	}
	return best
}

// makes reports whether, by all that is known, r would answer a query by its deadline if it were the next that it gets.
func (r *replica) makes(now, deadline api.Nanos) bool {
	left := int64(deadline - now)
	return left >= hopefulNanos || !r.profile.known() || r.remaining(now)+r.profile.predict(1) <= left
}

// madeElsewhere reports whether another replica than r would answer a query by its deadline.
func (m *Machine) madeElsewhere(r *replica, deadline api.Nanos) bool {
	for _, other := range m.replicas {
		if other != r && other.open() && other.makes(m.now, deadline) {
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

// idle counts the replicas without work.
func (m *Machine) idle() int {
	n := 0
	for _, r := range m.replicas {
		if r.open() && len(r.flights) == 0 {
			n++
		}
	}
	return n
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
		if !m.fills(r) && !m.eager(r) {
			continue
		}
		nanos := r.profile.predict(min(m.live, m.capOf(r)))
		if at := m.followsAt(r, nanos); at > m.now {
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

// followsAt is when a batch that takes nanos is to be sent behind those that r has: at once where it is short, else when r
// is nearly done. A batch that has been sent cannot grow or be overtaken: who comes after it waits for all of it, however
// urgent he is, and a few batches of a flood in a row would make everybody else late.
func (m *Machine) followsAt(r *replica, nanos int64) api.Nanos {
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

// sendAlone sends the most urgent of the lost queries in a batch of its own.
func (m *Machine) sendAlone(r *replica) {
	fl := m.newFlight()
	fl.alone = true
	fl.add(m.takeFrom(&m.retries))
	m.launch(r, fl)
}

// send fills a batch for r and sends it: queries in time first, shared out between the functions by deficit round robin
// (Shreedhar and Varghese, 1995; every query costs 1), then late ones. It reports whether anybody was left to be sent.
func (m *Machine) send(r *replica) bool {
	fl := m.newFlight()
	m.filled++
	f := filling{fl: fl, seq: m.filled, limit: m.capOf(r), maxBytes: m.cfg.Batching.MaxBatchBytes}
	if m.execution == Split && len(r.flights) == 0 && m.live > 0 {
		idle := m.idle()
		f.limit = min(f.limit, (m.live+idle-1)/idle)
	}
	if r.profile.known() {
		f.replica, f.startsAt = r, m.now+api.Nanos(r.remaining(m.now))
	}
	start, visiting := m.cursor, m.visiting
	if len(r.shares) > 0 {
		m.fillOwn(&f, r)
	}
	if len(r.shares) > 0 && len(fl.items) == 0 {
		f.limit = max(1, f.limit/guestPart)
	}
	f.guests = len(r.shares) > 0
	m.fill(&f) // what the shares leave over is for everybody
	for _, it := range m.aside {
		m.enqueue(m.functions[it.Function], it)
	}
	m.aside = m.aside[:0]
	for m.late.len() > 0 && f.fits(m.late.heap[0].it) {
		fl.add(m.takeFrom(&m.late))
	}
	if len(fl.items) == 0 {
		if start != nil && start.next != nil {
			m.cursor, m.visiting = start, visiting // nobody has had a turn
		}
		m.recycle(fl)
		return false
	}
	fl.full = len(fl.items) == r.controller.cap()
	m.launch(r, fl)
	return true
}

// maxAside bounds how many queries that are too urgent for a slow replica are passed by when it looks for one that is not.
const maxAside = 64

// guestPart: a batch of guests alone is at most one such part of the cap. Whoever the replica belongs to may come the next
// moment.
const guestPart = 4

// filling is a batch that is being filled.
type filling struct {
	fl              *flight
	seq             uint64
	limit, maxBytes int
	bytes           int
	full            bool
	// What is known of when it will be evaluated: nil: nothing.
	replica  *replica
	startsAt api.Nanos
	// guests: what is added now has no share of the replica.
	guests bool
}

// fits reports whether it may be added, and counts it if so. The first one always fits.
func (f *filling) fits(it *Item) bool {
	n := len(f.fl.items)
	f.full = f.full || n >= f.limit || n > 0 && f.bytes+it.bytes > f.maxBytes
	if !f.full {
		f.bytes += it.bytes
	}
	return !f.full
}

// makesIt judges the most urgent query of a sub-queue by when the batch would end. If it would be late, then
//
//   - if it would be late even alone, it is passed over;
//   - if more wait than the batch has places, it is passed over too: somebody has to be, and a query that will be late is of
//     no use to anybody. Without this a replica that has fallen behind serves nobody but those whose time is up, and stays
//     behind;
//   - else the batch is made smaller, so that it is in time; but not by more than half, for what the others wait is paid for
//     in smaller batches too.
//
// A guest, who has no share of the replica, does not join a batch that is too long for him, and is not passed over for it; a
// batch of guests is as small as the first of them needs.
func (m *Machine) makesIt(f *filling, it *Item) verdict {
	if f.replica == nil || it.probe {
		return inTime
	}
	p := &f.replica.profile
	left := int64(it.Deadline - f.startsAt)
	already := len(f.fl.items)
	n := min(f.limit, already+m.live)
	switch {
	case left >= hopefulNanos || left >= p.careful(n):
		return inTime
	case f.guests && already > 0:
		return elsewhere
	case left < p.predict(already+1):
		switch {
		case already > 0:
			return tooLate
		case m.now-f.replica.sentAt >= probeNanos:
			// By what is known of it the replica is too slow for anybody. Unless it is asked now and then it stays so.
			f.limit = 1
			m.counters.Probes++
			return inTime
		case m.madeElsewhere(f.replica, it.Deadline):
			return stepAside
		}
		return tooLate
	case !f.guests && already+m.live > f.limit:
		if left < p.predict(n) {
			return tooLate
		}
		return inTime
	}
	fit := max(already+1, p.within(int64(float64(left)/p.margin), n))
	if f.guests || 2*fit >= n {
		f.limit = fit
		return inTime
	}
	if left < p.predict(n) {
		return tooLate
	}
	return inTime
}

// verdict is what makesIt finds.
type verdict uint8

const (
	inTime    verdict = iota
	tooLate           // it is to be answered
	stepAside         // it waits on for another replica, and lets others pass
	elsewhere         // it waits on, and the batch is closed
)

// next is the query of function fn that is to be added, nil when the batch is full or fn has none left. Those that will not
// make it are answered on the way.
func (m *Machine) next(b *filling, fn *function) *Item {
	for fn.next != nil {
		it := fn.queue.heap[0].it
		switch m.makesIt(b, it) {
		case inTime:
			if !b.fits(it) {
				return nil
			}
			return m.takeLive(fn)
		case stepAside:
			if fn.queue.len() == 1 || len(m.aside) == maxAside {
				fn.skippedBy = b.seq // it keeps its place in the round
				return nil
			}
			m.aside = append(m.aside, m.takeLive(fn))
		case elsewhere:
			b.full = true
			return nil
		case tooLate:
			m.counters.PassedOver++
			m.dropLive(m.takeLive(fn), api.Overloaded)
		}
	}
	return nil
}

// fill goes round the functions that have queries waiting, by their weights.
func (m *Machine) fill(b *filling) {
	for skipped := 0; m.cursor != nil && !b.full && len(b.fl.items) < b.limit; {
		f := m.cursor
		if f.skippedBy == b.seq {
			if skipped++; skipped > m.ringLen() {
				return
			}
			m.cursor, m.visiting = f.next, false
			continue
		}
		skipped = 0
		if !m.visiting {
			m.visiting = true
			f.deficit = spend(f.deficit, f.share()/m.minWeight)
		}
		for f.deficit >= 1 {
			it := m.next(b, f)
			if it == nil {
				break
			}
			if f.next != nil { // else it has nothing left, and owes nothing
				f.deficit--
			}
			b.fl.add(it)
		}
		if f.next != nil && f.deficit < 1 {
			m.cursor, m.visiting = f.next, false
		}
	}
}

// spend is what a function may spend at a visit: its quantum, at least 1, so that every visit serves someone, and what was
// left of the last one, which is less than 1 unless it was passed by in the middle of it.
func spend(left, quantum float64) float64 { return min(left+quantum, quantum+1) }

// fillOwn goes round those of them that have a share of r, by these shares. It has a place and deficits of r's own: a batch
// for a replica where others have shares would move the common place past a function before it has spent its quantum, it
// would get another one with each visit, and whoever comes behind it here would wait for ever.
func (m *Machine) fillOwn(b *filling, r *replica) {
	for skipped := 0; !b.full && len(b.fl.items) < b.limit && m.hasShare(r); {
		if r.cursor == nil {
			r.cursor, r.visiting = m.cursor, false
		}
		f := r.cursor
		if f == nil {
			return
		}
		share := r.shareOf(f)
		if share == 0 || f.skippedBy == b.seq {
			if skipped++; skipped > m.ringLen() {
				return
			}
			r.cursor, r.visiting = f.next, false
			continue
		}
		skipped = 0
		deficit := &r.deficits[f.index]
		if !r.visiting {
			r.visiting = true
			*deficit = spend(*deficit, share/r.minShare)
		}
		for *deficit >= 1 {
			it := m.next(b, f)
			if it == nil {
				break
			}
			if f.next != nil {
				*deficit--
			}
			b.fl.add(it)
		}
		if f.next != nil && *deficit < 1 {
			r.cursor, r.visiting = f.next, false
		}
	}
}

func (fl *flight) add(it *Item) {
	it.place = flying
	fl.items = append(fl.items, it)
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
		r.oldestAt = m.now
	}
	r.flights = append(r.flights, fl)
	m.out.Dispatches = append(m.out.Dispatches, Dispatch{r.id, &fl.batch})
}

// close settles the order of the batch. Queries come out of a sub-queue by deadline: only where functions with different
// objectives share a batch is there anything to sort.
func (fl *flight) close() {
	sorted := true
	for i, it := range fl.items {
		if it.answered {
			break // late ones come last
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
		fl.batch.Queries = append(fl.batch.Queries, &it.Query)
	}
}

// due is the earliest deadline of a query in the batch whose caller still waits; Never when none does.
func (fl *flight) due() api.Nanos {
	if fl.next == fl.live {
		return api.Never
	}
	return fl.items[fl.next].Deadline
}
