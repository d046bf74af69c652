package query

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestEnsembleVotes: the answer with the most weight wins. The confidence is the part of the weight that agrees, with late members counted.
func TestEnsembleVotes(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(7), says(3), says(7), fails(api.DeadlineExceeded), fails(api.ModelError)})
	got := c.ask(input)
	want := prediction{ID: got.ID, Output: 7, Confidence: 0.4, Models: []string{"a@1", "b@1", "c@1"}, Late: []string{"d@1"}, Failed: []string{"e@1"}}
	got.Confidence = math.Round(got.Confidence*1e9) / 1e9
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if late := c.fn.Learning.Late.Load(); late != 2 {
		t.Errorf("%d members are counted as late, want 2", late)
	}
	for i, want := range []uint64{0, 0, 0, 1, 1} {
		if late := c.fn.Losses[i].Late.Load(); late != want {
			t.Errorf("candidate %d is counted as late %d times, want %d", i, late, want)
		}
	}
}

// TestEnsembleWithoutAnyAnswer: the query gets the first member's code.
func TestEnsembleWithoutAnyAnswer(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){fails(api.DeadlineExceeded), fails(api.DeadlineExceeded)}, withDefault("-1"))
	if got := c.ask(input); !got.Default || got.Output != -1 || got.Code != api.DeadlineExceeded || len(got.Late) != 2 || len(got.Models) != 0 {
		t.Errorf("answered %+v", got)
	}
}

// TestEnsembleAverages: a numeric ensemble answers the weighted mean, and a late member is replaced by its running average.
func TestEnsembleAverages(t *testing.T) {
	var late atomic.Bool
	c := gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){saysFloat(2), func(it *scheduler.Item) {
		if late.Load() {
			fails(api.DeadlineExceeded)(it)
		} else {
			saysFloat(4)(it)
		}
	}})
	if got := c.ask(input); got.Output != 3 {
		t.Errorf("the mean of 2 and 4 is answered as %v", got.Output)
	}
	late.Store(true)
	if got := c.ask(input); got.Output != 3 || got.Confidence != 0 || len(got.Late) != 1 {
		t.Errorf("with a late member of mean 4: %+v", got)
	}
}

// TestLowConfidenceGivesTheDefault, by the function's bound or the query's.
func TestLowConfidenceGivesTheDefault(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(3), says(3), says(4)}, withDefault("-1"),
		func(f *fixture) { f.fn.MinConfidence = 0.6 })
	got := c.ask(input)
	if !got.Default || got.Output != -1 || got.Code != api.LowConfidence || math.Abs(got.Confidence-0.4) > 1e-9 || len(got.Models) != 5 {
		t.Errorf("answered %+v", got)
	}
	if got := c.ask(`{"input":[1,2,3,4],"min_confidence":0.3}`); got.Default || got.Output != 3 {
		t.Errorf("with a lower bound of its own: %+v", got)
	}
	bare := *c.fn
	bare.Default = nil
	c.p.Publish(&Table{Functions: map[string]*Function{"f": &bare}})
	if got, err := c.try(`{"input":[1,2,3,4],"min_confidence":0.3}`); err == nil || !strings.Contains(err.Error(), "no default output") {
		t.Errorf("without a default output: %+v (%v)", got, err)
	}
}

