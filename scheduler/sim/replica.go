package sim

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// place is where the replicas of a model run, one after the other.
type place struct {
	spec        *ReplicaSpec
	model       *model
	rng         *rand.Rand
	current     *replica
	stallAt     api.Nanos // the next pause
	scaledPlace           // of a model that is scaled
}

// replica is one process.
type replica struct {
	id       scheduler.ReplicaID
	model    *model
	place    *place
	depth    int
	flights  []*flight
	freeAt   api.Nanos
	hung     bool
	killed   bool // by the engine
	draining bool
	died     bool
	diedAt   api.Nanos
}

// flight is an outstanding batch.
type flight struct {
	id         uint64
	queries    []*query
	sentAt     api.Nanos
	begin, end api.Nanos
	code       api.Code
	alone      bool
	hedge      bool // its queries are in another batch too
	streamFlight
}

func (w *world) replicaUp(p *place) {
	m := p.model
	if m.scaling != nil && !w.hasStarted(p) {
		return
	}
	w.lastID++
	r := &replica{id: w.lastID, model: m, place: p, depth: p.spec.Depth}
	if r.depth == 0 {
		r.depth = scheduler.New(m.spec.Config).Config().Depth
	}
	p.current = r
	in := &Input{Kind: ReplicaReady, Replica: r.id, Depth: p.spec.Depth}
	if m.spec.Config.Streams {
		r.depth = m.spec.Stream.places()
		in.Places = r.depth
	}
	w.step(m, in)
}

// injectFault applies a fault to the replica that is at the place now, if there is one.
func (w *world) injectFault(m *model, p *place, f *Fault) {
	if p == nil || p.current == nil || p.current.died {
		return
	}
	r := p.current
	switch f.Kind {
	case Crash:
		w.die(r)
	case Hang:
		if r.hung = true; m.spec.Config.Streams {
			w.watchStreams(r)
		}
	case Drain:
		if !r.draining {
			r.draining = true
			w.step(m, &Input{Kind: ReplicaDrain, Replica: r.id})
		}
	}
}

func (w *world) die(r *replica) {
	if !r.died {
		r.died, r.diedAt = true, w.now
		w.events.push(event{at: w.now + deathNanos, kind: deathSeen, r: r})
	}
}

func (w *world) deathSeen(r *replica) {
	m := r.model
	flights := r.flights
	r.flights = nil
	begunBy := map[uint64]bool{}
	for _, fl := range flights {
		begun := fl.begin <= r.diedAt
		begunBy[fl.id] = begun
		how := notBegun
		if begun {
			how = lost
		}
		m.batchEnded(fl, how)
	}
	r.place.current = nil
	if r.place.leaving {
		m.scaling.vacate(w, r.place)
	} else {
		w.start(r.place)
	}
	w.step(m, &Input{Kind: ReplicaGone, Replica: r.id, Begun: func(batch uint64) bool { return begunBy[batch] }})
}

// start schedules the start of the place's next replica.
func (w *world) start(p *place) {
	nanos := p.spec.StartNanos
	if p.model.scaling != nil {
		p.beganAt, nanos = w.now, p.startNanos()
	}
	w.events.push(event{at: w.now + api.Nanos(max(nanos, 1)), kind: replicaUp, p: p})
}

func (w *world) kill(m *model, id scheduler.ReplicaID) {
	r := m.find(id)
	if r == nil || r.killed {
		w.fail("m%d kills replica %d, which is gone or was killed before", m.index, id)
		return
	}
	r.killed = true
	w.die(r)
}

func (w *world) drained(m *model, id scheduler.ReplicaID) {
	r := m.find(id)
	if r == nil {
		return // it died before
	}
	if !r.draining || len(r.flights) > 0 {
		w.fail("m%d reports replica %d as drained: draining %v, %d batches outstanding", m.index, id, r.draining, len(r.flights))
		return
	}
	w.die(r)
}

func (m *model) find(id scheduler.ReplicaID) *replica {
	for _, p := range m.places {
		if p.current != nil && p.current.id == id {
			return p.current
		}
	}
	return nil
}

