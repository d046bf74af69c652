package query

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// What policies see of queries, beyond their state. Everything here is a view: the path keeps the memory, and policies do not keep
// their arguments.

// inputs are a query's inputs as policies see them.
func (fn *Function) inputs(values []api.Value) selection.Tensors {
	return selection.Tensors{Specs: fn.Candidates[0].Model.Signature.Inputs, Values: values}
}

// outputs are a prediction as policies see it.
func (fn *Function) outputs(values []api.Value) selection.Tensors {
	return selection.Tensors{Specs: fn.Candidates[0].Model.Signature.Outputs, Values: values}
}

// judgedOutput is the index of the output that labels are about, or -1 for all of several.
func (fn *Function) judgedOutput() int {
	if fn.Label == 0 && len(fn.Candidates[0].Model.Signature.Outputs) > 1 {
		return -1
	}
	return max(0, fn.Label-1)
}

// label is a label as policies see it.
func (fn *Function) label(values []api.Value) selection.Tensors {
	specs := fn.Candidates[0].Model.Signature.Outputs
	if i := fn.judgedOutput(); i >= 0 && i < len(specs) {
		specs = specs[i : i+1]
	}
	return selection.Tensors{Specs: specs, Values: values}
}

// prediction is what the policy sees of a member that has answered.
func (m *member) prediction(fn *Function) selection.Prediction {
	result := m.Result()
	return selection.Prediction{Candidate: m.candidate, Outputs: fn.outputs(result.Outputs), Confidence: result.Confidence, LatencyNanos: int64(m.took)}
}

// showPredictions gives the combination what policies with Needs.Predictions see.
func (q *Query) showPredictions(fn *Function) {
	s := q.scratch
	s.predictions = s.predictions[:0]
	for _, m := range q.all() {
		if !m.shadow && m.code == api.OK {
			s.predictions = append(s.predictions, m.prediction(fn))
		}
	}
	s.combining.Predictions, s.combining.Judged, s.combining.Output = s.predictions, fn.judgedOutput(), s.composed[:0]
}

// keepComposed keeps the memory of an answer that the policy has composed. If that does not fit the signature, which is a mistake of
// the policy, the first prediction is the answer.
func (q *Query) keepComposed(fn *Function) {
	s := q.scratch
	c := &s.combining
	clear(s.predictions) // the members' memory is not kept
	if c.Predictions = nil; c.Winner >= 0 || len(c.Output) == 0 {
		c.Output = nil
		return
	}
	s.composed = c.Output
	specs := fn.Candidates[0].Model.Signature.Outputs
	valid := len(c.Output) == len(specs)
	for i := 0; valid && i < len(specs); i++ {
		valid = specs[i].Check(&c.Output[i]) == nil
	}
	if !valid {
		c.Output, c.Winner, c.Confidence = nil, q.arrived.First(), 0
		c.Agreed = selection.Set(0).With(c.Winner)
	}
}

// show gives feedback what the policy needs.
func (fn *Function) show(to *selection.Feedback, j *joined, f *Feedback) {
	to.Judged, to.Missing = fn.judgedOutput(), j.missing
	if fn.Needs.Inputs {
		to.Inputs, to.Context = fn.inputs(j.inputs), j.context
	}
	if fn.Needs.Predictions {
		to.Predictions = j.predictions
	}
	if fn.Needs.Labels && f.Verdict == VerdictLabel {
		to.Label = fn.label(f.Label)
	}
}
