package query

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// outcome is what became of one feedback.
type outcome uint8

const (
	counted   outcome = iota
	pending           // models are being asked; it is counted when they have answered
	duplicate         // the query has had its feedback
	nothing           // no model made a prediction that this says anything of
	late              // the query is forgotten
	unknown           // there was no such query
	busy              // too much feedback waits for predictions
)

// outcomes has for each its name, and for people why it was not counted; code is that of a request with one feedback.
var outcomes = [...]struct {
	status, cause string
	http          int
	code          api.Code
}{
	counted:   {"counted", "", 200, api.OK},
	pending:   {"pending", "", 202, api.OK},
	duplicate: {"duplicate", "the query has had its feedback: it counts once", 200, api.OK},
	nothing:   {"nothing_to_learn", "no model has made a prediction that this says anything of", 200, api.OK},
	late:      {"late", "the query was answered too long ago: only the last ones can be joined with feedback (`xebec serve --feedback-window`)", 410, api.Gone},
	unknown:   {"unknown", "no such query of this function: expected a query_id that this gateway has answered, or an input that was predicted lately", 404, api.NotFound},
	busy:      {"busy", "too much feedback waits for predictions of its inputs: come again later, or send query_id instead of input", 503, api.Overloaded},
}

// learnWithin is how long models that are asked for the sake of feedback may take at least; nobody waits for them.
const learnWithin = api.Nanos(time.Second)

// feedbackCall is a request of feedback, with its memory.
type feedbackCall struct {
	parsed  tensorjson.Feedback
	joined  joined
	labels  []api.Value
	numbers [2][]float64
	out     []byte
}

var feedbackCalls = sync.Pool{New: func() any { return new(feedbackCall) }}

// feedback takes a body of feedback and renders the answer to it.
func (g *Path) feedback(fn *Function, inputs *call, body, contextHeader []byte, f *feedbackCall) (status int, err error) {
	outputs := fn.Candidates[0].Model.Signature.Outputs
	inputs.model = fn.Candidates[0].Model
	if err := f.parsed.Parse(body, inputs.model.Signature.Inputs, inputs, g.cfg.MaxBatch); err != nil {
		return 0, err
	}
	for len(f.labels) < len(outputs) {
		f.labels = append(f.labels, api.Value{})
	}
	labels := f.labels[:len(outputs)]
	for i := range f.parsed.Items { // all are judged before any is counted
		item := &f.parsed.Items[i]
		if len(item.Context) == 0 {
			item.Context = contextHeader
		}
		if len(item.Context) > MaxContextBytes {
			return 0, api.Errorf(api.InvalidArgument, "the context has %d bytes: expected at most %d", len(item.Context), MaxContextBytes)
		}
		if item.Has&tensorjson.FeedbackLabel != 0 {
			if err := f.parsed.ParseLabel(i, outputs, labels); err != nil {
				return 0, err
			}
		}
	}
	f.out = f.out[:0]
	if f.parsed.Batch {
		f.out = append(f.out, `{"feedback_results":[`...)
	}
	for i := range f.parsed.Items {
		item := &f.parsed.Items[i]
		l := lesson{text: item.Label, loss: item.Loss, kind: told, context: item.Context}
		switch {
		case item.Has&tensorjson.FeedbackLabel != 0:
			if err := f.parsed.ParseLabel(i, outputs, labels); err != nil {
				return 0, err
			}
			l.kind, l.label = labelled, labels
		case item.Has&tensorjson.FeedbackCorrect != 0:
			l.kind, l.loss = judged, zeroOne(item.Correct)
		}
		became := g.learn(fn, item, inputs, &l, f)
		fn.count(became)
		if fn.Log != nil && became == counted {
			fn.log(f.joined.id, &l)
		}
		if !f.parsed.Batch {
			return f.answer(became)
		}
		if i > 0 {
			f.out = append(f.out, ',')
		}
		f.out = append(appendOutcome(f.out, item, became), '}')
	}
	f.out = append(f.out, `]}`...)
	return 200, nil
}

// answer renders the outcome of a single feedback.
func (f *feedbackCall) answer(became outcome) (status int, err error) {
	o := &outcomes[became]
	if o.code != api.OK {
		return 0, api.Errorf(o.code, "%s", o.cause)
	}
	f.out = append(appendOutcome(f.out, &f.parsed.Items[0], became), '}')
	return o.http, nil
}

