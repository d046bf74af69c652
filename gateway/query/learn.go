package query

import (
	"math"
	"slices"
	"sync"

	"github.com/xebec-serving/xebec/gateway/selection"
)

// learn teaches policies, rules and models what a feedback says about a query's predictions. It reports whether any of
// them learned.
func (fn *Function) learn(j *joined, f *Feedback, numbers *[3][]float64) bool {
	if f.Verdict == VerdictLabel && len(j.inputs) > 0 {
		fn.teach(j, f.LabelText)
	}
	var losses [selection.MaxCandidates]float64
	for i := range losses {
		losses[i] = math.NaN()
	}
	known := false
	for rest := j.arrived; rest != 0; rest &= rest - 1 {
		i := rest.First()
		losses[i] = fn.loss(j, i, f, numbers)
		if !math.IsNaN(losses[i]) {
			known = true
			if fn.asked(j, i).Judged.Observe(losses[i]); !j.outside.Has(i) {
				fn.Losses[i].Observe(losses[i])
			}
		}
	}
	if !known || j.outside != 0 { // the policy has not chosen these versions, and they are no candidates
		return known
	}
	for rest := j.ruled; rest != 0; rest &= rest - 1 {
		if i := rest.First(); !math.IsNaN(losses[i]) {
			fn.Candidates[i].Route.Rule.learn(j.other.Has(i), j.ruleP[i], losses[i])
		}
	}
	o := observations.Get().(*observation)
	o.p, o.losses = j.p, losses
	o.Feedback = selection.Feedback{Selected: j.asked, P: o.p[:], Losses: o.losses[:]}
	if fn.Needs != (selection.Needs{}) {
		fn.show(&o.Feedback, j, f)
	}
	if fn.Mode == selection.Several {
		o.Vote, o.VoteKnown = fn.plainLoss(j, f, &losses, numbers)
	}
	fn.Selector.Observe(j.context, &o.Feedback)
	o.Feedback = selection.Feedback{}
	observations.Put(o)
	return true
}

// asked returns the version that was asked as candidate i.
func (fn *Function) asked(j *joined, i int) *Model {
	c := &fn.Candidates[i]
	if j.outside.Has(i) {
		return outsideOf(j.versions, i)
	}
	if c.Route != nil && j.other.Has(i) {
		return c.Route.Model
	}
	return c.Model
}

// observation is the argument of Observe with its memory. It is passed through an interface, so it would be allocated
// each time.
type observation struct {
	selection.Feedback
	p, losses [selection.MaxCandidates]float64
}

var observations = sync.Pool{New: func() any { return new(observation) }}

// plainLoss returns the loss of the answer that the predictions would have given if all counted the same, and whether it
// is known. losses are those of the predictions.
func (fn *Function) plainLoss(j *joined, f *Feedback, losses *[selection.MaxCandidates]float64, numbers *[3][]float64) (loss float64, known bool) {
	if !fn.Averages.combines() {
		return selection.PlainVote(j.arrived, &j.class, losses)
	}
	if f.Verdict != VerdictLabel {
		return 0, false
	}
	mean := slices.Grow(numbers[2][:0], fn.Averages.width)[:fn.Averages.width]
	clear(mean)
	numbers[2] = mean
	for rest := j.arrived; rest != 0; rest &= rest - 1 {
		i := rest.First()
		if math.IsNaN(losses[i]) {
			return 0, false
		}
		fn.readPair(j.data[i], f, numbers)
		for e, x := range numbers[0] {
			mean[e] += x / float64(j.arrived.Len())
		}
	}
	return fn.Loss.Of(mean, numbers[1]), true
}

// readPair decodes a prediction and the label into the first two of numbers.
func (fn *Function) readPair(prediction []byte, f *Feedback, numbers *[3][]float64) {
	a := fn.Averages
	for k, data := range [2][]byte{prediction, f.Label[0].Data} {
		if cap(numbers[k]) < a.width {
			numbers[k] = make([]float64, a.width)
		}
		numbers[k] = numbers[k][:a.width]
		readNumbers(numbers[k], a.dtype, data)
	}
}

// loss returns the loss of candidate i's prediction, or NaN if the feedback says nothing about it.
func (fn *Function) loss(j *joined, i int, f *Feedback, numbers *[3][]float64) float64 {
	switch {
	case f.Verdict == VerdictLabel && fn.Averages == nil:
		if j.class[i] == outputClass(f.Label) {
			return 0
		}
		return 1
	case f.Verdict == VerdictLabel:
		if j.data[i] == nil {
			return math.NaN()
		}
		fn.readPair(j.data[i], f, numbers)
		return fn.Loss.Of(numbers[0], numbers[1])
	case !j.given: // the answer was the default, not a prediction
		return math.NaN()
	case j.agreed.Has(i):
		return f.Loss
	case f.Verdict == VerdictCorrect && f.Loss == 0 && fn.Averages == nil:
		return 1 // the answer was right, and this model gave another one
	}
	return math.NaN()
}

// teach sends a label to the models that learn by themselves.
func (fn *Function) teach(j *joined, label []byte) {
	for i := range fn.Candidates {
		fn.teachModel(fn.Candidates[i].Model, j, label)
		if r := fn.Candidates[i].Route; r != nil {
			fn.teachModel(r.Model, j, label)
		}
	}
}

func (fn *Function) teachModel(m *Model, j *joined, label []byte) {
	if m.Teachable.Load() && m.Teach != nil {
		m.Teach(j.inputs, j.context, label)
		fn.Learning.ModelsTaught.Add(1)
	}
}
