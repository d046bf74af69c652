package sim

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// hedgeState is the state of a query that was sent twice.
type hedgeState struct {
	twin       *flight // the second batch, until it comes back
	hedged     bool    // it was sent twice
	requeueDue bool    // its own batch has failed it, and it must wait again if the second one fails too
	// answer is the query whose outputs are the answer: its own or its twin's, whichever was evaluated first; nil:
	// neither was.
	answer  *api.Query
	twinned *api.Query
}

// outcome is how a batch has ended.
type outcome uint8

const (
	evaluated outcome = iota // with its code
	notBegun                 // the transport did not take it, or its replica died before it had begun
	lost                     // its replica died on it
)

// batchEnded removes an outstanding batch. A query whose replica has failed it waits again once none of its batches is
// outstanding.
func (m *model) batchEnded(fl *flight, how outcome) {
	for _, q := range fl.queries {
		ok, own := how == evaluated && fl.code == api.OK, &q.Query
		if fl.hedge {
			q.twin, own = nil, q.twinned
		} else {
			q.flight, q.requeueDue = nil, how != evaluated
		}
		if how == lost {
			q.lost++
		}
		if how == evaluated && fl.code != api.OK && len(fl.queries) > 1 && !q.hedged && m.ledger.cfg.Retry {
			q.apart, q.requeueDue = true, true // the engine may evaluate it again, alone; otherwise it ends it now
		}
		if ok && q.answer == nil {
			q.answer = own
		}
		if q.requeueDue && q.flight == nil && q.twin == nil {
			if q.requeueDue = false; q.answer == nil {
				m.ledger.requeue(q)
			}
		}
	}
}

// heldQueries counts the queries that an outstanding batch keeps in the engine, counting those in two batches once.
func (fl *flight) heldQueries() int {
	if !fl.hedge {
		return len(fl.queries)
	}
	n := 0
	for _, q := range fl.queries {
		if q.flight == nil {
			n++
		}
	}
	return n
}

// checkHedge checks a batch of queries that are already in another batch. It returns nil if the batch breaks a promise.
func (w *world) checkHedge(m *model, r *replica, d *scheduler.Dispatch) *flight {
	fl := &flight{id: d.Batch.ID, hedge: true}
	if c := &m.ledger.cfg; !c.Hedge || c.Shared || len(r.flights) > 0 {
		w.fail("m%d: batch %d for replica %d is a hedge: allowed %v, on a shared device %v, %d batches before it", m.index, fl.id, r.id, c.Hedge, c.Shared, len(r.flights))
		return nil
	}
	var first *flight
	bytes := 0
	for _, aq := range d.Batch.Queries {
		var q *query
		if aq.ID < uint64(len(w.queries)) {
			q = w.queries[aq.ID]
		}
		switch {
		case q == nil || &q.Query == aq || q.model != m:
			w.fail("m%d: query %d is hedged, which was released or never given to this engine, or is no twin", m.index, aq.ID)
			return nil
		case q.flight == nil || q.flight.alone || q.hedged || q.answered || q.again() || q.Deadline <= w.now:
			w.fail("m%d: query %d is hedged: in a batch %v, sent twice before %v, answered %v, lost %d times, due in %v",
				m.index, aq.ID, q.flight != nil, q.hedged, q.answered, q.lost, span(q.Deadline-w.now))
			return nil
		case first != nil && q.flight != first:
			w.fail("m%d: the batch that hedges query %d has queries of another one", m.index, aq.ID)
			return nil
		case aq.InputBytes() != q.InputBytes() || aq.Deadline != q.Deadline || aq.Function != q.Function:
			w.fail("m%d: query %d is hedged by another query", m.index, aq.ID)
			return nil
		}
		first, bytes = q.flight, bytes+q.InputBytes()
		q.twin, q.twinned, q.hedged = fl, aq, true
		fl.queries = append(fl.queries, q)
	}
	m.ledger.hedged += len(fl.queries)
	if most := scheduler.HedgePart*float64(m.ledger.arrived) + scheduler.HedgeBurst; float64(m.ledger.hedged) > most {
		w.fail("m%d: %d of %d queries were sent twice: at most %.0f are allowed", m.index, m.ledger.hedged, m.ledger.arrived, most)
		return nil
	}
	m.ledger.hedges = true
	if w.spec.Check && (!w.checkLate(m, first) || !w.checkSize(m, r, fl, bytes, d.Batch.Pad)) {
		return nil
	}
	return fl
}

// checkLate: the replica that has the batch is later than its P99.
func (w *world) checkLate(m *model, fl *flight) bool {
	for _, p := range m.places {
		if p.current == nil {
			continue
		}
		for _, other := range p.current.flights {
			if other != fl {
				continue
			}
			for i := range m.snapshot.Replicas {
				if s := &m.snapshot.Replicas[i]; s.ID == p.current.id {
					since, least := int64(w.now-s.OldestAt), max(s.P99Nanos, 1e6)
					if since < least {
						w.fail("m%d: batch %d of replica %d is hedged after %v: it is late after %v", m.index, fl.id, s.ID, span(api.Nanos(since)), span(api.Nanos(least)))
					}
					return since >= least
				}
			}
		}
	}
	w.fail("m%d: batch %d is hedged, but no replica has it", m.index, fl.id)
	return false
}

// checkHedged: queries were sent twice only while no other query waited.
func (w *world) checkHedged(m *model) {
	if !m.ledger.hedges {
		return
	}
	m.ledger.hedges = false
	live := 0
	for i := range m.ledger.subs {
		live += m.ledger.subs[i].live
	}
	if live+m.ledger.retrying > 0 {
		w.fail("m%d sends queries twice while %d others wait", m.index, live+m.ledger.retrying)
	}
}
