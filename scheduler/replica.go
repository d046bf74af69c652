package scheduler

import (
	"errors"
	"fmt"
	"math"

	"github.com/xebec-serving/xebec/api"
)

// replica is one running worker of the model version.
type replica struct {
	id             ReplicaID
	depth          int
	concurrency    int // how many batches it evaluates at once
	controller     controller
	objectiveNanos int64 // the objective that the controller was made for
	profile        profile
	sizes          sizeSet // of the batches that it has answered
	plan           ReplicaPlan
	shares         []float64 // plan.Shares, copied
	minShare       float64   // the smallest share of any function here
	round                    // the round robin's place, if it goes by shares; else unset, and the machine's is used
	deficits       []float64 // of each function, if the round goes by shares
	nextBatch      uint64
	flights        []*flight // outstanding, by batch id: the replica begins them in this order
	// oldestAt is when the evaluation of flights[0] began.
	oldestAt api.Nanos
	// overdueAt is when that batch was first found overdue; 0 while it has not been.
	overdueAt api.Nanos
	probedAt  api.Nanos
	sentAt    api.Nanos // when it got its last batch
	own       queue     // sticky queries whose home it is, by deadline
	ownLast   bool      // they go last in its next batch
	// rejectedSeq is the Machine.changeSeq at which all waiting queries were too urgent for it. Until changeSeq
	// changes, they still are.
	rejectedSeq uint64
	draining    bool
	drained     bool // reported as drained
	leaving     bool // killed or broken, and not yet reported gone
}

// flight is one outstanding batch. Flights are pooled in the machine together with their slices.
type flight struct {
	batch api.Batch
	items []*Item
	// The first live of items had no answer when they were sent, and are in the order of their deadlines. Those before
	// next have been answered since.
	live, next int
	// begunAt is about when its evaluation began: when it was sent, or when a place became free.
	begunAt api.Nanos
	begun   bool
	full    bool // it has as many queries as the cap admits
	alone   bool // one query that may have killed a replica
	hedge   bool // its items are twins of another batch's
	hedged  bool // twins of its items have been sent
	flows   bool // a stream that has had its first output
	lost    bool // its replica died after it had begun
	trial   bool // its time says nothing about later ones
}

// size is how many queries predict sees.
func (fl *flight) size() int { return len(fl.items) + fl.batch.Pad }

// sizeSet is a set of sizes of batches. Those of 4,095 and more are one.
type sizeSet [64]uint64

func (s *sizeSet) add(n int) {
	n = min(n, 64*len(s)-1)
	s[n/64] |= 1 << (n % 64)
}

func (s *sizeSet) has(n int) bool {
	n = min(n, 64*len(s)-1)
	return s[n/64]&(1<<(n%64)) != 0
}

func (r *replica) open() bool { return !r.draining && !r.leaving }

// batching is the configuration for r's controller: as configured, with the plan's objective if it has one.
func (m *Machine) batching(r *replica) Batching {
	b := m.cfg.Batching
	if b.ObjectiveNanos > 0 && r.plan.ObjectiveNanos > 0 {
		b.ObjectiveNanos = r.plan.ObjectiveNanos
	}
	return b
}

// applyObjective replaces r's controller if the plan has changed its objective; the new one starts from what the old
// one knew.
func (m *Machine) applyObjective(r *replica) {
	if m.batching(r).ObjectiveNanos != r.objectiveNanos {
		m.rebuildController(r)
	}
}

func (m *Machine) rebuildController(r *replica) {
	b, before := m.batching(r), r.controller
	r.controller, r.objectiveNanos = newController(b), b.ObjectiveNanos
	carryOver(before, r.controller, &r.profile)
}

// capOf is the most queries that r's next batch may have.
func (m *Machine) capOf(r *replica) int {
	if m.execution == Stream || m.cfg.Streams {
		return 1
	}
	n := r.controller.cap()
	if r.plan.Cap > 0 {
		n = min(n, r.plan.Cap)
	}
	if m.isolation.limit > 0 {
		n = min(n, m.isolation.limit)
	}
	return n
}

// room reports whether another batch may be sent. Nothing is sent beside or behind a query that may have killed a
// replica, so that it cannot take others with it.
func (r *replica) room() bool {
	n := len(r.flights)
	return n == 0 || n < r.depth && !r.flights[n-1].alone
}

// idle reports whether the replica would begin a further batch at once.
func (r *replica) idle() bool { return len(r.flights) < r.concurrency && r.room() }