// TestFeedbackTeaches: labels, verdicts and losses reach the models that they are about, once for each query.
func TestFeedbackTeaches(t *testing.T) {
	c := gather(t, "exp4", map[string]any{"eta": 0.5, "vote": 0.0, "boost": 0.0}, floats4, []func(*scheduler.Item){says(7), says(3), says(7)})
	before := c.weights("")
	id := c.ask(input).ID
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":3}`, id), Counted)
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":3}`, id), Duplicate)
	after := c.weights("")
	if !(after[1] > before[1] && after[0] < before[0] && math.Abs(after[0]-after[2]) < 1e-12) {
		t.Errorf("after 3 was right the weights went from %v to %v", before, after)
	}
	for i, want := range []float64{1, 0, 1} {
		if n, sum := c.fn.Losses[i].Read(); n != 1 || sum != want {
			t.Errorf("candidate %d has %d losses of %v in all, want 1 of %v", i, n, sum, want)
		}
	}
	id = c.ask(input).ID // still 7: two of three
	c.feed(fmt.Sprintf(`{"query_id":%d,"correct":false}`, id), Counted)
	if n, _ := c.fn.Losses[1].Read(); n != 1 {
		t.Error("a wrong answer was held against a model that gave another one")
	}
	got := c.ask(input) // now the one that was right outweighs the two that were wrong twice
	id = got.ID
	c.feed(fmt.Sprintf(`{"query_id":%d,"loss":0.25}`, id), Counted)
	if n, sum := c.fn.Losses[1].Read(); got.Output != 3 || n != 2 || sum != 0.25 {
		t.Errorf("answered %v, and candidate 1 has %d losses of %v in all, want 3, and 2 of 0.25", got.Output, n, sum)
	}
	c.feed(`{"query_id":12345,"label":3}`, UnknownQuery)
}

// TestLateFeedback: a query that has been overwritten is late, not unknown.
func TestLateFeedback(t *testing.T) {
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(7), says(7)}, func(f *fixture) { f.p.joins = newJoins(2, DefaultFeedbackBytes, &f.p.ids) })
	id := c.ask(input).ID
	c.ask(input)
	c.ask(input)
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":7}`, id), TooLate)
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":7}`, id+1e6), UnknownQuery)
}

// TestBanditAsksOne: a bandit asks one model and learns of that one. Feedback by input is joined with the last query of the input.
func TestBanditAsksOne(t *testing.T) {
	asked := make(chan string, 100)
	say := func(name string, v int64) func(*scheduler.Item) {
		return func(it *scheduler.Item) { asked <- name; says(v)(it) }
	}
	c := gather(t, "exp3", map[string]any{"eta": 0.3}, floats4, []func(*scheduler.Item){say("a@1", 0), say("b@1", 1)})
	for range 60 {
		got := c.ask(input)
		if model := <-asked; len(got.Models) != 1 || got.Models[0] != model || len(asked) != 0 {
			t.Fatalf("%s was asked, %v answered", model, got.Models)
		}
		c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, got.ID), Counted)
	}
	if w := c.weights(""); w[1] < 0.8 {
		t.Errorf("after 60 labels the shares are %v", w)
	}
	c.feed(`{"input":[9,9,9,9],"label":1}`, UnknownQuery)
	if len(asked) != 0 {
		t.Error("a bandit asked a model for the sake of feedback")
	}
	c.ask(`{"input":[5,5,5,5],"context":"ann"}`)
	c.feed(`{"input":[5,5,5,5],"label":1}`, UnknownQuery) // another context
	c.feed(`{"input":[5,5,5,5],"label":1,"context":"ann"}`, Counted)
	c.feed(`{"input":[5,5,5,5],"label":1,"context":"ann"}`, Duplicate)
}

// TestEnsembleFeedbackByInput: every model is asked for its prediction, and the caller does not wait.
func TestEnsembleFeedbackByInput(t *testing.T) {
	release := make(chan struct{})
	answered := make(chan struct{})
	slow := func(it *scheduler.Item) {
		go func() { <-release; says(1)(it); close(answered) }()
	}
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){slow, says(2)})
	c.feed(`{"input":[1,2,3,4],"label":1,"context":"ann"}`, Pending)
	if n := c.fn.Learning.Counted.Load(); n != 0 {
		t.Error("it was counted before the models answered")
	}
	close(release)
	<-answered
	if n := c.fn.Learning.Counted.Load(); n != 1 {
		t.Errorf("%d feedbacks are counted, want 1", n)
	}
	if w := c.weights("ann"); !(w[0] > w[1]) {
		t.Errorf("ann's shares are %v", w)
	}
	if w := c.weights(""); !(w[0] > w[1]) {
		t.Errorf("the shares of all contexts are %v", w)
	}
}

