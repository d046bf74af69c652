package scheduler

import "github.com/xebec-serving/xebec/api"

const (
	// HedgePart is how many of the queries that arrive may be sent twice: 2 %. What is past its replica's P99 is one batch
	// in a hundred; twice that is room for a bad minute, and a price that nobody needs to plan for.
	HedgePart = 0.02
	// HedgeBurst is how many may be sent twice at once, after a quiet time and at first. A batch that is late may have a
	// hundred queries, and waiting until it has been earned would help nobody; of a larger one the most urgent go.
	HedgeBurst = 128
	// hedgeFactor times what a batch of that size takes, when one is careful, is late. Half as much happens by chance.
	hedgeFactor = 2
	// hedgeMinNanos: nothing is late sooner. A driver's clock may wake the machine that late, and a batch that is handed
	// to another core and back for less gains nothing.
	hedgeMinNanos = int64(1e6)
	// pauseNanos: who looks for late batches that much later than he wanted to has stood still himself, for a process that runs is
	// late by a millisecond, on a full machine by some ten. The answers may be there, and be taken in next.
	pauseNanos = int64(50e6)
)

// hedging is what a machine may still send twice, a token bucket.
type hedging struct {
	tokens float64
	// counted is how many arrivals the tokens are for. They are counted when somebody asks, and not query by query.
	counted uint64
	// dueAt is when the next batch becomes late, while something could be done about it; else Never.
	dueAt api.Nanos
}

// hedge sends the live queries of replicas that are late to others that idle, for nobody else waits.
func (m *Machine) hedge() {
	paused := int64(m.now-m.hedging.dueAt) > pauseNanos
	m.hedging.dueAt = api.Never
	if !m.mayHedge() {
		return
	}
	if paused {
		m.hedging.dueAt = m.now + api.Nanos(hedgeMinNanos)
		return
	}
	for _, r := range m.replicas {
		if len(r.flights) == 0 || r.leaving || !r.profile.known() {
			continue
		}
		at := m.lateAt(r)
		for _, fl := range r.flights {
			switch {
			case fl.hedge || fl.hedged || fl.alone || fl.next == fl.live:
			case at > m.now:
				m.hedging.dueAt = min(m.hedging.dueAt, at)
			default:
				m.sendTwins(fl)
			}
		}
	}
}

// mayHedge reports whether a query could be sent twice if one were late.
func (m *Machine) mayHedge() bool {
	if !m.cfg.Hedge || len(m.replicas) < 2 || m.live > 0 || m.cfg.Shared || m.closed || m.retries.len() > 0 {
		return false
	}
	busy, helped := false, false
	for _, r := range m.replicas {
		if len(r.flights) > 0 {
			busy = true
		} else {
			helped = helped || r.helps()
		}
	}
	return busy && helped
}

// helps reports whether the replica takes over for another, and it is known how long that takes.
func (r *replica) helps() bool { return len(r.flights) == 0 && r.open() && r.profile.known() }

// lateAt is when r, which has a batch, is late: beyond its P99 and beyond what a batch of that size takes.
func (m *Machine) lateAt(r *replica) api.Nanos {
	fl := r.flights[0]
	return r.oldestAt + api.Nanos(max(r.profile.p99Nanos, hedgeFactor*r.profile.careful(len(fl.items)+fl.batch.Pad), hedgeMinNanos))
}

// sendTwins sends the queries of a batch that is late, or waits behind one, to a replica that idles, as far as it would
// answer them in time.
func (m *Machine) sendTwins(fl *flight) {
	tokens := m.hedgeTokens()
	if tokens < 1 {
		return
	}
	r := m.pickSecond(fl)
	if r == nil {
		return
	}
	from, n := m.inTimeAt(r, fl)
	if n == 0 || tokens < float64(n) {
		return
	}
	twins := m.newFlight()
	twins.hedge, fl.hedged = true, true
	for _, it := range fl.items[from : from+n] {
		it.hedged = true
		twins.add(it.makeTwin())
	}
	m.hedging.tokens -= float64(n)
	m.counters.Hedged += uint64(n)
	m.launch(r, twins)
}

// pickSecond is the idle replica that would be done first with the live queries of a batch, of those where all of their
// functions have a share.
func (m *Machine) pickSecond(fl *flight) *replica {
	var best *replica
	var bestNanos int64
	for _, r := range m.replicas {
		if !r.helps() || !m.allHaveShare(r, fl) {
			continue
		}
		if nanos := r.profile.predict(min(fl.live-fl.next, m.capOf(r))); best == nil || nanos < bestNanos {
			best, bestNanos = r, nanos
		}
	}
	return best
}