// remaining is how long it is expected to take until the replica can begin a further batch.
func (r *replica) remaining(now api.Nanos) int64 {
	if len(r.flights) < r.concurrency {
		return 0
	}
	first := int64(math.MaxInt64)
	for _, fl := range r.flights[:r.concurrency] {
		if fl.flows {
			return 0 // when it ends is not known: nothing is refused because of it
		}
		left := r.profile.predict(len(fl.items)) - int64(now-fl.begunAt)
		if left < 0 {
			left = -left // a batch that is late by so much is likely to be late by as much again
		}
		first = min(first, left)
	}
	behind := int64(0)
	for _, fl := range r.flights[r.concurrency:] {
		behind += r.profile.predict(len(fl.items))
	}
	return first + behind/int64(r.concurrency)
}

// begin notes that the replica begins the batches for which it has places.
func (r *replica) begin(at api.Nanos) {
	for _, fl := range r.flights[:min(len(r.flights), r.concurrency)] {
		if !fl.begun {
			fl.begun, fl.begunAt = true, at
		}
	}
	if fl := r.oldest(); fl != nil {
		r.oldestAt = fl.begunAt
	}
}

// oldest is the oldest batch that is to be answered, nil if there is none. Streams that have begun are no such batches: their transport watches
// that they go on.
func (r *replica) oldest() *flight {
	for _, fl := range r.flights {
		if !fl.flows {
			return fl
		}
	}
	return nil
}

// ReplicaReady reports that a replica is connected and takes batches, depth of them at a time (0: as configured).
func (m *Machine) ReplicaReady(now api.Nanos, id ReplicaID, depth int) {
	m.tick(now)
	m.noteChange()
	if m.byID[id] != nil {
		return
	}
	if depth <= 0 {
		depth = m.cfg.Depth
	}
	r := &replica{
		id: id, depth: min(depth, MaxDepth), concurrency: 1, controller: newController(m.cfg.Batching), objectiveNanos: m.cfg.Batching.ObjectiveNanos, nextBatch: 1, probedAt: m.now - probeNanos, sentAt: m.now - probeNanos, rejectedSeq: m.changeSeq - 1,
	}
	r.profile.begin(m.prior)
	if m.byID == nil {
		m.byID = make(map[ReplicaID]*replica)
	}
	m.byID[id] = r
	m.replicas = append(m.replicas, r)
	m.ready++
	m.reweigh()
	m.rehome()
}

// SetConcurrency says, directly after ReplicaReady, that the replica evaluates n batches at once. Its depth grows by the
// further ones.
func (m *Machine) SetConcurrency(id ReplicaID, n int) {
	if r := m.byID[id]; r != nil && n > 1 {
		n = min(n, MaxDepth)
		r.concurrency, r.depth = n, min(r.depth+n-1, MaxDepth)
	}
	if r := m.byID[id]; r != nil && m.cfg.Streams {
		r.depth = r.concurrency
	}
}

// ReplicaDrain stops sending batches to a replica; [Actions.Drained] reports when it holds none.
func (m *Machine) ReplicaDrain(now api.Nanos, id ReplicaID) {
	m.tick(now)
	m.noteChange()
	r := m.byID[id]
	if r == nil || r.draining {
		return
	}
	if r.open() {
		m.replicaUnready()
	}
	r.draining = true
	m.rehome()
	m.reportDrained(r)
}

// replicaUnready notes that one replica less takes batches.
func (m *Machine) replicaUnready() {
	m.ready--
	m.readySeenAt = m.now
}

func (m *Machine) reportDrained(r *replica) {
	if r.draining && !r.drained && len(r.flights) == 0 {
		r.drained = true
		m.out.Drained = append(m.out.Drained, r.id)
	}
}

// replica is the one with that id, nil if there is none.
func (m *Machine) replica(id ReplicaID) *replica {
	if len(m.replicas) == 1 && m.replicas[0].id == id { // the usual case, without a map
		return m.replicas[0]
	}
	return m.byID[id]
}