// TestPerQueryModels: a request names the models that it wants.
func TestPerQueryModels(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(2)})
	for body, want := range map[string]string{
		`{"input":[1,2,3,4],"models":["a"]}`:           "[a@1]",
		`{"input":[1,2,3,4],"models":["c@1","a"]}`:     "[a@1 c@1]",
		`{"input":[1,2,3,4],"version":"1"}`:            "[a@1 b@1 c@1]",
		`{"input":[1,2,3,4],"models":["b","b@1","c"]}`: "[b@1 c@1]",
	} {
		if got := c.ask(body); fmt.Sprint(got.Models) != want {
			t.Errorf("%s was answered by %v, want %s", body, got.Models, want)
		}
	}
	for body, want := range map[string]string{
		`{"input":[1,2,3,4],"models":["z"]}`:                               "is no candidate of function f: expected some of a@1, b@1, c@1",
		`{"input":[1,2,3,4],"version":"9"}`:                                "has the version",
		`{"input":[1,2,3,4],"context":"` + strings.Repeat("x", 300) + `"}`: "300 bytes",
	} {
		if got, err := c.try(body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s is answered %+v (%v), want %q", body, got, err, want)
		}
	}
}

// planned is a Choice with a plan.
type planned struct {
	Choice
	members  atomic.Uint64
	limits   []float64
	refusing atomic.Bool
	wishes   [4]atomic.Int32
	refused  atomic.Int32
}

func (p *planned) Members() uint64    { return p.members.Load() }
func (p *planned) CountArrived(int)   {}
func (p *planned) CountRefused(n int) { p.refused.Add(int32(n)) }
func (p *planned) ShouldRefuse() bool { return p.refusing.Load() }
func (p *planned) CountWish(i int)    { p.wishes[i].Add(1) }
func (p *planned) Limits(dst []float64) []float64 {
	if p.limits == nil {
		return nil
	}
	return append(dst[:0], p.limits...)
}

// TestPlanDropsMembers: models that the plan has no room for are left out and named, unless the cache has their predictions.
func TestPlanDropsMembers(t *testing.T) {
	plan := &planned{}
	plan.members.Store(3)
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(2)}, func(f *fixture) { f.fn.Choice = plan }, cached)
	got := c.ask(input)
	if got.Output != 1 || fmt.Sprint(got.Dropped) != "[c@1]" || got.Confidence != 0.5 {
		t.Errorf("without c: %+v", got)
	}
	plan.members.Store(7)
	c.ask(`{"input":[0,0,0,1]}`)
	plan.members.Store(3)
	if got := c.ask(`{"input":[0,0,0,1]}`); got.Output != 2 || len(got.Dropped) != 0 || len(got.Models) != 3 {
		t.Errorf("with the cached prediction of c: %+v", got)
	}
	plan.members.Store(0)
	if code := c.code(`{"input":[0,1,0,1]}`); code != api.Overloaded || plan.refused.Load() != 1 {
		t.Errorf("with room for none: %s, %d refused", code, plan.refused.Load())
	}
}

// TestPlanLimitsABandit: queries withheld by a limit go to other models, and the wishes are reported to the plan.
func TestPlanLimitsABandit(t *testing.T) {
	plan := &planned{limits: []float64{0, 1}}
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(2)}, func(f *fixture) { f.fn.Choice = plan })
	for range 100 {
		if got := c.ask(input); got.Output != 2 {
			t.Fatalf("a model without room has answered: %+v", got)
		}
	}
	if a, b := plan.wishes[0].Load(), plan.wishes[1].Load(); a < 25 || b < 25 {
		t.Errorf("of 100 queries the wishes reported to the plan are %d and %d", a, b)
	}
	plan.refusing.Store(true)
	if code := c.code(input); code != api.Overloaded || plan.refused.Load() != 1 {
		t.Errorf("a query that the plan refuses: %s", code)
	}
}