func (m *Machine) allHaveShare(r *replica, fl *flight) bool {
	if len(r.shares) == 0 {
		return true
	}
	for _, it := range fl.items[fl.next:fl.live] {
		if !(r.shareOf(m.functions[it.Function]) > 0) {
			return false
		}
	}
	return true
}

// inTimeAt is which of the live queries of a batch make up one that r would answer in time, as far as can be told: all but
// those whose deadlines are too near, and the most urgent ones of the rest where they are too many. One that was sent twice
// before, or lost, goes nowhere, and nobody with it.
func (m *Machine) inTimeAt(r *replica, fl *flight) (from, n int) {
	most := min(m.capOf(r), HedgeBurst)
	if !m.makesTwin(r, fl.items[fl.live-1], 1) {
		return 0, 0 // they are in the order of their deadlines
	}
	for from = fl.next; ; from++ {
		if n = min(fl.live-from, most); m.makesTwin(r, fl.items[from], n) {
			break
		}
	}
	for _, it := range fl.items[from : from+n] {
		if it.hedged || it.retried {
			return 0, 0
		}
	}
	return from, n
}

// makesTwin reports whether r would answer the query in time, with n in the batch.
func (m *Machine) makesTwin(r *replica, it *Item, n int) bool {
	if m.cfg.Batching.Pad {
		n = m.cfg.Batching.MaxBatch
	}
	return int64(it.Deadline-m.now) > r.profile.careful(n)
}

// hedgeTokens is how many queries may be sent twice now.
func (m *Machine) hedgeTokens() float64 {
	h := &m.hedging
	h.tokens = min(HedgeBurst, h.tokens+HedgePart*float64(m.counters.Arrived-h.counted))
	h.counted = m.counters.Arrived
	return h.tokens
}

// makeTwin makes the query that travels in it's place on the second replica: the same inputs, and memory for outputs of its
// own, which stays with the item for its next life. Nothing of the item is read that a transport may be writing.
func (it *Item) makeTwin() *Item {
	tw := it.twin
	if tw == nil || tw.of != it { // the latter where an item is another one's copy
		tw = &Item{of: it}
		it.twin = tw
	}
	q := &it.Query
	tw.ID, tw.Function, tw.Context, tw.Inputs = q.ID, q.Function, q.Context, q.Inputs
	tw.Arrived, tw.Deadline, tw.Expires = q.Arrived, q.Deadline, q.Expires
	tw.seq, tw.bytes = it.seq, it.bytes
	return tw
}

// fate is how an item's stay in a batch has ended.
type fate uint8

const (
	evaluated fate = iota // with the code of the batch
	lost                  // its replica died on it
	unharmed              // the batch was not taken, or had not been begun
)

// land: a batch is outstanding no more.
func (m *Machine) land(fl *flight, how fate, code api.Code) {
	for _, it := range fl.items {
		switch {
		case fl.hedge:
			m.landTwin(it, how, code)
		case fl.hedged && it.hedged:
			m.landHedged(it, how, code)
		case how == evaluated:
			m.finish(it, code)
		default:
			m.conclude(it, how, code)
		}
	}
	m.recycle(fl)
}

// conclude ends a query that is in no batch any more, or has it go on.
func (m *Machine) conclude(it *Item, how fate, code api.Code) {
	switch how {
	case evaluated:
		m.finish(it, code)
	case lost:
		m.retry(it)
	case unharmed:
		m.requeue(it)
	}
}

// landHedged: the batch of a query that was sent twice has ended, and maybe its twin's before.
func (m *Machine) landHedged(it *Item, how fate, code api.Code) {
	switch {
	case it.twin.place == flying:
		it.place, it.fate, it.code = hedged, how, code
		if it.isOK() && !it.answered {
			m.answer(it, api.OK)
		}
	case it.winner != nil:
		m.finish(it, api.OK)
	default:
		m.conclude(it, how, code)
	}
}

// landTwin: the twin's batch has ended, and maybe that of the query itself before.
func (m *Machine) landTwin(tw *Item, how fate, code api.Code) {
	it := tw.of
	tw.place, tw.Inputs, tw.Context = nowhere, nil, nil
	// A query that two replicas have died on is not tried on a third.
	it.retried = it.retried || how == lost
	first := it.place == flying || !it.isOK()
	if first && how == evaluated && code == api.OK {
		it.winner = &tw.Query
		if !it.answered {
			m.counters.HedgeWins++
		}
	}
	switch {
	case it.place == flying:
		if it.winner != nil && !it.answered {
			m.answer(it, api.OK)
		}
	case it.winner != nil:
		m.finish(it, api.OK)
	default:
		m.conclude(it, it.fate, it.code)
	}
}

// isOK reports whether the query's own batch, which has ended, has answered it.
func (it *Item) isOK() bool { return it.fate == evaluated && it.code == api.OK }
