package driver

import (
	"sync"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// delivery holds the calls that a goroutine must make after it has released the lane's lock.
type delivery struct {
	ends    []scheduler.End
	kills   []kill
	drained []func()

	// The lane's turn at its device. Two goroutines may deliver in either order.
	tenant   *Lane // nil: nothing to report
	endTurn  int64
	wantTurn bool
}

type kill struct {
	replica Replica
	reason  string
}

var deliveryPool = sync.Pool{New: func() any { return new(delivery) }}

// act calls Ready, sends the batches and collects the other actions in d. The lock is held.
func (l *Lane) act(now api.Nanos, d *delivery) {
	for again := true; again; {
		again = false
		l.machine.Ready(now, &l.actions)
		for _, a := range l.actions.Dispatches {
			if err := l.replicas[a.Replica].Send(a.Batch); err != nil {
				l.machine.SendFailed(now, a.Replica, a.Batch.ID, err)
				again = true
				continue
			}
			if a.Hedge {
				continue // they have waited for a replica once, and were counted then
			}
			queueNanos := &l.measured().queueNanos
			for _, q := range a.Batch.Queries {
				queueNanos.observe(int64(now - q.Arrived))
			}
		}
		for _, k := range l.actions.Kills {
			d.kills = append(d.kills, kill{l.replicas[k.Replica].Replica, k.Reason})
		}
		for _, id := range l.actions.Drained {
			d.takeDrained(l.replicas[id])
		}
		for _, e := range l.actions.Evaluated {
			m := l.measured()
			m.batchSize.observe(int64(e.Queries))
			m.evalNanos.observe(e.EvalNanos)
			if e.Code == api.OK {
				m.bySize.observe(e.Queries, e.EvalNanos)
			}
		}
		d.ends = append(d.ends, l.actions.Ends...)
		if l.device != nil && (l.actions.EndTurn > 0 || l.actions.WantTurn) {
			d.tenant = l
			d.endTurn += l.actions.EndTurn
			d.wantTurn = d.wantTurn || l.actions.WantTurn
		}
	}
	for _, id := range l.gone {
		if a := l.replicas[id]; a != nil {
			d.takeDrained(a)
			delete(l.replicas, id)
		}
	}
	if len(l.gone) > 0 && len(l.replicas) == 0 { // most versions sleep most of the time
		l.gone, l.replicas, l.actions = nil, nil, scheduler.Actions{}
		l.machine.FreeBuffers()
	}
	if len(l.gone) > 0 {
		l.gone = l.gone[:0]
	}
}

func (d *delivery) takeDrained(a *attached) {
	d.drained = append(d.drained, a.drained...)
	a.drained, a.empty = nil, true
}

// The states of scheduler.Link.Handoff. A query that was answered at its deadline is released later, possibly by
// another goroutine and before the first has called Answered. The second of the two calls Released.
const (
	handedNothing uint32 = iota
	handedAnswer
	handedRelease
)

// deliver makes the calls. The lock is not held; owners may call the lane.
func (d *delivery) deliver(l *Lane) {
	if l, end, want := d.tenant, d.endTurn, d.wantTurn; l != nil {
		d.tenant, d.endTurn, d.wantTurn = nil, 0, false
		l.device.report(l, end, want)
	}
	for _, k := range d.kills {
		k.replica.Kill(k.reason)
	}
	for i := range d.ends {
		e := d.ends[i]
		it, owner := e.Item, e.Item.Owner
		if e.Kind != scheduler.ReleaseOnly && (e.Code == api.DeadlineExceeded || e.Code == api.NoReplica) {
			if late := l.clock.Now() - it.Deadline; late >= 0 {
				l.measured().lateNanos.observeShared(int64(late))
			}
		}
		switch e.Kind {
		case scheduler.Both:
			owner.Answered(it, e.Code)
			owner.Released(it, e.Code)
		case scheduler.AnswerOnly:
			owner.Answered(it, e.Code)
			if atomic.SwapUint32(&it.Link.Handoff, handedAnswer) == handedRelease {
				owner.Released(it, it.Link.Final)
			}
		case scheduler.GivenBack:
			owner.(Taker).TakeBack(it) // GiveBack has asked
		case scheduler.ReleaseOnly:
			it.Link.Final = e.Code
			if atomic.SwapUint32(&it.Link.Handoff, handedRelease) == handedAnswer {
				owner.Released(it, e.Code)
			}
		}
	}
	for _, done := range d.drained {
		done()
	}
	clear(d.ends)
	d.ends = d.ends[:0]
	if len(d.kills)+len(d.drained) > 0 {
		clear(d.kills)
		clear(d.drained)
		d.kills, d.drained = d.kills[:0], d.drained[:0]
	}
}
