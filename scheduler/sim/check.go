package sim

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// ledger is the world's own account of an engine's queries, kept from the engine's inputs and actions.
type ledger struct {
	cfg      scheduler.Config // in force, with defaults filled in
	subs     []sub
	plan     scheduler.Plan // in force, copied
	waiting  int            // queries held by the engine that are in no batch
	bytes    int            // of the waiting queries
	retrying int            // waiting queries that were lost with a replica, or in a batch that failed
	// requeued: queries have come back since the last check, which may fill a queue beyond its bounds.
	requeued               bool
	lastWaiting, lastBytes int
	idleSince              api.Nanos // since when a replica idles while queries wait; Never if none does
	servings               []serving // of this decision
	oldBound               []float64 // the largest bounds of earlier plans, whose deficits persist
	arrived, hedged        int       // queries that arrived, and that were sent twice
	hedges                 bool      // this decision sends queries twice
}

// sub is one function's sub-queue.
type sub struct {
	weight float64 // as attached
	live   int     // waiting, unanswered, never lost
	passed int     // queries of others sent since one of its own was, while some waited
}

func (b *ledger) init(cfg scheduler.Config) {
	b.idleSince = api.Never
	b.cfg = scheduler.New(cfg).Config()
	b.oldBound = make([]float64, len(b.subs))
}

func (b *ledger) attach(queue int32, weight float64) {
	for len(b.subs) <= int(queue) {
		b.subs = append(b.subs, sub{})
	}
	b.subs[queue] = sub{weight: weight}
}

func (q *query) live() bool { return q.waiting && !q.answered && !q.late && !q.again() }

// again reports whether the query was lost with a replica, or in a batch that failed.
func (q *query) again() bool { return q.lost > 0 || q.apart }

// count adds a waiting query to the account, or removes it.
func (b *ledger) count(q *query, sign int) {
	b.waiting += sign
	b.bytes += sign * q.InputBytes()
	if q.again() {
		b.retrying += sign
	}
	if q.live() {
		b.subs[q.Function].count(sign)
	}
}

// count updates live. A sub-queue without waiting queries does not starve, and starts over behind all others.
func (s *sub) count(sign int) {
	if s.live += sign; s.live == 0 {
		s.passed = 0
	}
}

func (b *ledger) add(q *query) {
	b.arrived++
	b.count(q, 1)
}

// requeue records that the query's batch has ended without an answer, just before the engine is told.
func (b *ledger) requeue(q *query) {
	q.waiting = true
	b.requeued = true
	b.count(q, 1)
}

func (b *ledger) dequeue(q *query) {
	if q.waiting {
		b.count(q, -1)
		q.waiting = false
	}
}

// setPlan records a plan that is in force from now on.
func (b *ledger) setPlan(p *scheduler.Plan) {
	for i := range b.subs {
		b.oldBound[i] = max(b.oldBound[i], b.bound(i))
		b.subs[i].passed = 0
	}
	b.plan = scheduler.Plan{Execution: p.Execution, Functions: slices.Clone(p.Functions), Replicas: slices.Clone(p.Replicas)}
	for i := range b.plan.Replicas {
		b.plan.Replicas[i].Shares = slices.Clone(b.plan.Replicas[i].Shares)
	}
}

// samePlan reports whether p is the plan in force.
func (b *ledger) samePlan(p *scheduler.Plan) bool {
	return b.plan.Execution == p.Execution && slices.Equal(b.plan.Functions, p.Functions) &&
		slices.EqualFunc(b.plan.Replicas, p.Replicas, func(x, y scheduler.ReplicaPlan) bool {
			return x.ID == y.ID && x.Cap == y.Cap && x.HoldNanos == y.HoldNanos && x.ObjectiveNanos == y.ObjectiveNanos &&
				slices.Equal(x.Shares, y.Shares)
		})
}

