package query

import (
	"bytes"
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// scratch is the memory that selecting and combining need, kept with the query so that they allocate nothing.
type scratch struct {
	query     selection.Query
	selection selection.Selection
	combining selection.Combination
	limits    [selection.MaxCandidates]float64
	answers   []selection.Answer
	values    []float64 // of each candidate
	out       []float64
	output    [1]api.Value // an averaged answer
	all       []*member    // members of both steps
	peek      cache.Waiter // to look into caches
	// predictions and composed are for policies that see predictions: what they see, and an answer of their own.
	predictions []selection.Prediction
	composed    []api.Value
}

func (q *Query) scratchpad() *scratch {
	if q.scratch == nil {
		q.scratch = new(scratch)
	}
	return q.scratch
}

// combine makes one answer of the members' predictions. It returns true if the policy asks more members first.
func (q *Query) combine(fn *Function) bool {
	if fn.Mode == selection.One && q.asked.Len() == 1 {
		q.takeOnly(fn)
		return false
	}
	s := q.scratch
	c := &s.combining
	*c = selection.Combination{Selected: q.asked, Answers: s.answers[:0], Winner: -1}
	first := api.OK
	for _, m := range q.all() {
		if m.shadow {
			continue
		}
		if m.code != api.OK {
			if first == api.OK {
				first = m.code
			}
			if m.code == api.InvalidInput {
				q.Detail = m.Detail
			}
			continue
		}
		q.arrived = q.arrived.With(m.candidate)
		c.Answers = append(c.Answers, selection.Answer{Candidate: m.candidate, Class: q.class(fn, m), Confidence: m.Result().Confidence})
	}
	s.answers = c.Answers
	if q.arrived == 0 {
		q.Code = first
		fn.countLate(q.asked)
		return false
	}
	if fn.Averages.combines() {
		q.fillValues(fn)
	}
	if fn.Needs.Inputs {
		c.Inputs, c.Context = fn.inputs(q.Inputs), q.request.context
	}
	if fn.Needs.Predictions {
		q.showPredictions(fn)
	}
	fn.Selector.Combine(q.request.context, c)
	if fn.Needs.Predictions {
		q.keepComposed(fn)
	}
	if q.askMore(fn) {
		return true
	}
	if late := q.asked &^ q.arrived; late != 0 {
		fn.countLate(late)
	}
	q.Confidence, q.agreed = c.Confidence, c.Agreed
	switch {
	case c.Winner >= 0:
		q.Outputs = q.member(c.Winner).Result().Outputs
	case len(c.Output) > 0:
		q.Outputs = c.Output
	case fn.Averages.combines():
		v := &s.output[0]
		v.Dims = v.Dims[:0]
		v.Data = fn.Averages.dtype.AppendNumbers(v.Data[:0], c.Out)
		q.Outputs = s.output[:]
	}
	return false
}

// countLate counts candidates whose predictions an answer does without.
func (fn *Function) countLate(late selection.Set) {
	fn.Learning.Late.Add(uint64(late.Len()))
	for ; late != 0; late &= late - 1 {
		fn.Losses[late.First()].Late.Add(1)
	}
}

// takeOnly makes the only candidate's prediction the answer.
func (q *Query) takeOnly(fn *Function) {
	m := q.members[0] // shadows come after it
	if m.code != api.OK {
		if m.code == api.InvalidInput {
			q.Detail = m.Detail
		}
		q.Code = m.code
		fn.countLate(q.asked)
		return
	}
	result := m.Result()
	q.arrived, q.agreed = q.asked, q.asked
	q.Outputs, q.Confidence = result.Outputs, result.Confidence
}

// class returns the index of the first member with the same outputs, as far as they are compared.
func (q *Query) class(fn *Function, m *member) uint64 {
	for i, other := range q.all() {
		if other == m || !other.shadow && other.code == api.OK && sameOutputs(fn.judged(other.Result().Outputs), fn.judged(m.Result().Outputs)) {
			return uint64(i)
		}
	}
	return math.MaxUint64
}

func sameOutputs(a, b []api.Value) bool {
	return slices.EqualFunc(a, b, func(a, b api.Value) bool { return bytes.Equal(a.Data, b.Data) && slices.Equal(a.Dims, b.Dims) })
}

// askMore lets the policy select again, now that the first answers are in.
func (q *Query) askMore(fn *Function) bool {
	s, r := q.scratch, q.request
	if fn.Mode != selection.Several || len(q.second) > 0 || s.query.Allowed == q.asked || q.Code != api.OK {
		return false
	}
	in := &s.query
	in.Asked, in.Answered, in.Confidence = q.asked, q.arrived, s.combining.Confidence
	in.Stated = 0
	for i := range s.combining.Answers {
		if a := &s.combining.Answers[i]; !math.IsNaN(a.Confidence) {
			in.Stated = in.Stated.With(a.Candidate)
		}
	}
	in.Allowed &^= q.asked
	if r.path.cfg.Now() >= q.members[0].Deadline {
		return false
	}
	fn.Selector.Select(r.context, in, &s.selection)
	ask := s.selection.Ask & in.Allowed
	for rest := ask; rest != 0; rest &= rest - 1 {
		if m, _ := r.target(rest.First()); m.Closed.Load() { // it is being unloaded
			ask = ask.Without(rest.First())
		}
	}
	if ask == 0 {
		return false
	}
	q.asked |= ask
	q.arrived = 0
	q.waits = 1
	for rest := ask; rest != 0; rest &= rest - 1 {
		i := rest.First()
		model, queue := r.target(i)
		m := q.ask(&q.second, model, queue, i)
		m.Deadline, m.Expires = q.members[0].Deadline, q.members[0].Expires // those of the query, even if the model's state has changed since
	}
	q.waiting.Store(q.waits)
	s.all = append(append(s.all[:0], q.members...), q.second...)
	for _, m := range q.second {
		m.lookUp()
	}
	for _, m := range q.second {
		if m.evaluated {
			if !m.holds {
				r.refs.Add(1)
			}
			m.submit()
		}
	}
	q.memberEnded()
	return true
}

// fillValues writes the predictions that have arrived, and for the other candidates their running averages.
func (q *Query) fillValues(fn *Function) {
	s, c := q.scratch, &q.scratch.combining
	a := fn.Averages
	n := len(fn.Candidates)
	s.values, s.out = slices.Grow(s.values[:0], n*a.width)[:n*a.width], slices.Grow(s.out[:0], a.width)[:a.width]
	c.Width, c.Values, c.Out, c.Tolerance = a.width, s.values, s.out, math.Float64frombits(a.tolerance.Load())
	for _, m := range q.all() {
		if !m.shadow && m.code == api.OK {
			readNumbers(s.values[m.candidate*a.width:][:a.width], a.dtype, m.Result().Outputs[0].Data)
			c.Known = c.Known.With(m.candidate)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for rest := q.asked; rest != 0; rest &= rest - 1 {
		i := rest.First()
		row := s.values[i*a.width:][:a.width]
		if c.Known.Has(i) {
			if !q.request.outside.Has(i) { // the average is the candidate's
				a.add(i, row)
			}
		} else if a.count[i] > 0 {
			copy(row, a.mean[i*a.width:])
			c.Known = c.Known.With(i)
		}
	}
}
