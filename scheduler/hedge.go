package scheduler

import "github.com/xebec-serving/xebec/api"

const (
	// HedgePart is the part of the arriving queries that may be sent twice: 2 %. One batch in a hundred exceeds its
	// replica's P99. Twice that leaves room for a bad minute, at a cost that needs no capacity planning.
	HedgePart = 0.02
	// HedgeBurst is how many queries may be sent twice at once, after a quiet time and at the start. A late batch may
	// have a hundred queries, and they cannot wait until the tokens have been earned. Of a larger batch the most urgent
	// go.
	HedgeBurst = 128 //xebec:limit queries that may be hedged at once; 2 % of the queries in the long run
	// hedgeFactor times the careful prediction for a batch of that size is late. Half as much happens by chance.
	hedgeFactor = 2
	// hedgeMinNanos: no batch is late before this. A driver's clock may wake the machine that late, and handing a
	// shorter batch to another core and back gains nothing.
	hedgeMinNanos = int64(1e6)
	// pauseNanos: a check for late batches that runs this much after its time shows that this process itself stalled. A
	// running process is late by a millisecond, by some ten on a busy machine. The answers may have arrived and are
	// read next.
	pauseNanos = int64(50e6)
)

// hedging is a token bucket of the queries that may still be sent twice.
type hedging struct {
	tokens float64
	// counted is the value of Counters.Arrived up to which tokens were added. Tokens are added on demand, not query by
	// query.
	counted uint64
	// dueAt is when the next batch becomes late, while hedging is possible; else Never.
	dueAt api.Nanos
}

// hedge sends the live queries of late replicas to idle ones. It runs only when no query waits.
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
				m.sendTwins(r, fl)
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
		busy = busy || len(r.flights) > 0
		helped = helped || r.canHedge()
	}
	return busy && helped
}

// canHedge reports whether the replica can take a second copy: it is idle and its profile is known.
func (r *replica) canHedge() bool { return r.idle() && r.open() && r.profile.known() }

// lateAt is when r, which has a batch, is late: beyond its P99 and beyond what a batch of that size takes.
func (m *Machine) lateAt(r *replica) api.Nanos {
	fl := r.flights[0]
	return r.oldestAt + api.Nanos(max(r.profile.p99Nanos, hedgeFactor*r.profile.careful(len(fl.items)+fl.batch.Pad), hedgeMinNanos))
}

