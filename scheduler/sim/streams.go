package sim

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// maxStreamNanos bounds a stream, so that a world ends.
const maxStreamNanos = 10e9

// StreamSpec describes the streams of a model with Config.Streams. The first output takes as long as a batch of one.
type StreamSpec struct {
	// Places is how many streams each replica holds; 0: one.
	Places int
	// LengthNanos is the mean time from the first output to the end, Sigma the standard deviation of its logarithm.
	LengthNanos int64
	Sigma       float64
	// SinglePart is the part of the streams whose first output is the last, LeavePart that of those whose caller leaves
	// at some time before their end.
	SinglePart, LeavePart float64
	// SilenceNanos is after what silence the transport ends a replica that hangs in the middle of a stream.
	SilenceNanos int64
}

// places is how many streams a replica holds.
func (s *StreamSpec) places() int { return max(1, s.Places) }

// length draws the time from a stream's first output to its end.
func (s *StreamSpec) length(p *place) api.Nanos {
	nanos := float64(s.LengthNanos)
	if s.Sigma > 0 {
		nanos *= math.Exp(s.Sigma*p.rng.NormFloat64() - s.Sigma*s.Sigma/2)
	}
	return api.Nanos(min(nanos, maxStreamNanos))
}

// streamFlight is the state of an outstanding batch that is a stream.
type streamFlight struct {
	of      *replica // that has the stream; nil: the batch is none
	flows   bool     // it has had its first output
	leaving bool     // its caller has left, and its end is on the way
}

// runStream schedules what becomes of a stream: it runs beside the replica's others. It may fail before its first output
// or at its end.
func (w *world) runStream(m *model, r *replica, fl *flight) {
	s, p := &m.spec.Stream, r.place
	fl.of = r
	first := fl.begin + p.evaluate(fl.begin, 1)
	fl.end = first + s.length(p)
	single := s.SinglePart > 0 && p.rng.Float64() < s.SinglePart
	if w.spec.FailPart > 0 && w.rng.Float64() < w.spec.FailPart {
		fl.code, single = api.ModelError, w.rng.IntN(2) == 0
	}
	if single {
		fl.end = first
	} else {
		w.events.push(event{at: first + handNanos, kind: firstSeen, r: r, b: fl.id})
	}
	if s.LeavePart > 0 && p.rng.Float64() < s.LeavePart {
		w.events.push(event{at: w.now + api.Nanos(p.rng.Int64N(int64(fl.end-w.now))), kind: callerLeavesStream, r: r, b: fl.id})
	}
	r.flights = append(r.flights, fl)
	w.result.busy(fl.begin, fl.end, 1)
	if m.device != nil {
		m.device.freeAt[m.index] = max(m.device.freeAt[m.index], first)
	}
	w.events.push(event{at: fl.end + handNanos, kind: answerSeen, r: r, b: fl.id})
}

// find is an outstanding batch of a replica whose answers are still seen; nil: there is none.
func (r *replica) find(batch uint64) *flight {
	i := slices.IndexFunc(r.flights, func(fl *flight) bool { return fl.id == batch })
	if i < 0 || r.died || r.hung {
		return nil
	}
	return r.flights[i]
}

// firstSeen reports the first output of a stream.
func (w *world) firstSeen(r *replica, batch uint64) {
	fl := r.find(batch)
	if fl == nil {
		return
	}
	fl.flows, fl.alone = true, false
	q := fl.queries[0]
	q.flowed, q.answer = true, &q.Query
	w.step(r.model, &Input{Kind: FirstOutput, Replica: r.id, Result: api.BatchResult{ID: batch, EvalNanos: int64(w.now - fl.sentAt)}})
}

// leaveStream ends a stream whose caller has left, as soon as the replica has heard of it. Without a first output it ends
// as cancelled.
func (w *world) leaveStream(fl *flight) {
	if fl == nil || fl.of == nil || fl.leaving || fl.of.find(fl.id) == nil {
		return
	}
	fl.leaving = true
	w.events.push(event{at: w.now + 2*handNanos, kind: answerSeen, r: fl.of, b: fl.id})
}

// streamCode is the code that a stream ends with.
func (fl *flight) streamCode() api.Code {
	switch {
	case fl.leaving && fl.flows:
		return api.OK
	case fl.leaving:
		return api.Cancelled
	}
	return fl.code
}

// watchStreams lets the transport end a replica that hangs in the middle of a stream. The engine watches only for first
// outputs.
func (w *world) watchStreams(r *replica) {
	if slices.ContainsFunc(r.flights, func(fl *flight) bool { return fl.flows }) {
		w.events.push(event{at: w.now + api.Nanos(r.model.spec.Stream.SilenceNanos), kind: streamsSilent, r: r})
	}
}

// checkStreams: a stream that has had its first output is answered. That each has a batch and a place of its own until
// it is released is checked with the batches.
func (w *world) checkStreams(m *model) {
	for _, p := range m.places {
		if p.current == nil {
			continue
		}
		for _, fl := range p.current.flights {
			if fl.flows && !fl.queries[0].answered {
				w.fail("m%d: query %d has had its first output, and has no answer", m.index, fl.queries[0].ID)
			}
		}
	}
}

// beginsAnother reports whether a replica would begin one of the waiting queries at once: it is idle, or has a place for
// another stream and no query that has to be alone. While one waits to be alone, the replica with the fewest streams is
// kept for it.
func (m *model) beginsAnother(now api.Nanos, r *replica) bool {
	n, b := len(r.flights), &m.ledger
	if n == 0 {
		return b.retrying > 0 || m.isQuickEnough(now, r.id)
	}
	if !m.spec.Config.Streams || n >= r.depth || r.flights[n-1].alone || b.waiting == b.retrying || !m.isQuickEnough(now, r.id) {
		return false
	}
	return b.retrying == 0 || slices.ContainsFunc(m.places, func(p *place) bool {
		o := p.current
		return o != nil && !o.killed && !o.draining && len(o.flights) < n
	})
}
