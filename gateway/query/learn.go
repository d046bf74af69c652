package query

import (
	"math"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// A lesson is one feedback: what an app has found out about an answer.
type lesson struct {
	kind    lessonKind
	label   []api.Value // the right output
	text    []byte      // the label as it was sent
	loss    float64     // for told; 0 or 1 for judged
	context []byte
}

type lessonKind uint8

const (
	labelled lessonKind = iota // the right output is known
	judged                     // the answer was right or wrong
	told                       // how wrong the answer was
)

// learning is a call that asks models for predictions that feedback is to be joined with. Nobody waits for it.
type learning struct {
	lesson
	joined  joined
	numbers [2][]float64
	labels  []api.Value // the memory of label
}

var learnings = sync.Pool{New: func() any { return new(learning) }}

// maxAsking bounds the feedback that waits for predictions.
const maxAsking = 1024

// teach joins a lesson with a query: policies learn, and models that want labels get this one. It reports whether anything of it
// says anything of a model.
func (fn *Function) teach(j *joined, l *lesson, scratch *[2][]float64) bool {
	if l.kind == labelled && len(j.inputs) > 0 {
		fn.forward(j.inputs, j.context, l.text)
	}
	var losses [selection.MaxCandidates]float64
	for i := range losses {
		losses[i] = math.NaN()
	}
	known := false
	for rest := j.arrived; rest != 0; rest &= rest - 1 {
		i := rest.First()
		losses[i] = fn.lossOf(j, i, l, scratch)
		if !math.IsNaN(losses[i]) {
			known = true
			fn.Losses[i].Observe(losses[i])
		}
	}
	if !known {
		return false
	}
	for rest := j.ruled; rest != 0; rest &= rest - 1 {
		if i := rest.First(); !math.IsNaN(losses[i]) {
			fn.Candidates[i].Route.Rule.learn(j.other.Has(i), j.ruleP[i], losses[i])
		}
	}
	f := feedbacks.Get().(*feedback)
	f.p, f.losses = j.p, losses
	f.Feedback = selection.Feedback{Selected: j.asked, P: f.p[:], Losses: f.losses[:]}
	fn.Selector.Observe(j.context, &f.Feedback)
	feedbacks.Put(f)
	return true
}

// feedback is what Observe takes, with its memory: it goes through an interface, and would be allocated each time.
type feedback struct {
	selection.Feedback
	p, losses [selection.MaxCandidates]float64
}

var feedbacks = sync.Pool{New: func() any { return new(feedback) }}

// lossOf is what the lesson says of candidate i's prediction; NaN: nothing.
func (fn *Function) lossOf(j *joined, i int, l *lesson, scratch *[2][]float64) float64 {
	switch {
	case l.kind == labelled && fn.Averages == nil:
		return zeroOne(j.class[i] == outputClass(l.label))
	case l.kind == labelled:
		if j.data[i] == nil {
			return math.NaN()
		}
		a := fn.Averages
		for k, data := range [2][]byte{j.data[i], l.label[0].Data} {
			if cap(scratch[k]) < a.width {
				scratch[k] = make([]float64, a.width)
			}
			scratch[k] = scratch[k][:a.width]
			readNumbers(scratch[k], a.dtype, data)
		}
		return fn.Loss.Of(scratch[0], scratch[1])
	case !j.given: // nobody's prediction was judged
		return math.NaN()
	case j.agreed.Has(i):
		return l.loss
	case l.kind == judged && l.loss == 0 && fn.Averages == nil:
		return 1 // the answer was right, and this model gave another one
	}
	return math.NaN()
}

func zeroOne(right bool) float64 {
	if right {
		return 0
	}
	return 1
}

// forward hands a label to the models that learn by themselves.
func (fn *Function) forward(inputs []api.Value, context, label []byte) {
	for i := range fn.Candidates {
		fn.forwardTo(fn.Candidates[i].Model, inputs, context, label)
		if r := fn.Candidates[i].Route; r != nil {
			fn.forwardTo(r.Model, inputs, context, label)
		}
	}
}

func (fn *Function) forwardTo(m *Model, inputs []api.Value, context, label []byte) {
	if m.Teachable.Load() && m.Teach != nil {
		m.Teach(inputs, context, label)
		fn.Learning.Taught.Add(1)
	}
}

// learn is the end of a call that asked for the sake of feedback.
func (c *call) learn() {
	fn, it, l := c.fn, c.items[0], c.learning
	j := &l.joined
	j.past = past{}
	j.context, j.inputs = c.context, it.inputs
	j.ruled, j.other, j.ruleP = c.rules.ruled&it.asked, c.rules.other&it.asked, c.rules.p
	for _, m := range it.members {
		j.asked, j.p[m.candidate] = j.asked.With(m.candidate), 1
		if m.evaluated {
			fn.Learning.Asked.Add(1)
		}
		if m.code != api.OK {
			continue
		}
		j.arrived = j.arrived.With(m.candidate)
		j.class[m.candidate], j.data[m.candidate] = outputClass(m.Result().Outputs), m.Result().Outputs[0].Data
	}
	if l.kind != labelled && j.arrived != 0 {
		it.wouldAnswer(fn, j)
	}
	if fn.teach(j, &l.lesson, &l.numbers) {
		fn.Learning.Counted.Add(1)
	} else {
		fn.Learning.Nothing.Add(1)
	}
	clear(j.data[:])
	j.inputs, j.context = nil, nil
	learnings.Put(l)
	c.g.asking.Add(-1)
}

// wouldAnswer finds whose prediction a caller would have been given, if any.
func (it *item) wouldAnswer(fn *Function, j *joined) {
	j.agreed, j.given = j.arrived, true
	if fn.Selects {
		it.combine(fn)
		j.agreed, j.given = it.agreed, !(it.confidence < fn.MinConfidence)
	}
}