// BatchDone reports that the replica has answered a batch, or failed on it as a whole. now is the time at which the
// answer was seen; it may lie before that of earlier events. A batch that is not outstanding is ignored.
func (m *Machine) BatchDone(now api.Nanos, id ReplicaID, res *api.BatchResult) {
	m.tick(now)
	m.noteChange()
	r := m.replica(id)
	if r == nil {
		return
	}
	i := r.find(res.ID)
	if i < 0 {
		return
	}
	fl := r.remove(i)
	evalNanos := res.EvalNanos
	if fl.begun { // otherwise it was answered out of order, and how long it waited at the worker is not known
		if evalNanos = int64(now - fl.begunAt); res.EvalNanos > 0 {
			evalNanos = min(evalNanos, res.EvalNanos)
		}
	}
	r.begin(now)
	evalNanos = max(evalNanos, 1)
	n := len(fl.items)
	if res.Code == api.OK && !fl.flows && !fl.trial {
		// The time of a failed batch says nothing about the next one.
		r.profile.observe(m.now, fl.size(), evalNanos)
		r.sizes.add(fl.size())
		if !fl.alone && fl.items[0].failed == api.OK {
			r.controller.observe(n, fl.full, evalNanos)
		}
	}
	m.counters.Batches++
	if !fl.flows {
		m.out.Evaluated = append(m.out.Evaluated, Evaluated{id, n, evalNanos, res.Code})
	}
	m.batchEnded(fl, evaluated, res.Code)
	m.reportDrained(r)
}

// FirstOutput reports that a batch of a model that answers in streams has its first output, which answers its queries. BatchDone reports the stream's
// end, which releases them. now is as in BatchDone; evalNanos is the time that the first output took, which is what the latency profile is of.
func (m *Machine) FirstOutput(now api.Nanos, id ReplicaID, batch uint64, evalNanos int64) {
	m.tick(now)
	m.noteChange()
	r := m.replica(id)
	if r == nil {
		return
	}
	i := r.find(batch)
	if i < 0 || r.flights[i].flows {
		return
	}
	fl := r.flights[i]
	fl.flows, fl.next = true, fl.live
	fl.alone = false // its replica lives; others need not wait for its end, which may be hours away
	if fl == r.flights[0] {
		r.overdueAt = 0
	}
	r.begin(now)
	if !fl.trial {
		r.profile.observe(m.now, fl.size(), max(evalNanos, 1))
		r.sizes.add(fl.size())
	}
	m.out.Evaluated = append(m.out.Evaluated, Evaluated{id, len(fl.items), max(evalNanos, 1), api.OK})
	for _, it := range fl.items {
		if !it.answered {
			m.answer(it, api.OK)
		}
	}
}

// SendFailed reports that the transport did not take the batch of a Dispatch. If err is an *api.Error with code
// TooLarge, its queries end with that code. With any other error the replica is broken: it gets no further batch, a
// Kill is emitted, and the queries go back to their queues as if they had not been sent.
func (m *Machine) SendFailed(now api.Nanos, id ReplicaID, batch uint64, err error) {
	m.tick(now)
	m.noteChange()
	r := m.replica(id)
	if r == nil {
		return
	}
	i := r.find(batch)
	if i < 0 {
		return
	}
	fl := r.remove(i)
	r.begin(m.now)
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.TooLarge {
		m.batchEnded(fl, evaluated, api.TooLarge)
	} else {
		m.batchEnded(fl, notBegun, api.OK)
		m.kill(r, fmt.Sprintf("batch %d could not be sent: %v", batch, err))
	}
	m.reportDrained(r)
}

// ReplicaGone reports that the replica has died or was stopped. begun says of an outstanding batch whether the replica
// had begun it; nil means that it had begun all of them. begun is called only during ReplicaGone.
func (m *Machine) ReplicaGone(now api.Nanos, id ReplicaID, begun func(batch uint64) bool) {
	m.replicaGone(now, id, begun, false)
}

// ReplicaCrashed is ReplicaGone of a replica that nothing outside has ended. If it was evaluating one query alone, that
// query has ended it, and would end the next one: it is not tried again.
func (m *Machine) ReplicaCrashed(now api.Nanos, id ReplicaID, begun func(batch uint64) bool) {
	m.replicaGone(now, id, begun, true)
}

// HasCulprit reports whether it matters how a replica that is about to be reported gone has ended: whether
// [Machine.ReplicaCrashed] differs from [Machine.ReplicaGone]. If so, the replica gets no more batches.
func (m *Machine) HasCulprit(now api.Nanos, id ReplicaID, begun func(batch uint64) bool) bool {
	r := m.replica(id)
	if r == nil || !m.cfg.Retry {
		return false
	}
	it := r.culprit(begun)
	if it == nil || it.answered || it.retried {
		return false
	}
	m.ReplicaDrain(now, id)
	return true
}

