package scheduler

import "github.com/xebec-serving/xebec/api"

// send fills a batch for r and sends it. Queries in time come first, shared out between the functions by deficit round
// robin (Shreedhar and Varghese, 1995; every query costs 1), then late ones. It returns false if no query was left to
// send.
func (m *Machine) send(r *replica) bool {
	fl := m.newFlight()
	m.filled++
	f := filling{fl: fl, seq: m.filled, limit: m.capOf(r), maxBytes: m.cfg.Batching.MaxBatchBytes}
	if m.execution == Split && r.idle() && m.live > 0 && r.own.len() == 0 {
		places := m.places()
		f.limit = min(f.limit, (m.live+places-1)/places)
	}
	if r.profile.known() {
		f.replica, f.startsAt = r, m.now+api.Nanos(r.remaining(m.now))
	}
	start := m.round
	// Sticky queries that wait for r have every second batch, and the places that the others leave over in the rest.
	ownFirst := r.own.len() > 0 && (m.live == 0 || !r.ownLast)
	r.ownLast = ownFirst
	if ownFirst {
		m.fillOwn(&f, r)
	}
	if len(r.shares) > 0 {
		m.fill(&f, r)
	}
	if len(r.shares) > 0 && len(fl.items) == 0 {
		f.limit = max(1, f.limit/guestPart)
	}
	f.guests = len(r.shares) > 0
	m.fill(&f, nil) // places that the shares leave over are open to all functions
	f.guests = false
	m.fillOwn(&f, r)
	since := m.waitSince
	for _, it := range m.deferred {
		m.enqueue(m.functions[it.Function], it)
	}
	clear(m.deferred)
	m.deferred = m.deferred[:0]
	for m.late.len() > 0 && f.fits(m.late.heap[0].it) {
		fl.add(m.takeFrom(&m.late))
	}
	if len(fl.items) == 0 {
		if start.cursor != nil && start.cursor.next != nil {
			m.round = start // no function has had a turn
		}
		m.waitSince = since
		if m.forAny() > 0 {
			r.rejectedSeq, m.anyRejected = m.changeSeq, true
		}
		m.recycle(fl)
		return false
	}
	fl.full = len(fl.items) == r.controller.cap()
	m.launch(r, fl)
	return true
}

// maxDeferred bounds how many queries that are too urgent for a slow replica are skipped in the search for one that is
// not.
const maxDeferred = 64

// guestPart: a batch of guests alone takes at most 1/guestPart of the cap, because a query of a function that owns the
// replica may arrive at any moment.
const guestPart = 4

// filling is a batch that is being filled.
type filling struct {
	fl              *flight
	seq             uint64
	limit, maxBytes int
	bytes           int
	full            bool
	// The replica and the expected start of the evaluation; replica is nil while the profile is not known.
	replica  *replica
	startsAt api.Nanos
	// guests is set while queries of functions without a share of the replica are added.
	guests bool
}

// fits reports whether the query may be added, and counts it if so. The first one always fits.
func (f *filling) fits(it *Item) bool {
	n := len(f.fl.items)
	f.full = f.full || n >= f.limit || n > 0 && f.bytes+it.bytes > f.maxBytes
	if !f.full {
		f.bytes += it.bytes
	}
	return !f.full
}

