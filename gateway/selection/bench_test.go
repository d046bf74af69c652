package selection

import (
	"fmt"
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// cycle is one query and its feedback, with reused memory as in the gateway.
type cycle struct {
	p          Policy
	q          Query
	out        Selection
	c          Combination
	f          Feedback
	r          random
	unanswered int
	composed   []api.Value
}

func newCycle(t testing.TB, name string, candidates, width int) *cycle {
	p, s := newPolicy(t, name, nil, candidates)
	b := &cycle{p: p, r: 1}
	b.q = Query{State: s, Value: NewValue(p, candidates), Allowed: All(candidates), Limits: make([]float64, candidates)}
	b.c = Combination{State: s, Value: b.q.Value, Selected: All(candidates), Width: width, Known: All(candidates), Tolerance: 1,
		Values: make([]float64, candidates*width), Out: make([]float64, width)}
	b.f = Feedback{State: s, Value: b.q.Value, Selected: 1, P: make([]float64, candidates), Losses: make([]float64, candidates), Delta: make([]float64, len(s.V))}
	for i := range candidates {
		s.Row(i)[SlotCount], s.Row(i)[SlotLoss] = 100, float64(i)
		b.q.Limits[i] = 0.9
		b.c.Answers = append(b.c.Answers, Answer{i, uint64(i % 3), math.NaN()})
		b.f.P[i] = 0.5
		if p.Mode() == One && i > 0 {
			b.f.Losses[i] = math.NaN()
		}
	}
	b.show(NeedsOf(p))
	return b
}

// show gives the policy what it needs: 64 floats, and labels, or lists of ten ids for rank-fusion.
func (b *cycle) show(needs Needs) {
	if needs.Inputs {
		b.q.Inputs = Tensors{[]api.TensorSpec{{DType: api.Float32, Shape: []int64{64}}}, []api.Value{api.Numbers(make([]float32, 64)...)}}
		b.c.Inputs, b.f.Inputs = b.q.Inputs, b.q.Inputs
	}
	output := func(class int64) Tensors { return Tensors{labelOut, []api.Value{api.Numbers(class)}} }
	if b.p.Name() == "rank-fusion" {
		specs := []api.TensorSpec{{DType: api.Int32, Shape: []int64{-1}}}
		output = func(class int64) Tensors {
			ids := make([]int32, 10)
			for i := range ids {
				ids[i] = int32(class) + int32(i)
			}
			v := api.Numbers(ids...)
			v.Dims = []int64{10}
			return Tensors{specs, []api.Value{v}}
		}
	}
	if needs.Predictions {
		for _, a := range b.c.Answers {
			b.c.Predictions = append(b.c.Predictions, Prediction{Candidate: a.Candidate, Outputs: output(int64(a.Class)), Confidence: a.Confidence})
		}
		b.f.Predictions = b.c.Predictions
		b.composed = make([]api.Value, 2)
	}
	if needs.Labels {
		b.f.Label = output(1)
	}
}

func (b *cycle) selectOnce() {
	b.q.Seed = b.r.next()
	b.p.Select(&b.q, &b.out)
	if b.out.Ask == 0 {
		b.unanswered++
	}
}

func (b *cycle) combineOnce() {
	if b.composed == nil {
		b.p.Combine(&b.c)
		return
	}
	b.c.Output = b.composed[:0]
	b.p.Combine(&b.c)
	b.composed = b.c.Output
}

func (b *cycle) observeOnce() {
	clear(b.f.Delta)
	b.p.Observe(&b.f)
}

func BenchmarkPolicies(b *testing.B) {
	for _, name := range Names() {
		for _, n := range []int{2, 5, 64} {
			cycle := newCycle(b, name, n, 0)
			for _, step := range []struct {
				name string
				run  func()
			}{{"select", cycle.selectOnce}, {"combine", cycle.combineOnce}, {"observe", cycle.observeOnce}} {
				b.Run(fmt.Sprintf("%s/%d/%s", name, n, step.name), func(b *testing.B) {
					for b.Loop() {
						step.run()
					}
				})
			}
		}
	}
}
