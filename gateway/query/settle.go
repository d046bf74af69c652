package query

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Answered is called by the lane. Queries that wait for the same prediction get it now, because the release may come
// later, if a late replica still has the query.
func (m *member) Answered(_ *scheduler.Item, code api.Code) {
	m.end(code)
	if m.leads && code == api.OK {
		m.fill()
	}
}

// Released is called by the lane: the outputs no longer change. Queries that wait for the same prediction get it, even if
// it is too late for this one.
func (m *member) Released(_ *scheduler.Item, final api.Code) {
	switch {
	case m.unvetted && final == api.OK:
		m.keep()
	case !m.leads:
	case final == api.OK:
		m.fill()
	default:
		m.leads = false
		m.wait.Detail = m.Detail
		m.wait.Fail(final)
	}
	if m.shadow {
		m.code = final
	}
	if s := m.Stream; s != nil {
		m.Stream = nil
		s.End(final, m.Detail)
	}
	m.query.request.Release()
}

// end records the member's result for its query.
func (m *member) end(code api.Code) {
	if code == api.DeadlineExceeded && (m.cold || m.query.request.starting.nanos.Load() > 0) {
		code = api.NoReplica // the start was too slow, not the model
	}
	m.code = code
	r := m.query.request
	if r.fn != nil && r.fn.Needs.Predictions {
		m.took = r.path.cfg.Now() - r.arrived
	}
	if m.arm != nil {
		m.arm.observe(code, m.evaluated, r.path.cfg.Now()-r.arrived)
	}
	if w := m.model.Drift.Load(); w != nil && code == api.OK {
		m.watchDrift(w)
	}
	if recent := m.model.Recent.Load(); recent != nil && code == api.OK {
		m.offerRecent(recent)
	}
	if !m.shadow {
		m.query.memberEnded()
	}
}

// memberEnded decrements the count of things that the query waits for; the last one settles the query.
func (q *Query) memberEnded() {
	if q.waiting.Add(-1) == 0 {
		q.settle()
	}
}

// settle makes the query's result from its members' predictions, or asks more members.
func (q *Query) settle() {
	r := q.request
	switch fn := r.fn; {
	case len(q.members) == 0: // no model could be asked, and the code says why
	case r.learning: // feedback uses the members' predictions itself
	case fn != nil && fn.Selects:
		if q.combine(fn) {
			return
		}
	default:
		m := q.members[0]
		switch q.Code = m.code; m.code {
		case api.OK: // otherwise the outputs may still be written
			result := m.Result()
			q.Outputs, q.Confidence = result.Outputs, result.Confidence
			q.arrived, q.agreed = q.asked, q.asked
		case api.InvalidInput:
			q.Detail = m.Detail
		}
	}
	if q.Code == api.OK && q.Confidence < r.minConfidence {
		q.Code = api.LowConfidence
	}
	if r.fn != nil && !r.learning {
		r.path.joins.put(q)
	}
	r.queryEnded()
}

// queryEnded counts one query, or the submission of all, as ended. The last one finishes the request.
func (r *Request) queryEnded() {
	if r.pending.Add(-1) == 0 {
		r.finish()
	}
}

// finish makes the owner answer. It runs on the goroutine that ended the last query.
func (r *Request) finish() {
	code := r.owner.Settled()
	if r.stats != nil {
		took := r.path.cfg.Now() - r.arrived
		if r.fn != nil {
			r.stats.ObserveSLO(code, len(r.queries), took, r.slo)
		} else {
			r.stats.Observe(code, len(r.queries), took) // models have no latency objective
		}
		if r.fn != nil && r.fn.Log != nil {
			r.log(took)
		}
	}
	r.owner.Deliver()
	r.Release()
}
