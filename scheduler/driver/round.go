package driver

import (
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// maxRounds bounds how long one goroutine works for others before it delivers the answers that it has collected.
const maxRounds = 8

// report is a completion on its way to the machine.
type report struct {
	next    *report
	at      api.Nanos
	replica scheduler.ReplicaID
	gone    bool
	crashed bool
	flows   bool // the first output of the batch result.ID
	begun   func(batch uint64) bool
	result  api.BatchResult
}

var reportPool = sync.Pool{New: func() any { return new(report) }}

// BatchDone reports that a replica has answered a batch. It never waits for a lock; res is copied. The calling
// goroutine may send the next batches and deliver answers.
func (l *Lane) BatchDone(id scheduler.ReplicaID, res *api.BatchResult) {
	r := reportPool.Get().(*report)
	r.at, r.replica, r.result = l.clock.Now(), id, *res
	l.report(r)
}

// FirstOutput reports the first output of a stream. See [scheduler.Machine.FirstOutput]. Like BatchDone it never waits for a lock.
func (l *Lane) FirstOutput(id scheduler.ReplicaID, batch uint64, evalNanos int64) {
	r := reportPool.Get().(*report)
	r.at, r.replica, r.flows, r.result = l.clock.Now(), id, true, api.BatchResult{ID: batch, EvalNanos: evalNanos}
	l.report(r)
}

// ReplicaGone reports that a replica has died or ended, after the last BatchDone for it; the transport does not touch
// its batches any more. begun says whether the replica had begun a batch (nil: it had begun all). It is called for each
// outstanding batch, soon and possibly on another goroutine, under the lane's lock: it must neither block nor call the
// lane, and must answer from its own memory, not from a segment that is about to be unmapped. ReplicaGone itself never
// waits for a lock.
func (l *Lane) ReplicaGone(id scheduler.ReplicaID, begun func(batch uint64) bool) {
	r := reportPool.Get().(*report)
	r.at, r.replica, r.gone, r.begun = l.clock.Now(), id, true, begun
	l.report(r)
}

// ReplicaCrashed is ReplicaGone of a replica that nothing outside has ended. See [scheduler.Machine.ReplicaCrashed].
func (l *Lane) ReplicaCrashed(id scheduler.ReplicaID, begun func(batch uint64) bool) {
	r := reportPool.Get().(*report)
	r.at, r.replica, r.gone, r.crashed, r.begun = l.clock.Now(), id, true, true, begun
	l.report(r)
}

func (l *Lane) report(r *report) {
	for {
		head := l.reports.Load()
		r.next = head
		if l.reports.CompareAndSwap(head, r) {
			if head == nil {
				l.work()
			}
			return
		}
	}
}

// advance is called by the clock when the lane's time has come.
func (l *Lane) advance() {
	l.due.Store(true)
	l.work()
}

func (l *Lane) pending() bool {
	return l.intake.Load() != nil || l.reports.Load() != nil || l.due.Load() || l.turn.Load() != 0
}

// work empties the inboxes unless another goroutine is doing so.
//
// No input is lost. A goroutine puts its input into an inbox and then tries the lock. If it fails, the lock's holder
// has yet to release it and checks the inboxes after that (see round). If it succeeds, it empties them itself.
func (l *Lane) work() {
	if l.pending() && l.mu.TryLock() {
		l.round(nil)
	}
}

// round is entered with the lock held and returns without it. It takes in all inputs, runs op, sends batches, and calls
// the owners after releasing the lock. It repeats until no input is left that depends on it.
func (l *Lane) round(op func(now api.Nanos)) {
	d := deliveryPool.Get().(*delivery)
	for again := true; again; {
		now := api.Nanos(0)
		for i := 1; ; i++ {
			now = l.takeIn(now, op, d)
			op = nil
			if i < maxRounds && l.pending() {
				continue // a replica may have answered already
			}
			l.publish()
			l.mu.Unlock()
			if i >= maxRounds || !l.pending() || !l.mu.TryLock() {
				break
			}
		}
		d.deliver(l)
		again = l.pending() && l.mu.TryLock()
	}
	deliveryPool.Put(d)
}

// takeIn feeds the machine with all inputs and carries out what cannot wait. The lock is held. now is the time of the last round of the same
// goroutine, 0 for the first one; takeIn returns that of this one. Reports bring their times along, so that the clock is read only if there
// is something else. Most inboxes are empty, so they are read before they are written, which costs more.
func (l *Lane) takeIn(now api.Nanos, op func(now api.Nanos), d *delivery) api.Nanos {
	if l.reports.Load() != nil {
		now = max(now, l.takeReports())
	}
	due := l.due.Load() && l.due.Swap(false)
	if arriving := l.intake.Load() != nil; arriving || op != nil || due || now == 0 {
		now = l.clock.Now()
		if arriving {
			l.takeItems(now)
		}
	}
	if op != nil {
		op(now)
	}
	if l.turn.Load() != 0 {
		l.machine.TurnGranted(now, l.turn.Swap(0))
	}
	if due || l.wakeAt <= now {
		l.machine.Advance(now)
	}
	l.act(now, d)
	return now
}

// publish makes known what the rounds have changed, before the lock is released.
func (l *Lane) publish() {
	if held := int64(l.machine.Held()); held != l.held.Load() {
		l.held.Store(held)
	}
	if at := l.machine.NextWake(); at != l.wakeAt {
		l.wakeAt = at
		l.clock.watch(&l.sleeper, at)
	}
}

func (l *Lane) takeItems(now api.Nanos) {
	if l.held.Load() == 0 {
		l.held.Store(1) // until the round is over: see Held
	}
	var oldest *scheduler.Item
	for it := l.intake.Swap(nil); it != nil; {
		next := it.Link.Next
		it.Link.Next = oldest
		oldest = it
		it = next
	}
	for oldest != nil {
		it := oldest
		oldest = it.Link.Next
		it.Link = scheduler.Link{}
		l.machine.Arrive(now, it)
	}
}

// takeReports returns the time of the latest report.
func (l *Lane) takeReports() (latest api.Nanos) {
	var oldest *report
	for r := l.reports.Swap(nil); r != nil; {
		next := r.next
		r.next = oldest
		oldest = r
		r = next
	}
	for oldest != nil {
		r := oldest
		oldest = r.next
		latest = max(latest, r.at)
		switch {
		case r.flows:
			l.machine.FirstOutput(r.at, r.replica, r.result.ID, r.result.EvalNanos)
		case r.gone && r.crashed:
			l.machine.ReplicaCrashed(r.at, r.replica, r.begun)
			l.gone = append(l.gone, r.replica)
		case r.gone:
			l.machine.ReplicaGone(r.at, r.replica, r.begun)
			l.gone = append(l.gone, r.replica)
		default:
			l.machine.BatchDone(r.at, r.replica, &r.result)
		}
		r.gone, r.crashed, r.flows, r.begun, r.result.Detail = false, false, false, nil, "" // all other fields are always set
		reportPool.Put(r)
	}
	return latest
}
