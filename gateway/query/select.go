package query

import (
	"math/rand/v2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/zeebo/xxh3"
)

// choose decides which models the query asks. If it asks none, its code says why.
func (q *Query) choose() {
	r := q.request
	fn := r.fn
	switch {
	case r.refused:
		q.Code = api.Overloaded
	case r.model.Closed.Load() && (fn == nil || !fn.Selects) && !r.unlisted:
		q.Code = api.NoReplica
	case fn == nil:
		q.asked = 1
		q.ask(&q.members, r.model, r.queue, 0)
	case !fn.Selects:
		if r.model.down() && fn.defaultsAtOnce() {
			r.model.wake()
			q.Code = api.NoReplica
			return
		}
		q.asked = q.asked.With(r.candidate)
		q.ask(&q.members, r.model, r.queue, r.candidate)
	default:
		q.chooseByPolicy(fn)
	}
	if q.Code != api.OK || r.learning {
		return
	}
	if r.stream != nil && len(q.members) == 1 {
		q.members[0].Stream, q.streams = r.stream, true
	}
	if fn != nil {
		q.addShadows(fn)
	}
	if len(r.direct) > 0 || fn != nil && len(fn.Tees) > 0 {
		q.addTees()
	}
}

// chooseByPolicy lets the function's policy choose within what the plan has room for.
func (q *Query) chooseByPolicy(fn *Function) {
	r := q.request
	allowed, ready := r.allowed()
	q.cold = !ready
	if allowed == 0 {
		q.Code = api.NoReplica
		return
	}
	s, refusing := q.scratchpad(), false
	in := &s.query
	*in = selection.Query{Seed: rand.Uint64(), MinConfidence: r.minConfidence}
	if fn.Choice != nil && !r.learning {
		if fn.Mode == selection.Several {
			planned := selection.Set(fn.Choice.Members())
			if planned == 0 || allowed&planned != 0 { // otherwise all candidates of the plan have lost their replicas since
				q.dropped = allowed &^ planned
				allowed &= planned
			}
		} else {
			refusing = fn.Choice.ShouldRefuse()
			in.Limits = fn.Choice.Limits(s.limits[:len(fn.Candidates)])
		}
	}
	in.Allowed = allowed
	if fn.Needs.Inputs {
		in.Inputs, in.Context = fn.inputs(q.Inputs), r.context
	}
	if r.learning && fn.Mode == selection.Several {
		s.selection.Ask = allowed
	} else if allowed != 0 {
		q.wish = s.choose(fn, r.context)
	} else {
		s.selection.Ask = 0
	}
	if refusing {
		s.selection.Ask = 0
		fn.Choice.CountWish(q.wish)
	}
	q.asked = s.selection.Ask
	q.askDroppedIfCached(fn)
	if q.dropped != 0 {
		fn.Learning.Dropped.Add(uint64(q.dropped.Len()))
	}
	if q.asked == 0 {
		q.Code = api.Overloaded
		if fn.Choice != nil {
			fn.Choice.CountRefused(1)
		}
		return
	}
	for rest := q.asked; rest != 0; rest &= rest - 1 {
		i := rest.First()
		model, queue := r.target(i)
		q.ask(&q.members, model, queue, i)
	}
}

// choose lets the policy choose. It also returns the candidate that a policy that asks one would have asked without
// limits, which the next plan needs.
func (s *scratch) choose(fn *Function, context []byte) (wish int) {
	limits := s.query.Limits
	s.query.Limits = nil
	fn.Selector.Select(context, &s.query, &s.selection)
	wish = min(s.selection.Ask.First(), len(fn.Candidates)-1)
	if s.query.Limits = limits; limits != nil {
		fn.Selector.Select(context, &s.query, &s.selection)
	}
	return wish
}

// askDroppedIfCached asks candidates that the plan has no room for, if their predictions are cached and cost nothing.
func (q *Query) askDroppedIfCached(fn *Function) {
	for rest := q.dropped; rest != 0; rest &= rest - 1 {
		i := rest.First()
		m, _ := q.request.target(i)
		contextual := m.Contextual.Load()
		if handle := m.usableCache(); handle != nil && handle.Fetch(q.key(contextual), q.saltFor(contextual), q.Inputs, &q.scratch.peek) {
			q.asked = q.asked.With(i)
			q.dropped = q.dropped.Without(i)
			q.scratch.selection.P[i] = 1
		}
	}
}