var errBroken = errors.New("the transport is broken")

// dispatch hands a batch to its replica and schedules its answer.
func (w *world) dispatch(m *model, d *scheduler.Dispatch) {
	r := m.find(d.Replica)
	fl := w.checkDispatch(m, r, d)
	if fl == nil {
		return
	}
	m.ledger.idleSince = api.Never // a hold starts over with the queries that wait now
	if w.spec.RefusePart > 0 && w.rng.Float64() < w.spec.RefusePart {
		r.flights = append(r.flights, fl)
		m.failures = append(m.failures, failure{r, fl.id})
		return
	}
	fl.sentAt = w.now
	fl.begin = max(w.now+handNanos, r.freeAt)
	if m.device != nil { // a device runs the tenants' batches one after the other
		for other, at := range m.device.freeAt {
			if other != m.index {
				fl.begin = max(fl.begin, at)
			}
		}
	}
	if m.spec.Config.Streams {
		w.runStream(m, r, fl)
		return
	}
	eval := r.place.evaluate(fl.begin, len(fl.queries)+d.Batch.Pad)
	fl.end = fl.begin + eval
	r.freeAt = fl.end
	if m.device != nil {
		m.device.freeAt[m.index] = max(m.device.freeAt[m.index], fl.end)
	}
	if w.spec.FailPart > 0 && w.rng.Float64() < w.spec.FailPart {
		fl.code = api.ModelError
	}
	r.flights = append(r.flights, fl)
	w.result.busy(fl.begin, fl.end, len(fl.queries))
	w.events.push(event{at: fl.end + handNanos, kind: answerSeen, r: r, b: fl.id})
}

// failure is a batch that the transport did not take.
type failure struct {
	r     *replica
	batch uint64
}

func (w *world) sendFailed(m *model, f failure) {
	i := slices.IndexFunc(f.r.flights, func(fl *flight) bool { return fl.id == f.batch })
	m.batchEnded(f.r.flights[i], notBegun)
	f.r.flights = slices.Delete(f.r.flights, i, i+1)
	err := errBroken
	if w.rng.IntN(2) == 0 {
		err = api.Errorf(api.TooLarge, "the batch does not fit")
	}
	w.step(m, &Input{Kind: SendFailed, Replica: f.r.id, Result: api.BatchResult{ID: f.batch}, Err: err})
}

func (w *world) answerSeen(r *replica, batch uint64) {
	fl := r.find(batch)
	if fl == nil {
		return
	}
	r.flights = slices.DeleteFunc(r.flights, func(o *flight) bool { return o == fl })
	fl.code = fl.streamCode()
	r.model.batchEnded(fl, evaluated)
	w.step(r.model, &Input{Kind: BatchDone, Replica: r.id,
		Result: api.BatchResult{ID: fl.id, Code: fl.code, EvalNanos: int64(w.now - fl.sentAt), WorkNanos: int64(fl.end - fl.begin)}})
}

// evaluate is how long a batch of n that begins at the given time takes.
func (p *place) evaluate(at api.Nanos, n int) api.Nanos {
	s := p.spec
	nanos := float64(s.FixedNanos + int64(n)*s.EachNanos)
	if s.Sigma > 0 {
		nanos *= math.Exp(s.Sigma*p.rng.NormFloat64() - s.Sigma*s.Sigma/2)
	}
	for i := range s.Faults {
		if f := &s.Faults[i]; f.Kind == Slow && int64(at) >= f.AtNanos && int64(at) < f.AtNanos+f.ForNanos {
			nanos *= f.Factor
		}
	}
	if s.StallEvery > 0 {
		if p.stallAt == 0 {
			p.stallAt = api.Nanos(p.rng.ExpFloat64() * float64(s.StallEvery))
		}
		if p.stallAt <= at+api.Nanos(nanos) { // a pause falls into it, or fell into the idle time before, unnoticed
			if p.stallAt >= at {
				nanos += float64(s.StallNanos)
			}
			p.stallAt = at + api.Nanos(nanos+p.rng.ExpFloat64()*float64(s.StallEvery))
		}
	}
	return max(1, api.Nanos(nanos))
}
