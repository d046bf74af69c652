package query

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
)

// spy is a policy that asks all candidates, answers as it is told, and writes down what it sees.
type spy struct {
	saw     []string
	compose []api.Value
}

func numbersOf(t selection.Tensors) string {
	var all []string
	for i := range t.Len() {
		var n []float64
		for e := range t.At(i).Elements() {
			n = append(n, t.At(i).Number(e))
		}
		all = append(all, fmt.Sprint(t.Specs[i].Name, n))
	}
	return strings.Join(all, " ")
}

func predictionsOf(all []selection.Prediction) string {
	var s []string
	for _, p := range all {
		timed := "at once"
		if p.LatencyNanos > 0 {
			timed = "timed"
		}
		s = append(s, fmt.Sprintf("%d %s %v %s", p.Candidate, numbersOf(p.Outputs), p.Confidence, timed))
	}
	return strings.Join(s, ", ")
}

func (s *spy) Select(_ []byte, q *selection.Query, out *selection.Selection) {
	s.saw = append(s.saw, fmt.Sprintf("select x=%s context=%s", numbersOf(q.Inputs), q.Context))
	out.Ask = q.Allowed &^ q.Asked
	for i := range out.P {
		out.P[i] = 1
	}
}

func (s *spy) Combine(_ []byte, c *selection.Combination) {
	s.saw = append(s.saw, fmt.Sprintf("combine x=%s context=%s pred=%s judged=%d", numbersOf(c.Inputs), c.Context, predictionsOf(c.Predictions), c.Judged))
	c.Winner, c.Agreed = 0, 1
	if s.compose != nil {
		c.Winner, c.Output, c.Confidence = -1, append(c.Output, s.compose...), 0.75
	}
}

func (s *spy) Observe(_ []byte, f *selection.Feedback) {
	s.saw = append(s.saw, fmt.Sprintf("observe x=%s context=%s y=%s pred=%s missing=%v", numbersOf(f.Inputs), f.Context, numbersOf(f.Label), predictionsOf(f.Predictions), f.Missing))
}

func sure(v int64, confidence float64) func(*scheduler.Item) {
	return func(it *scheduler.Item) {
		it.SetResult([]api.Value{{Data: querytest.Int64(v)}}, confidence)
		it.Owner.Answered(it, api.OK)
		it.Owner.Released(it, api.OK)
	}
}

// watched is a function over two models, which answer 7 and 8, under a spy.
func watched(t *testing.T, needs selection.Needs, change ...func(*fixture)) (*crowd, *spy) {
	s := new(spy)
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){sure(7, 0.5), sure(8, 0.25)}, append(change, func(f *fixture) {
		f.fn.Needs, f.fn.Selector = needs, s
	})...)
	return c, s
}

func (s *spy) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.saw, want) {
		t.Errorf("the policy saw\n%s\nwant\n%s", strings.Join(s.saw, "\n"), strings.Join(want, "\n"))
	}
	s.saw = nil
}

var all = selection.Needs{Inputs: true, Predictions: true, Labels: true}

// TestAPolicySeesTheQuery: Listing 2 of the paper: select(s, x), combine(s, x, pred), observe(s, x, y, pred).
func TestAPolicySeesTheQuery(t *testing.T) {
	c, s := watched(t, all)
	id := c.ask(`{"input":[1,2,3,4],"context":"ann"}`).ID
	const x, pred = "input[1 2 3 4]", "0 output[7] 0.5 timed, 1 output[8] 0.25 timed"
	s.expect(t, "select x="+x+" context=ann", "combine x="+x+" context=ann pred="+pred+" judged=0")
	c.label(id, 8, Counted)
	s.expect(t, "observe x="+x+" context=ann y=output[8] pred="+pred+" missing=false")

	// Feedback by input asks the models: nothing has to be remembered.
	c.feed(`{"input":[1,2,3,4],"label":7}`, Pending)
	c.drain()
	s.expect(t, "observe x="+x+" context= y=output[7] pred="+pred+" missing=false")
}