func (b *ledger) replicaPlan(id scheduler.ReplicaID) scheduler.ReplicaPlan {
	for i := range b.plan.Replicas {
		if b.plan.Replicas[i].ID == id {
			return b.plan.Replicas[i]
		}
	}
	return scheduler.ReplicaPlan{}
}

// share is a sub-queue's weight by the plan, or as attached.
func (b *ledger) share(i int) float64 {
	w := b.subs[i].weight
	if i < len(b.plan.Functions) && b.plan.Functions[i].Weight != 0 {
		w = b.plan.Functions[i].Weight
	}
	if !(w > 0) {
		w = 1
	}
	return clamp(w)
}

func clamp(w float64) float64 { return max(0.01, min(w, 100)) }

// shareAt is its weight at a replica; 0: served there only while no function with a share waits.
func (b *ledger) shareAt(r *scheduler.ReplicaPlan, i int) float64 {
	if len(r.Shares) == 0 {
		return b.share(i)
	}
	if i >= len(r.Shares) || !(r.Shares[i] > 0) {
		return 0
	}
	return clamp(r.Shares[i])
}

// bound is how many queries of others may be sent between two of sub-queue i while it always has queries waiting. In a
// deficit round robin each of the others has one visit, at which it spends its quantum (its share divided by the least
// share) and what was left of the previous one. Where replicas have shares of their own, the bound is the sum over
// them.
func (b *ledger) bound(i int) float64 {
	sum := b.boundAt(&scheduler.ReplicaPlan{}, i)
	for j := range b.plan.Replicas {
		if r := &b.plan.Replicas[j]; len(r.Shares) > 0 && b.shareAt(r, i) > 0 {
			sum += b.boundAt(r, i)
		}
	}
	return sum
}

func (b *ledger) boundAt(r *scheduler.ReplicaPlan, i int) float64 {
	least := math.Inf(1)
	for j := range b.subs {
		if s := b.shareAt(r, j); s > 0 {
			least = min(least, s)
		}
	}
	sum := 1.0
	for j := range b.subs {
		if j != i {
			sum += b.shareAt(r, j)/least + 1
		}
	}
	return sum
}

// serving counts the live queries of a batch by sub-queue.
type serving struct {
	replica scheduler.ReplicaID
	of      map[int32]int
	total   int
}

// serve records which sub-queues a batch passed over, and fails if one starves.
func (w *world) serve(m *model, batch *serving) {
	b := &m.ledger
	rp := b.replicaPlan(batch.replica)
	for i := range b.subs {
		s := &b.subs[i]
		switch {
		case batch.of[int32(i)] > 0 || s.live == 0:
			s.passed = 0
		case m.tooSlow(w.now, batch.replica, i): // they wait for another replica, and then for a turn of their own
			s.passed = 0
		case b.shareAt(&rp, i) > 0:
			s.passed += batch.total
			if most := b.bound(i) + b.oldBound[i]; float64(s.passed) > most {
				w.fail("m%d: function %d starves: %d of its queries wait while %d of others were sent; at most %.0f by the weights",
					m.index, i, s.live, s.passed, most)
			}
		}
	}
}