// allowed returns the candidates that the request may ask and that have replicas. If there is none, ready is false, and
// it returns the candidates that may get a replica in time.
func (r *Request) allowed() (allowed selection.Set, ready bool) {
	fn, only := r.fn, r.only
	if only == 0 {
		only = selection.All(len(fn.Candidates))
	}
	serving, coming, empty := selection.Set(0), selection.Set(0), selection.Set(0)
	for rest := only; rest != 0; rest &= rest - 1 {
		i := rest.First()
		m, _ := r.target(i)
		if m.Ready.Load() == 0 {
			empty = empty.With(i)
		}
		switch {
		case m.Closed.Load():
		case m.Ready.Load() > 0:
			serving = serving.With(i)
		case !m.Down.Load() || !fn.defaultsAtOnce():
			coming = coming.With(i)
		}
	}
	if serving == 0 {
		empty &^= coming // dispatch wakes those of them that are asked
	}
	for rest := empty; rest != 0; rest &= rest - 1 {
		m, _ := r.target(rest.First())
		m.wake() // for later queries
	}
	if serving == 0 {
		return coming, false
	}
	return serving, true
}

// ask adds a member for one model to the query.
func (q *Query) ask(to *[]*member, model *Model, queue int32, candidate int) *member {
	r := q.request
	m := &q.first
	if len(q.members)+len(q.second) > 0 {
		m = r.path.members.Get().(*member)
	}
	wait, keep := r.slo, r.ttl
	m.cold = model.Ready.Load() == 0
	if m.cold {
		if q.cold {
			cold := model.ColdStart
			switch {
			case r.fn != nil:
				cold = r.fn.coldStart(model)
			case model.Down.Load():
				cold = 0
			}
			wait = max(wait, api.Nanos(cold))
		}
		if model.CacheOn.Load() { // for later identical queries, even if this one gets the default
			keep = max(keep, api.Nanos(DefaultColdStart))
		}
	}
	m.query, m.model, m.candidate, m.shadow, m.arm = q, model, candidate, false, nil
	if r.rules.ruled != 0 || r.arm != nil {
		m.arm = r.armOf(candidate)
	}
	m.code, m.leads, m.retried, m.evaluated, m.holds = api.OK, false, false, false, false
	m.contextual, m.unvetted = model.Contextual.Load(), false
	if m.alarmed.Load() != alarmUnset { // a store costs more, and most members never wait and never move
		m.alarmed.Store(alarmUnset)
	}
	if m.course.Load() != courseOpen {
		m.course.Store(courseOpen)
	}
	m.ID, m.Function, m.Inputs, m.Context = q.ID, queue, q.Inputs, r.context
	m.Stream, m.Parameters, m.Call = nil, r.parameters, r.call
	m.Trial = r.trial
	if m.Sticky = 0; len(r.context) > 0 && model.Sticky.Load() {
		m.Sticky = max(1, xxh3.Hash(r.context))
	}
	m.Arrived, m.Deadline = r.arrived, r.arrived+wait
	if r.until > 0 {
		m.Deadline = min(m.Deadline, r.until)
	}
	m.Expires = max(m.Deadline, r.arrived+keep)
	*to = append(*to, m)
	q.waits++
	return m
}

// addShadows sends a sample of the queries to models that are only compared. The query does not wait for them.
func (q *Query) addShadows(fn *Function) {
	for i := range fn.Shadows {
		sh := &fn.Shadows[i]
		if rand.Float64() >= sh.Part || !sh.Candidate.Model.servesOrWakes() {
			continue
		}
		if sh.Choice != nil {
			sh.Choice.CountArrived(1)
			if sh.Choice.Members()&1 == 0 {
				fn.Learning.ShadowsDropped.Add(1)
				continue
			}
		}
		q.ask(&q.members, sh.Candidate.Model, sh.Candidate.Queue, len(fn.Candidates)+i).shadow = true
		q.waits--
	}
}

// compareShadows counts how often shadows give the same answer.
func (q *Query) compareShadows(fn *Function) {
	for _, m := range q.members {
		switch {
		case !m.shadow || m.candidate >= len(fn.Candidates)+len(fn.Shadows):
		case m.code != api.OK:
			fn.Learning.ShadowsFailed.Add(1)
		case q.arrived == 0: // there is nothing to compare with
		case fn.same(q.Outputs, m.Result().Outputs):
			fn.Learning.ShadowsSame.Add(1)
		default:
			fn.Learning.ShadowsDifferent.Add(1)
		}
	}
}

// tellPlan reports to the next plan which candidates the policy wished for, except for cached predictions.
func (r *Request) tellPlan(needLane int) {
	fn := r.fn
	if needLane == 0 || fn == nil || !fn.Selects || fn.Choice == nil {
		return
	}
	if fn.Mode == selection.Several {
		fn.Choice.CountArrived(needLane)
		return
	}
	for _, q := range r.queries {
		if len(q.members) > 0 && q.members[0].evaluated {
			fn.Choice.CountWish(q.wish)
		}
	}
}