// verdictFor decides about the most urgent query of a sub-queue by the batch's expected end. If the query would be late,
// then
//
//   - if it would be late even alone, it is passed over;
//   - if more queries wait than the batch has places, it is passed over too. One of them has to be, and a late answer
//     is worth nothing. Otherwise a replica that has fallen behind would serve only queries whose time is up, and stay
//     behind;
//   - else the batch is made smaller so that the query is in time, but not by more than half: smaller batches cost the
//     other queries throughput.
//
// A guest, which has no share of the replica, does not join a batch that is too long for it, and is not passed over
// because of that. A batch of guests is as small as its first query needs.
func (m *Machine) verdictFor(f *filling, it *Item) verdict {
	if f.replica == nil || it.probe {
		return inTime
	}
	p := &f.replica.profile
	left := int64(it.Deadline - f.startsAt)
	already, waiting := len(f.fl.items), m.live+f.replica.own.len()
	n := min(f.limit, already+waiting)
	switch {
	case left >= longDeadlineNanos || left >= p.careful(n):
		return inTime
	case f.guests && already > 0:
		return closeBatch
	case left < p.predict(already+1):
		switch {
		case already > 0:
			return tooLate
		case m.now-f.replica.sentAt >= probeNanos:
			// By its profile the replica is too slow for any query. It needs an occasional probe, or the profile stays
			// that way.
			f.limit = 1
			m.counters.Probes++
			return inTime
		case m.otherMeetsDeadline(f.replica, it.Deadline):
			return deferQuery
		}
		return tooLate
	case !f.guests && already+waiting > f.limit:
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

// verdict is the result of verdictFor.
type verdict uint8

const (
	inTime     verdict = iota
	tooLate            // answer it
	deferQuery         // keep it for another replica, and go on with the queries behind it
	closeBatch         // keep it, and close the batch
)

// next takes the next query of function fn to add; nil when the batch is full or fn has none left. It answers those
// that will miss their deadlines on the way.
func (m *Machine) next(b *filling, fn *function) *Item {
	for fn.next != nil {
		it := fn.queue.heap[0].it
		switch m.verdictFor(b, it) {
		case inTime:
			if !b.fits(it) {
				return nil
			}
			return m.takeLive(fn)
		case deferQuery:
			if fn.queue.len() == 1 || len(m.deferred) == maxDeferred {
				fn.skippedBy = b.seq // it keeps its place in the round
				return nil
			}
			m.deferred = append(m.deferred, m.takeLive(fn))
		case closeBatch:
			b.full = true
			return nil
		case tooLate:
			m.counters.PassedOver++
			m.dropLive(m.takeLive(fn), api.Overloaded)
		}
	}
	return nil
}

// fill goes round the functions that have queries waiting. With a replica r it uses their shares of r and leaves out
// functions without a share; with nil it uses their weights.
//
// By shares the round has a place and deficits of r's own. A batch for a replica with shares would otherwise move the
// common place past a function before it has spent its quantum. The function would get another quantum with each visit,
// and the functions behind it would starve.
func (m *Machine) fill(b *filling, r *replica) {
	p := &m.round
	if r != nil {
		p = &r.round
	}
	for skipped := 0; !b.full && len(b.fl.items) < b.limit; {
		if p.cursor == nil {
			*p = round{cursor: m.cursor}
		}
		f := p.cursor
		if f == nil {
			return
		}
		share, least, deficit := f.share(), m.minWeight, &f.deficit
		if r != nil {
			share, least, deficit = r.shareOf(f), r.minShare, &r.deficits[f.index]
		}
		if share == 0 || f.skippedBy == b.seq {
			if skipped++; skipped > m.ringLen() {
				return
			}
			*p = round{cursor: f.next}
			continue
		}
		before, visiting, already := *deficit, p.visiting, len(b.fl.items)
		if !p.visiting {
			p.visiting = true
			*deficit = visitBudget(*deficit, share/least)
		}
		for *deficit >= 1 {
			it := m.next(b, f)
			if it == nil {
				break
			}
			if f.next != nil { // else it has nothing left and owes nothing
				*deficit--
			}
			b.fl.add(it)
		}
		switch {
		case len(b.fl.items) > already:
			skipped = 0
		case f.next != nil && f.skippedBy == b.seq: // then it was not its turn
			*deficit, p.visiting = before, visiting
		}
		if f.next != nil && *deficit < 1 && f.skippedBy != b.seq {
			*p = round{cursor: f.next}
		}
	}
}

// round is a place in the round of the functions that have queries waiting.
type round struct {
	cursor   *function // the function whose turn it is; nil when no query waits
	visiting bool      // it has had its quantum for this visit
}

// visitBudget is the deficit that a function may spend at a visit: its quantum, which is at least 1, so every visit
// serves a query; plus what was left of the last one, which is less than 1 unless it was skipped in the middle of it.
func visitBudget(left, quantum float64) float64 { return min(left+quantum, quantum+1) }