// checkDispatch checks a batch against everything that bounds it. It returns nil if the batch breaks a promise.
func (w *world) checkDispatch(m *model, r *replica, d *scheduler.Dispatch) *flight {
	fl := &flight{id: d.Batch.ID}
	if r == nil || r.killed || r.draining {
		w.fail("m%d: batch for replica %d, which is gone, draining or killed", m.index, d.Replica)
		return nil
	}
	if d.Hedge {
		return w.checkHedge(m, r, d)
	}
	bytes, live := 0, 0
	served := map[int32]int{}
	for _, aq := range d.Batch.Queries {
		var q *query
		if aq.ID < uint64(len(w.queries)) {
			q = w.queries[aq.ID]
		}
		switch {
		case q == nil || &q.Query != aq || q.model != m:
			w.fail("m%d: query %d is sent, which was released or never given to this engine", m.index, aq.ID)
			return nil
		case q.flight != nil || q.twin != nil:
			w.fail("m%d: query %d is in two batches", m.index, aq.ID)
			return nil
		case !q.answered && !q.late && q.Deadline <= w.now || q.Expires <= w.now:
			w.fail("m%d: query %d is sent %v after its deadline, answered %v, expired %v ago", m.index, aq.ID, span(w.now-q.Deadline), q.answered, span(w.now-q.Expires))
			return nil
		case q.flowed:
			w.fail("m%d: query %d, whose stream has had its first output, is sent again", m.index, aq.ID)
			return nil
		case q.again() && (len(d.Batch.Queries) > 1 || len(r.flights) > 0):
			w.fail("m%d: query %d was lost with a replica, or in a batch that failed, and is not sent alone", m.index, aq.ID)
			return nil
		}
		if q.live() {
			served[q.Function]++
			live++
		}
		fl.alone = fl.alone || q.lost > 0
		bytes += q.InputBytes()
		m.ledger.dequeue(q)
		q.flight = fl
		fl.queries = append(fl.queries, q)
	}
	if n := len(r.flights); n >= r.depth || n > 0 && (r.flights[n-1].id >= fl.id || r.flights[n-1].alone) {
		w.fail("m%d: batch %d for replica %d, which holds %d of %d, the last one %d", m.index, fl.id, r.id, n, r.depth, r.flights[n-1].id)
		return nil
	}
	if w.spec.Check && !w.checkSize(m, r, fl, bytes, d.Batch.Pad) {
		return nil
	}
	if w.spec.Check && live > 0 {
		m.ledger.servings = append(m.ledger.servings, serving{r.id, served, live})
	}
	return fl
}

// checkSize checks a batch's size against the configuration, the plan and the controller.
func (w *world) checkSize(m *model, r *replica, fl *flight, bytes, pad int) bool {
	n, c := len(fl.queries), m.ledger.cfg.Batching
	most := c.MaxBatch
	if c.Policy == scheduler.None && !c.Pad || m.ledger.cfg.Streams || m.ledger.plan.Execution == scheduler.Stream {
		most = 1
	}
	if planned := m.ledger.replicaPlan(r.id).Cap; planned > 0 {
		most = min(most, planned)
	}
	for i := range m.snapshot.Replicas {
		if s := &m.snapshot.Replicas[i]; s.ID == r.id {
			most = min(most, s.Learned)
		}
	}
	if n == 0 || n > most || n > 1 && bytes > c.MaxBatchBytes || c.Pad && n+pad != c.MaxBatch || !c.Pad && pad != 0 {
		w.fail("m%d: batch %d for replica %d has %d queries (at most %d), %d B (at most %d), padded by %d", m.index, fl.id, r.id, n, most, bytes, c.MaxBatchBytes, pad)
		return false
	}
	return true
}

// markLate marks the queries whose deadlines have passed while they waited: they may be sent in the decision that answers
// them.
func (b *ledger) markLate(ends []scheduler.End) {
	for i := range ends {
		if e := &ends[i]; e.Kind == scheduler.AnswerOnly {
			if q, ok := e.Item.Owner.(*query); ok && q.live() {
				b.subs[q.Function].count(-1)
				q.late = true
			}
		}
	}
}