// sendTwins sends queries of a batch that is late, or waits behind a late one, to an idle replica, as far as it would
// answer them in time.
func (m *Machine) sendTwins(owner *replica, fl *flight) {
	tokens := m.hedgeTokens()
	if tokens < 1 {
		return
	}
	r := m.pickSecond(owner, fl)
	if r == nil {
		return
	}
	from, n := m.hedgeable(r, fl)
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

// pickSecond picks the other idle replica that would finish first with the live queries of a batch, of those on which all of
// their functions have a share.
func (m *Machine) pickSecond(owner *replica, fl *flight) *replica {
	var best *replica
	var bestNanos int64
	for _, r := range m.replicas {
		if r == owner || !r.canHedge() || !m.allHaveShare(r, fl) {
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

// hedgeable selects live queries of a batch, n of them beginning at from, that r is expected to answer in time. It
// leaves out those whose deadlines are too near; if the rest are too many, it takes the most urgent. If one of them was
// lost or sent twice before, it selects none.
func (m *Machine) hedgeable(r *replica, fl *flight) (from, n int) {
	most := min(m.capOf(r), HedgeBurst)
	if !m.twinMeetsDeadline(r, fl.items[fl.live-1], 1) {
		return 0, 0 // they are in the order of their deadlines
	}
	for from = fl.next; ; from++ {
		if n = min(fl.live-from, most); m.twinMeetsDeadline(r, fl.items[from], n) {
			break
		}
	}
	for _, it := range fl.items[from : from+n] {
		if it.hedged || it.retried || it.Sticky != 0 {
			return 0, 0
		}
	}
	return from, n
}

// twinMeetsDeadline reports whether r would answer the query in time with n in the batch.
func (m *Machine) twinMeetsDeadline(r *replica, it *Item, n int) bool {
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

// makeTwin makes the query that stands in for it on the second replica. It has the same inputs and its own memory for
// outputs, which stays with the item when it is reused. makeTwin reads nothing of the item that a transport may be
// writing.
func (it *Item) makeTwin() *Item {
	tw := it.twin
	if tw == nil || tw.twinOf != it { // the latter if the item was copied from another
		tw = &Item{twinOf: it}
		it.twin = tw
	}
	q := &it.Query
	tw.ID, tw.Function, tw.Context, tw.Inputs = q.ID, q.Function, q.Context, q.Inputs
	tw.Parameters, tw.Call = q.Parameters, q.Call
	tw.Arrived, tw.Deadline, tw.Expires = q.Arrived, q.Deadline, q.Expires
	tw.seq, tw.bytes = it.seq, it.bytes
	return tw
}

// outcome is how an item's stay in a batch has ended.
type outcome uint8

const (
	evaluated outcome = iota // with the code of the batch
	lost                     // its replica died on it
	notBegun                 // the batch was not taken, or not begun
)

// batchEnded handles a batch that is no longer outstanding.
func (m *Machine) batchEnded(fl *flight, how outcome, batchCode api.Code) {
	apart := 0
	if how == evaluated {
		m.isolatedEnded(fl, batchCode)
		apart = m.mayIsolate(fl, batchCode)
	}
	if fl.flows && how == notBegun {
		how = lost // it has been answered
	}
	for _, it := range fl.items {
		code := batchCode
		if code == api.OK && how == evaluated {
			code = it.Status
		}
		switch {
		case fl.hedge:
			m.twinBatchEnded(it, how, code, len(fl.items) == 1)
		case fl.hedged && it.hedged:
			m.ownBatchEnded(it, how, code)
		case apart > 0:
			apart--
			m.isolate(it, code, len(fl.items))
		case how == evaluated:
			m.finish(it, code)
		default:
			m.finishOrRetry(it, how, code)
		}
	}
	m.recycle(fl)
}

// finishOrRetry ends a query that is in no batch any more, or queues it again.
func (m *Machine) finishOrRetry(it *Item, how outcome, code api.Code) {
	switch how {
	case evaluated:
		m.finish(it, code)
	case lost:
		m.retry(it)
	case notBegun:
		if it.suspect && !it.retried {
			m.retry(it) // its twin's replica died: it must not join a batch of others
			return
		}
		m.requeue(it)
	}
}

// ownBatchEnded handles the end of the own batch of a query that was sent twice. Its twin's batch may have ended before.
func (m *Machine) ownBatchEnded(it *Item, how outcome, code api.Code) {
	switch {
	case it.twin.place == inFlight:
		it.place, it.outcome, it.code = twinPending, how, code
		if it.isOK() && !it.answered {
			m.answer(it, api.OK)
		}
	case it.winner != nil:
		m.finish(it, api.OK)
	default:
		m.finishOrRetry(it, how, code)
	}
}

// twinBatchEnded handles the end of the twin's batch, in which the twin may have been alone. The query's own batch may
// have ended before.
func (m *Machine) twinBatchEnded(tw *Item, how outcome, code api.Code, alone bool) {
	it := tw.twinOf
	tw.place, tw.Inputs, tw.Context, tw.Parameters, tw.Call = nowhere, nil, nil, nil, nil
	// A replica that died on the query alone has shown what a retry would show. One that died on several has not: the
	// mates of a query that kills were twice beside it, and are still owed a batch of their own.
	it.retried = it.retried || how == lost && alone
	it.suspect = it.suspect || how == lost
	first := it.place == inFlight || !it.isOK()
	if first && how == evaluated && code == api.OK {
		it.winner = &tw.Query
		if !it.answered {
			m.counters.HedgeWins++
		}
	}
	switch {
	case it.place == inFlight:
		if it.winner != nil && !it.answered {
			m.answer(it, api.OK)
		}
	case it.winner != nil:
		m.finish(it, api.OK)
	default:
		m.finishOrRetry(it, it.outcome, it.code)
	}
}

// isOK reports whether the query's own batch, which has ended, has answered it.
func (it *Item) isOK() bool { return it.outcome == evaluated && it.code == api.OK }
