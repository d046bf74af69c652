package query

import (
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Feedback is what an app has learned about one answer.
type Feedback struct {
	// Of is a query of this request with the input that was predicted. If it is nil QueryID names the answered query.
	Of      *Query
	QueryID uint64
	// Verdict says how good the answer was.
	Verdict Verdict
	// Label is the right output, all outputs of the signature or the one of Function.Label alone, and LabelText its text as sent, which goes to models that learn by themselves and to the
	// inference log.
	Label     []api.Value
	LabelText []byte
	// Loss is from 0 (right) to 1 (wrong).
	Loss float64
	// Context is that of the query. With Of the query is found by its input and its context.
	Context []byte
}

// Verdict is the kind of a Feedback.
type Verdict uint8

// The verdicts.
const (
	VerdictLabel   Verdict = iota // Label has the right output
	VerdictCorrect                // the answer was right or wrong: Loss is 0 or 1
	VerdictLoss                   // Loss says how wrong the answer was
)

// Outcome is the result of a Feedback.
type Outcome uint8

// The outcomes.
const (
	Counted        Outcome = iota
	CountedInPart          // the policy needed an input or predictions that are no longer remembered
	Pending                // models are being queried; it is counted when they have answered
	Duplicate              // the query already has feedback
	NothingToLearn         // no model made the prediction that the feedback is about
	TooLate                // the query is no longer remembered
	UnknownQuery           // there was no such query
	Busy                   // too much feedback waits for predictions
)

var outcomes = [...]struct {
	name, reason string
	code         api.Code
}{
	Counted:        {"counted", "", api.OK},
	CountedInPart:  {"counted_in_part", "the query's input or its predictions are no longer remembered: only the losses count (`xebec serve --feedback-memory`)", api.OK},
	Pending:        {"pending", "", api.OK},
	Duplicate:      {"duplicate", "the query has had its feedback: it counts once", api.OK},
	NothingToLearn: {"nothing_to_learn", "no model has made a prediction that this says anything of", api.OK},
	TooLate:        {"late", "the query was answered too long ago: only the last ones can be joined with feedback (`xebec serve --feedback-window`)", api.Gone},
	UnknownQuery:   {"unknown", "no such query of this function: expected a query_id that this gateway has answered, or an input that was predicted lately", api.NotFound},
	Busy:           {"busy", "too much feedback waits for predictions of its inputs: come again later, or send query_id instead of input", api.Overloaded},
}

// String returns the outcome's name.
func (o Outcome) String() string { return outcomes[o].name }

// Reason says why feedback was not counted; empty if it was or will be.
func (o Outcome) Reason() string { return outcomes[o].reason }

// Code is the code of a request whose only feedback has this outcome.
func (o Outcome) Code() api.Code { return outcomes[o].code }

// feedbackDeadline is the minimum time for models that are queried for feedback. No caller waits for them.
const feedbackDeadline = api.Nanos(time.Second) //xebec:limit time for models that are asked because of feedback, or the `slo` if that is longer

// AskFeedback addresses the function that feedback is about. Next begins a query for each input in the feedback, Learn
// takes the feedback, and Drop ends the request, which is never submitted.
func (r *Request) AskFeedback(function string) error {
	fn, err := r.path.FindFunction(function)
	if err != nil {
		return err
	}
	r.fn, r.model = fn, fn.Candidates[0].Model
	return nil
}

// Learn joins a feedback with the query that it is about. The policy and the models learn from it, and the inference log
// gets it.
func (r *Request) Learn(f *Feedback) Outcome {
	fn := r.fn
	if r.feedback == nil {
		r.feedback = new(joinedFeedback)
	}
	outcome := r.joinFeedback(fn, f)
	fn.countFeedback(outcome)
	if fn.Log != nil && (outcome == Counted || outcome == CountedInPart) {
		fn.logFeedback(r.feedback.joined.id, f)
	}
	return outcome
}

// joinedFeedback is the memory that joining needs.
type joinedFeedback struct {
	joined  joined
	numbers [3][]float64 // a prediction, the label, and the predictions' mean
}

func (r *Request) joinFeedback(fn *Function, f *Feedback) Outcome {
	p, j := r.path, &r.feedback.joined
	var got found
	switch {
	case f.Of == nil:
		got = p.takeAny(f.QueryID, fn, j)
	case !fn.joinsByInput():
		return p.askForFeedback(fn, f)
	default:
		r.keepContext(f.Context, nil)
		f.Of.keyed = [2]bool{}
		got = p.joins.takeByInput(f.Of.key(true), fn, j)
	}
	switch got {
	case foundUsed:
		return Duplicate
	case foundLate:
		return TooLate
	case foundUnknown:
		return UnknownQuery
	}
	if f.Of != nil && len(j.inputs) == 0 && fn.keeps().inputs {
		j.inputs = append(j.inputs, f.Of.Inputs...)
		j.missing = j.missing && fn.Needs.Predictions // the input is here
	}
	then := j.fn // the function as it was when the query was answered
	if f.Verdict == VerdictLabel && (then.Label != fn.Label || !sameSpecs(then.Candidates[0].Model.Signature.Outputs, fn.Candidates[0].Model.Signature.Outputs)) {
		return TooLate // the label is for other outputs
	}
	if !then.learn(j, f, &r.feedback.numbers) {
		return NothingToLearn
	}
	if j.missing && then.Needs != (selection.Needs{}) {
		return CountedInPart
	}
	return Counted
}

// sameSpecs reports whether labels of one signature are valid for the other.
func sameSpecs(a, b []api.TensorSpec) bool {
	return slices.EqualFunc(a, b, func(a, b api.TensorSpec) bool { return a.DType == b.DType && slices.Equal(a.Shape, b.Shape) })
}

// joinsByInput functions ask one candidate at random. Feedback by input is for that candidate; querying another one would
// teach something else.
func (fn *Function) joinsByInput() bool { return fn.Selects && fn.Mode == selection.One }

// countFeedback counts an outcome. A pending one is counted when it is known.
func (fn *Function) countFeedback(o Outcome) {
	l := fn.Learning
	switch o {
	case Counted:
		l.Counted.Add(1)
	case CountedInPart:
		l.InPart.Add(1)
	case Duplicate:
		l.Duplicates.Add(1)
	case NothingToLearn:
		l.Nothing.Add(1)
	case TooLate:
		l.TooLate.Add(1)
	case UnknownQuery:
		l.Unknown.Add(1)
	case Busy:
		l.Refused.Add(1)
	}
}

// learning is a request of the path itself that queries models for the predictions that a feedback is about. No caller
// waits for it.
type learning struct {
	Request
	given  Feedback
	labels []api.Value // the memory of given.Label
}

func newLearning(p *Path) *learning {
	l := new(learning)
	l.Init(p, l)
	l.feedback = new(joinedFeedback)
	return l
}

// maxAsking bounds the feedback that waits for predictions.
const maxAsking = 1024 //xebec:limit feedback that waits for predictions

// askForFeedback queries every candidate with the input, and joins the predictions with the feedback when they have
// arrived.
func (p *Path) askForFeedback(fn *Function, f *Feedback) Outcome {
	if p.asking.Add(1) > maxAsking {
		p.asking.Add(-1)
		return Busy
	}
	l := p.learnings.Get().(*learning)
	l.Open()
	l.askFunction(fn)
	l.learning, l.stats, l.refused, l.minConfidence = true, nil, false, 0
	l.slo = max(l.slo, feedbackDeadline)
	if _, err := l.Next(); err != nil {
		panic(err) // a single query is never too many
	}
	l.first.Inputs, f.Of.Inputs = f.Of.Inputs, l.first.Inputs
	l.keepContext(f.Context, nil)
	l.take(f)
	l.Delivered()
	l.Submit()
	return Pending
}

// take copies a feedback, because its request ends before the predictions arrive.
func (l *learning) take(f *Feedback) {
	to := &l.given
	to.Verdict, to.Loss = f.Verdict, f.Loss
	to.LabelText = append(to.LabelText[:0], f.LabelText...)
	for len(l.labels) < len(f.Label) {
		l.labels = append(l.labels, api.Value{})
	}
	to.Label = l.labels[:len(f.Label)]
	for i := range f.Label {
		copyValue(&to.Label[i], &f.Label[i])
	}
}

// Settled joins the predictions with the feedback.
func (l *learning) Settled() api.Code {
	fn, q, j := l.fn, l.queries[0], &l.feedback.joined
	j.past = past{}
	j.context, j.inputs, j.predictions = l.context, q.Inputs, j.predictions[:0]
	j.versions = j.versions[:0] // past is empty: it asks the candidates
	j.ruled, j.other, j.ruleP = l.rules.ruled&q.asked, l.rules.other&q.asked, l.rules.p
	for _, m := range q.members {
		j.asked, j.p[m.candidate] = j.asked.With(m.candidate), 1
		if m.evaluated {
			fn.Learning.ModelsAsked.Add(1)
		}
		if m.code != api.OK {
			continue
		}
		j.arrived = j.arrived.With(m.candidate)
		if fn.Needs.Predictions {
			j.predictions = append(j.predictions, m.prediction(fn))
		}
		outputs := fn.judged(m.Result().Outputs)
		j.class[m.candidate], j.data[m.candidate] = outputClass(outputs), outputs[0].Data
	}
	if l.given.Verdict != VerdictLabel && j.arrived != 0 {
		q.wouldAnswer(fn, j)
	}
	if fn.learn(j, &l.given, &l.feedback.numbers) {
		fn.Learning.Counted.Add(1)
	} else {
		fn.Learning.Nothing.Add(1)
	}
	clear(j.data[:])
	clear(j.predictions)
	j.inputs, j.context = nil, nil
	l.path.asking.Add(-1)
	return api.OK
}

// Deliver has nothing to deliver.
func (l *learning) Deliver() {}

// Released returns the request to its pool.
func (l *learning) Released() { l.path.learnings.Put(l) }

// wouldAnswer determines the candidates whose prediction would have been the answer, if any.
func (q *Query) wouldAnswer(fn *Function, j *joined) {
	j.agreed, j.given = j.arrived, true
	if fn.Selects {
		q.combine(fn)
		j.agreed, j.given = q.agreed, !(q.Confidence < fn.MinConfidence)
	}
}