// TestShadowsAreComparedAndNeverAnswer: a shadow gets the queries, and its answers are counted only.
func TestShadowsAreComparedAndNeverAnswer(t *testing.T) {
	shadowed := make(chan int32, 10)
	var agree atomic.Bool
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)}, func(f *fixture) {
		m := NewModel(api.ModelID{Name: "new", Version: "2"}, floats4, &querytest.Lane{Submit: func(it *scheduler.Item) {
			shadowed <- it.Function
			if agree.Load() {
				says(1)(it)
			} else {
				says(2)(it)
			}
		}}, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		f.fn.Shadows = []Shadow{{Candidate: Candidate{Model: m, Queue: 3}, Part: 1}}
	})
	for _, same := range []bool{true, false, false} {
		agree.Store(same)
		if got := c.ask(input); got.Output != 1 || fmt.Sprint(got.Models) != "[a@1]" {
			t.Errorf("answered %+v", got)
		}
	}
	poll(t, func() bool { return c.fn.Learning.ShadowsSame.Load()+c.fn.Learning.ShadowsDifferent.Load() == 3 })
	if same, other := c.fn.Learning.ShadowsSame.Load(), c.fn.Learning.ShadowsDifferent.Load(); same != 1 || other != 2 || len(shadowed) != 3 || <-shadowed != 3 {
		t.Errorf("%d were asked, %d said the same, %d something else", len(shadowed), same, other)
	}
}

// TestNoModelAvailable: if no model is available and none is starting, the query gets the default at once.
func TestNoModelAvailable(t *testing.T) {
	for _, policy := range []string{"single", "exp3", "exp4"} {
		models := []func(*scheduler.Item){func(*scheduler.Item) { t.Error("a model without replicas was asked") }, nil}
		if policy == "single" {
			models = models[:1]
		}
		c := gather(t, policy, nil, floats4, models, withDefault("-1"), func(f *fixture) {
			for _, cand := range f.fn.Candidates {
				cand.Model.Ready.Store(0)
				cand.Model.Down.Store(true)
			}
		})
		if got := c.ask(input); !got.Default || got.Code != api.NoReplica {
			t.Errorf("%s: answered %+v", policy, got)
		}
	}
}

// TestAskingInTwoSteps: the members with the most weight are asked first, the others only if these disagree.
func TestAskingInTwoSteps(t *testing.T) {
	var agree atomic.Bool
	agree.Store(true)
	second := func(it *scheduler.Item) {
		if agree.Load() {
			says(1)(it)
		} else {
			says(2)(it)
		}
	}
	c := gather(t, "exp4", map[string]any{"first": 2.0}, floats4, []func(*scheduler.Item){says(1), second, says(2)})
	if got := c.ask(input); len(got.Models) != 2 || got.Confidence != 1 {
		t.Errorf("two that agree: %+v", got)
	}
	agree.Store(false)
	if got := c.ask(input); len(got.Models) != 3 || got.Output != 2 {
		t.Errorf("two that do not: %+v", got)
	}
}

// TestOneAnswerIsNoAgreement: with first: 1 a model that states no confidence is not believed alone. One that states
// enough is.
func TestOneAnswerIsNoAgreement(t *testing.T) {
	states := func(confidence float64) func(*scheduler.Item) {
		return func(it *scheduler.Item) {
			it.Outputs = append(it.Outputs[:0], api.Value{Data: querytest.Int64(1)})
			it.Confidence = confidence
			owner := it.Owner
			owner.Answered(it, api.OK)
			owner.Released(it, api.OK)
		}
	}
	for _, x := range []struct {
		first func(*scheduler.Item)
		asked int
	}{{says(1), 3}, {states(0.95), 1}, {states(1), 1}, {states(0.5), 3}} {
		c := gather(t, "exp4", map[string]any{"first": 1.0, "explore": 0.0}, floats4, []func(*scheduler.Item){x.first, says(2), says(2)})
		if got := c.ask(input); len(got.Models) != x.asked {
			t.Errorf("expected %d models, answered %+v", x.asked, got)
		}
	}
}