// checkEnd checks an end against the history of the query. It returns nil if the end breaks a promise.
func (w *world) checkEnd(m *model, e *scheduler.End) *query {
	q, ok := e.Item.Owner.(*query)
	if !ok || q.model != m {
		w.fail("m%d ends an item that was never given to it", m.index)
		return nil
	}
	switch {
	case q.released:
		w.fail("m%d: query %d ends again after its release, with %v", m.index, q.ID, e.Code)
	case q.answered != (e.Kind == scheduler.ReleaseOnly):
		w.fail("m%d: query %d: end of kind %d, answered before: %v", m.index, q.ID, e.Kind, q.answered)
	case q.flight != nil && e.Kind != scheduler.AnswerOnly:
		w.fail("m%d: query %d is released out of batch %d, which is in flight", m.index, q.ID, q.flight.id)
	case q.twin != nil && e.Kind != scheduler.AnswerOnly:
		w.fail("m%d: query %d is released out of batch %d, which is in flight with its twin", m.index, q.ID, q.twin.id)
	case e.Code == api.OK && (q.answer == nil || e.Item.Result() != q.answer) && !q.waiting:
		w.fail("m%d: query %d ends OK with outputs that no replica gave it, or that came second", m.index, q.ID)
	case e.Code == api.OK && q.waiting && e.Kind != scheduler.ReleaseOnly:
		w.fail("m%d: query %d is answered OK without having been evaluated", m.index, q.ID)
	case e.Code == api.Overloaded && e.Kind != scheduler.ReleaseOnly && q.arrivedAt != w.now && (q.flight != nil && !q.late || w.now >= q.Deadline):
		// An accepted query may be refused later because it would be late, but only before its deadline.
		w.fail("m%d: query %d is refused %v after it arrived, in flight: %v, its deadline in %v", m.index, q.ID, span(w.now-q.arrivedAt), q.flight != nil, span(q.Deadline-w.now))
	case e.Kind != scheduler.ReleaseOnly && w.now > max(q.Deadline, q.arrivedAt)+api.Nanos(w.lateNanos()+w.spec.JumpNanos):
		w.fail("m%d: query %d is answered %v after its deadline, %v", m.index, q.ID, span(w.now-q.Deadline), e.Code)
	default:
		if e.Kind != scheduler.AnswerOnly {
			m.ledger.dequeue(q)
		}
		return q
	}
	return nil
}

// checkLedger checks an engine that has no further decisions at this moment.
func (w *world) checkLedger(m *model) {
	if !w.spec.Check {
		return
	}
	b := &m.ledger
	grown := b.waiting > b.lastWaiting && b.waiting > b.cfg.MaxQueue || b.bytes > b.lastBytes && b.bytes > b.cfg.MaxQueueBytes && b.waiting > 1
	if grown && !b.requeued {
		w.fail("m%d: %d queries of %d B wait: the queue takes %d of %d B", m.index, b.waiting, b.bytes, b.cfg.MaxQueue, b.cfg.MaxQueueBytes)
	}
	b.requeued, b.lastWaiting, b.lastBytes = false, b.waiting, b.bytes

	flying := 0
	for _, p := range m.places {
		if p.current != nil {
			for _, fl := range p.current.flights {
				flying += fl.heldQueries()
			}
		}
	}
	m.engine.Snapshot(&m.snapshot)
	s := &m.snapshot
	if s.Held != b.waiting+flying || s.Queued+s.Late+s.Retrying != b.waiting || s.QueuedBytes != b.bytes {
		w.fail("m%d holds %d queries: %d in time, %d late and %d retries wait, of %d B; it was given %d that wait, of %d B, and %d are in flight",
			m.index, s.Held, s.Queued, s.Late, s.Retrying, s.QueuedBytes, b.waiting, b.bytes, flying)
	}
	w.checkStreams(m)
	w.checkDevice(m)
	w.checkIdle(m)
}

// checkIdle: no replica idles while queries wait, and no place for a stream is empty, except for holds and turns.
func (w *world) checkIdle(m *model) {
	b := &m.ledger
	idle := b.waiting > 0 && (m.device == nil || m.device.holder == nil) && slices.ContainsFunc(m.places, func(p *place) bool {
		r := p.current
		return r != nil && !r.killed && !r.draining && b.servesWaiting(r.id) && m.beginsAnother(w.now, r)
	})
	if !idle {
		b.idleSince = api.Never
		return
	}
	b.idleSince = min(b.idleSince, w.now)
	hold := b.cfg.Batching.HoldNanos
	for i := range b.plan.Replicas {
		hold = max(hold, b.plan.Replicas[i].HoldNanos)
	}
	if hold > 0 && b.waiting > b.retrying {
		hold = min(hold, scheduler.MaxHoldNanos) + w.lateNanos() + w.spec.JumpNanos
	} else {
		hold = 0
	}
	if w.now > b.idleSince+api.Nanos(hold) || hold == 0 {
		w.fail("m%d: a replica has idled for %v while %d queries wait; the limit is %v", m.index, span(w.now-b.idleSince), b.waiting, span(api.Nanos(hold)))
	}
}