// culprit is the query that r was evaluating, if it was evaluating only one. It notes for each batch whether it was begun.
// What it means that a twin's replica has ended, twinBatchEnded says.
func (r *replica) culprit(begun func(batch uint64) bool) (it *Item) {
	items := 0
	for _, fl := range r.flights {
		if fl.lost = begun == nil || begun(fl.batch.ID); fl.lost {
			items += len(fl.items)
			it = fl.items[0]
		}
	}
	if items != 1 || it.twinOf != nil {
		return nil
	}
	return it
}

func (m *Machine) replicaGone(now api.Nanos, id ReplicaID, begun func(batch uint64) bool, crashed bool) {
	m.tick(now)
	m.noteChange()
	r := m.replica(id)
	if r == nil {
		return
	}
	if r.open() {
		m.replicaUnready()
	}
	r.leaving = true // it is no home any more
	m.rehome()
	delete(m.byID, id)
	for i, other := range m.replicas {
		if other == r {
			m.replicas = append(m.replicas[:i], m.replicas[i+1:]...)
			break
		}
	}
	culprit := r.culprit(begun)
	if crashed && culprit != nil {
		culprit.retried = true // this was its only try: no other query can have ended the replica
	}
	for _, fl := range r.flights {
		how := notBegun
		if fl.lost {
			how = lost
		}
		m.batchEnded(fl, how, api.ReplicaLost)
	}
	r.flights = nil
	m.reportDrained(r)
}

// retry handles an item of a batch that a replica died on.
func (m *Machine) retry(it *Item) {
	// An answered query would only fill the cache, which is not worth a batch of its own.
	if it.retried || it.answered || !m.cfg.Retry {
		m.finish(it, api.ReplicaLost)
		return
	}
	if m.closed {
		m.finish(it, m.closeCode)
		return
	}
	it.retried = true
	m.counters.Retries++
	m.queueRetry(it)
}

func (m *Machine) queueRetry(it *Item) {
	it.place = retrying
	m.bytes += it.bytes
	if it.mayKill() {
		m.suspects++
	}
	m.retries.push(it.Deadline, it)
}

// takeRetry takes the most urgent query that must travel alone.
func (m *Machine) takeRetry() *Item {
	it := m.takeFrom(&m.retries)
	if it.mayKill() {
		m.suspects--
	}
	return it
}

// requeue handles an item of a batch that was not begun. It may exceed the bounds of the queue, because it was accepted
// once.
func (m *Machine) requeue(it *Item) {
	switch {
	case m.closed:
		m.finish(it, m.closeCode)
	case it.retried && !it.answered:
		m.queueRetry(it)
	case it.retried:
		m.finish(it, api.ReplicaLost)
	case it.answered:
		m.queueLate(it)
	default:
		m.enqueue(m.functions[it.Function], it)
	}
}

// queueLate keeps an answered item in order to fill the cache.
func (m *Machine) queueLate(it *Item) {
	it.place = late
	m.bytes += it.bytes
	m.late.push(it.Expires, it)
}

func (r *replica) find(batch uint64) int {
	for i, fl := range r.flights {
		if fl.batch.ID == batch {
			return i
		}
	}
	return -1
}

func (r *replica) remove(i int) *flight {
	fl := r.flights[i]
	if i == 0 {
		r.overdueAt = 0
	}
	copy(r.flights[i:], r.flights[i+1:])
	r.flights[len(r.flights)-1] = nil
	r.flights = r.flights[:len(r.flights)-1]
	return fl
}

func (m *Machine) kill(r *replica, reason string) {
	if r.leaving {
		return
	}
	if r.open() {
		m.replicaUnready()
	}
	r.leaving = true
	m.rehome()
	m.counters.Kills++
	m.out.Kills = append(m.out.Kills, Kill{r.id, reason})
}

func (m *Machine) killHung(r *replica, limitNanos int64) {
	noun := "queries"
	if len(r.oldest().items) == 1 {
		noun = "query"
	}
	m.kill(r, fmt.Sprintf("batch %d with %d %s has had no answer for %d ms; the limit is %d ms",
		r.oldest().batch.ID, len(r.oldest().items), noun, int64(m.now-r.oldestAt)/1e6, limitNanos/1e6))
}

func (m *Machine) newFlight() *flight {
	if n := len(m.freeFlights); n > 0 {
		fl := m.freeFlights[n-1]
		m.freeFlights = m.freeFlights[:n-1]
		return fl
	}
	return &flight{}
}

func (m *Machine) recycle(fl *flight) {
	clear(fl.items)
	clear(fl.batch.Queries)
	*fl = flight{items: fl.items[:0], batch: api.Batch{Queries: fl.batch.Queries[:0]}}
	m.freeFlights = append(m.freeFlights, fl)
}