// TestPlainVoteLearns: two of three outvote the best in the plain vote, and are wrong. The vote's weight falls, so in the
// end the best decides against both. Of numbers the plain average is judged.
func TestPlainVoteLearns(t *testing.T) {
	c := gather(t, "exp4", map[string]any{"eta": 0.5, "vote": 100.0}, floats4, []func(*scheduler.Item){says(7), says(3), says(7)})
	for n := range 20 {
		got := c.ask(input)
		if n == 0 && got.Output != 7 {
			t.Errorf("at first %+v", got)
		}
		c.feed(fmt.Sprintf(`{"query_id":%d,"label":3}`, got.ID), Counted)
	}
	if got := c.ask(input); got.Output != 3 || !(got.Confidence > 0.5) {
		t.Errorf("after twenty labels %+v", got)
	}
	d := gather(t, "exp4", map[string]any{"eta": 1.0, "vote": 100.0, "floor": 0.0}, floatsOut, []func(*scheduler.Item){saysFloat(0), saysFloat(10)})
	for range 20 {
		d.feed(fmt.Sprintf(`{"query_id":%d,"label":5}`, d.ask(input).ID), Counted)
	}
	// Each is off by 5 of 10, their average is right: the vote leads by the bound, and the mean of both is the answer.
	if w := d.weights(""); math.Abs(w[0]-w[1]) > 1e-9 {
		t.Errorf("weights %v", w)
	}
	d.feed(fmt.Sprintf(`{"query_id":%d,"label":0}`, d.ask(input).ID), Counted)
	if w := d.weights(""); !(w[0] > w[1] && w[1] > 0.9*w[0]) {
		t.Errorf("beside a vote of a hundred times their weight one loss hardly tells the two apart: %v", w)
	}
}

// TestDrainDoesNotWaitForStragglers: Drain does not wait for a request that is answered, whatever still runs for the cache.
func TestDrainDoesNotWaitForStragglers(t *testing.T) {
	held := make(chan *scheduler.Item, 1)
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), func(it *scheduler.Item) { it.Owner.Answered(it, api.DeadlineExceeded); held <- it }})
	if got := c.ask(input); fmt.Sprint(got.Late) != "[b@1]" {
		t.Errorf("answered %+v", got)
	}
	c.drain()
	it := <-held
	it.Owner.Released(it, api.DeadlineExceeded)
}

// TestVerdictsByInput: the verdict is about the answer that an ensemble would have given.
func TestVerdictsByInput(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(2)})
	c.feed(`{"input":[1,2,3,4],"correct":false}`, Pending)
	for i, want := range []uint64{0, 1, 1} {
		if n, sum := c.fn.Losses[i].Read(); n != want || sum != float64(want) {
			t.Errorf("candidate %d has %d losses of %v in all, want %d of 1", i, n, sum, want)
		}
	}
	one := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	one.feed(`{"input":[1,2,3,4],"label":2}`, Pending)
	one.feed(`{"input":[1,2,3,4],"correct":true}`, Pending)
	if n, sum := one.fn.Losses[0].Read(); n != 2 || sum != 1 {
		t.Errorf("the only model has %d losses of %v in all, want 2 of 1", n, sum)
	}
}

// TestLabelsAreForwarded: a model that learns online gets the label with the input and the context that it predicted for.
func TestLabelsAreForwarded(t *testing.T) {
	type taught struct{ input, context, label string }
	got := make(chan taught, 4)
	teach := func(inputs []api.Value, context, label []byte) {
		got <- taught{fmt.Sprintf("%v", inputs[0].Data[:4]), string(context), string(label)}
	}
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(1)}, func(f *fixture) {
		f.fn.Candidates[1].Model.Teach = teach
		f.fn.Candidates[1].Model.Teachable.Store(true)
	})
	id := c.ask(`{"input":[1,2,3,4],"context":"ann"}`).ID
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, id), Counted)
	want := taught{"[0 0 128 63]", "ann", "1"}
	if g := <-got; g != want {
		t.Errorf("the model was taught %+v, want %+v", g, want)
	}
	c.ask(`{"input":[1,2,3,4],"context":"bob"}`)
	c.feed(`{"input":[1,2,3,4],"context":"bob","label":0}`, Counted)
	want = taught{"[0 0 128 63]", "bob", "0"}
	if g := <-got; g != want {
		t.Errorf("the model was taught %+v, want %+v", g, want)
	}
	if n := c.p.joins.kept.Load(); n <= 0 {
		t.Error("inputs are kept, and not counted")
	}
}