// tooSlow reports whether, by its profile, a replica would be too late for the most urgent query of sub-queue i, which
// may then wait for another replica.
func (m *model) tooSlow(now api.Nanos, id scheduler.ReplicaID, i int) bool {
	s := &m.snapshot
	if i >= len(s.Functions) {
		return false
	}
	for j := range s.Replicas {
		if r := &s.Replicas[j]; r.ID == id {
			// Its batches and this query. The age of the oldest batch stands for the machine's estimate of further
			// lateness.
			needs := float64(r.Batches+1)*r.InterceptNanos + float64(r.Queries+1)*r.SlopeNanos
			if m.spec.Config.Streams { // each begins at once
				needs = r.InterceptNanos + r.SlopeNanos
			} else if r.OldestAt != api.Never {
				needs += max(0, float64(now-r.OldestAt))
			}
			return r.Samples >= 16 && float64(s.Functions[i].Earliest-now) < needs
		}
	}
	return false
}

// isQuickEnough reports whether the replica is quick enough for some waiting query, or no query waits in time.
func (m *model) isQuickEnough(now api.Nanos, id scheduler.ReplicaID) bool {
	quick, live := false, false
	for i := range m.ledger.subs {
		if m.ledger.subs[i].live > 0 {
			live = true
			quick = quick || !m.tooSlow(now, id, i)
		}
	}
	return quick || !live
}

// servesWaiting reports whether a function with queries waiting has a share of the replica. If none has, guests may be
// left to the replicas reserved for them.
func (b *ledger) servesWaiting(id scheduler.ReplicaID) bool {
	rp := b.replicaPlan(id)
	if len(rp.Shares) == 0 {
		return true
	}
	for i := range b.subs {
		if b.subs[i].live > 0 && b.shareAt(&rp, i) > 0 {
			return true
		}
	}
	return false
}

// checkDevice: the holder of a shared device uses it, and no other model does.
func (w *world) checkDevice(m *model) {
	d := m.device
	if d == nil {
		return
	}
	for _, other := range w.models {
		if other.device == d && other != d.holder && other.outstanding() > 0 {
			w.fail("d%d: m%d has %d batches there and no turn", d.index, other.index, other.outstanding())
		}
	}
	if d.holder != nil && d.holder.outstanding() == 0 && !d.holder.isDirty {
		w.fail("d%d: m%d has a turn and nothing in flight", d.index, d.holder.index)
	}
}

func (m *model) outstanding() int {
	n := 0
	for _, p := range m.places {
		if p.current != nil {
			n += len(p.current.flights)
		}
	}
	return n
}

// checkFinal checks that no query is lost and that the engines' own counts agree.
func (w *world) checkFinal() {
	if w.open > 0 {
		w.fail("%d queries were never released", w.open)
		return
	}
	for _, c := range w.calls {
		if c != nil {
			w.fail("call %d to function %s was never answered", c.id, c.function.spec.Name)
			return
		}
	}
	for _, m := range w.models {
		m.engine.Snapshot(&m.snapshot)
		ended := uint64(0)
		for _, n := range m.snapshot.Counters.Ended {
			ended += n
		}
		if c := &m.snapshot.Counters; w.spec.Check && (m.snapshot.Held != 0 || c.Arrived != ended) {
			w.fail("m%d has counted %d arrivals and %d ends, and holds %d", m.index, c.Arrived, ended, m.snapshot.Held)
		}
	}
}