func appendOutcome(out []byte, fb *tensorjson.FeedbackItem, became outcome) []byte {
	out = append(out, '{')
	if fb.Has&tensorjson.FeedbackQueryID != 0 {
		out = append(out, `"query_id":`...)
		out = strconv.AppendUint(out, fb.QueryID, 10)
		out = append(out, ',')
	}
	out = append(out, `"status":"`...)
	out = append(out, outcomes[became].status...)
	out = append(out, '"')
	if cause := outcomes[became].cause; cause != "" {
		out = append(out, `,"cause":`...)
		out = tensorjson.AppendString(out, cause)
	}
	return out
}

// count counts what became of a feedback; what is pending is counted when it is known.
func (fn *Function) count(became outcome) {
	l := fn.Learning
	switch became {
	case counted:
		l.Counted.Add(1)
	case duplicate:
		l.Duplicates.Add(1)
	case nothing:
		l.Nothing.Add(1)
	case late:
		l.TooLate.Add(1)
	case unknown:
		l.Unknown.Add(1)
	case busy:
		l.Refused.Add(1)
	}
}

// learn joins one feedback with the query that it is about.
func (g *Path) learn(fn *Function, fb *tensorjson.FeedbackItem, inputs *call, l *lesson, f *feedbackCall) outcome {
	var got found
	var asked *item
	if fb.Has&tensorjson.FeedbackQueryID != 0 {
		got = g.joins.take(fb.QueryID, fn, &f.joined)
	} else {
		asked = inputs.items[fb.Input]
		if !fn.joinsByInput() {
			return g.ask(fn, asked, l)
		}
		inputs.keep(l.context, nil)
		asked.keyed = [2]bool{}
		got = g.joins.takeByInput(asked.keyOf(true), fn, &f.joined)
	}
	switch got {
	case foundUsed:
		return duplicate
	case foundLate:
		return late
	case foundUnknown:
		return unknown
	}
	if asked != nil && len(f.joined.inputs) == 0 && fn.keepInputs() {
		f.joined.inputs = append(f.joined.inputs, asked.inputs...)
	}
	of := f.joined.fn // as it was when the query was answered
	if l.kind == labelled && !sameSpecs(of.Candidates[0].Model.Signature.Outputs, fn.Candidates[0].Model.Signature.Outputs) {
		return late // the label is one of other outputs
	}
	if !of.teach(&f.joined, l, &f.numbers) {
		return nothing
	}
	return counted
}

// sameSpecs reports whether labels of the one are labels of the other.
func sameSpecs(a, b []api.TensorSpec) bool {
	return slices.EqualFunc(a, b, func(a, b api.TensorSpec) bool { return a.DType == b.DType && slices.Equal(a.Shape, b.Shape) })
}

// joinsByInput functions have asked one candidate by chance: feedback is for that one, and asking another would teach something
// else.
func (fn *Function) joinsByInput() bool { return fn.Selects && fn.Mode == selection.One }

// ask has every candidate predict the input, off the caller's path, to join it with the lesson.
func (g *Path) ask(fn *Function, of *item, l *lesson) outcome {
	if g.asking.Add(1) > maxAsking {
		g.asking.Add(-1)
		return busy
	}
	c := g.newCall()
	c.begin(fn, max(api.Nanos(fn.SLO), learnWithin))
	c.refused = false
	if _, err := c.Next(); err != nil {
		panic(err) // one is never too many
	}
	c.items[0].inputs, of.inputs = of.inputs, c.items[0].inputs
	c.keep(l.context, nil)
	c.route()
	c.learning = learnings.Get().(*learning)
	c.learning.take(l)
	c.leave() // nobody waits for it
	c.submit(0)
	return pending
}

// take copies a lesson: the request that it came with ends before it is learned.
func (l *learning) take(from *lesson) {
	l.kind, l.loss = from.kind, from.loss
	l.text = append(l.text[:0], from.text...)
	for len(l.labels) < len(from.label) {
		l.labels = append(l.labels, api.Value{})
	}
	l.label = l.labels[:len(from.label)]
	for i, v := range from.label {
		l.label[i].Data, l.label[i].Dims = append(l.label[i].Data[:0], v.Data...), append(l.label[i].Dims[:0], v.Dims...)
	}
}