// TestAPolicySeesWhatItNeeds: what a policy does not ask for is not prepared, and not remembered.
func TestAPolicySeesWhatItNeeds(t *testing.T) {
	c, s := watched(t, selection.Needs{})
	id := c.ask(`{"input":[1,2,3,4],"context":"ann"}`).ID
	c.label(id, 8, Counted)
	s.expect(t, "select x= context=", "combine x= context= pred= judged=0", "observe x= context= y= pred= missing=false")
	if n := c.p.joins.kept.Load(); n != 0 {
		t.Errorf("%d bytes are kept of a query that nobody wants to see again", n)
	}
	c, s = watched(t, selection.Needs{Labels: true})
	id = c.ask(input).ID
	c.label(id, 8, Counted)
	s.expect(t, "select x= context=", "combine x= context= pred= judged=0", "observe x= context= y=output[8] pred= missing=false")
}

// TestAComposedAnswer: a policy answers what no model has said. An answer that the signature does not allow is not given.
func TestAComposedAnswer(t *testing.T) {
	c, s := watched(t, all)
	s.compose = []api.Value{{Data: querytest.Int64(99)}}
	if got := c.ask(input); got.Output != 99 || got.Confidence != 0.75 {
		t.Errorf("the answer is %v with confidence %v, composed was 99 with .75", got.Output, got.Confidence)
	}
	s.compose = []api.Value{{Data: []byte{1, 2, 3}}}
	if got := c.ask(input); got.Output != 7 || got.Confidence != 0 {
		t.Errorf("the answer is %v with confidence %v, want that of the first model with 0", got.Output, got.Confidence)
	}
}

// TestEvictedInputs: what is remembered has one budget. The oldest make room, their feedback counts in part, and says so.
func TestEvictedInputs(t *testing.T) {
	const perQuery = 16 + 4 + 1 + 2*(predictionHeader+8+4+1)
	c, s := watched(t, all, func(f *fixture) { f.p.joins = newJoins(64, 3*perQuery, &f.p.ids) })
	var ids []uint64
	for range 200 { // three turns of the ring
		ids = append(ids, c.ask(input).ID)
		if kept := c.p.joins.kept.Load(); kept > 3*perQuery {
			t.Fatalf("%d bytes are kept, the budget is %d", kept, 3*perQuery)
		}
	}
	s.saw = nil
	c.label(ids[100], 8, TooLate)
	for i, id := range ids[195:] {
		want := Counted
		if i < 2 {
			want = CountedInPart
		}
		c.label(id, 8, want)
		if saw := s.saw[i]; strings.Contains(saw, "missing=true") != (want == CountedInPart) || strings.Contains(saw, "x=input") != (want == Counted) {
			t.Errorf("query %d: %v, and the policy saw %s", i, want, saw)
		}
	}
	if n := c.fn.Learning.InPart.Load(); n != 2 {
		t.Errorf("%d feedbacks are counted in part, want 2", n)
	}
	if CountedInPart.Code() != api.OK || CountedInPart.Reason() == "" {
		t.Error("feedback that counts in part is no error and has a cause")
	}

	c, _ = watched(t, all, func(f *fixture) { f.p.joins = newJoins(64, -1, &f.p.ids) })
	c.label(c.ask(input).ID, 8, CountedInPart)
}

// TestInheritedPredictions: another process of the gateway inherits what policies see, and what is missing.
func TestInheritedPredictions(t *testing.T) {
	old, next := inheriting(t, "exp4", floats4, sure(7, 0.5), sure(8, 0.25))
	s := new(spy)
	for _, c := range []*crowd{old, next} {
		c.fn.Needs, c.fn.Selector = all, s
	}
	full := old.ask(input).ID
	old.p.joins.budget = 0
	bare := old.ask(input).ID
	if err := old.p.PassOn(next.p.Inherit); err != nil {
		t.Fatal(err)
	}
	s.saw = nil
	next.label(full, 8, Counted)
	next.label(bare, 8, CountedInPart)
	s.expect(t, "observe x=input[1 2 3 4] context= y=output[8] pred=0 output[7] 0.5 timed, 1 output[8] 0.25 timed missing=false",
		"observe x= context= y=output[8] pred= missing=true")
}
