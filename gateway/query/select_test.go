package query

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// crowd is a function over several models, each of which answers as the test says.
type crowd struct {
	*fixture
	lanes   []*lane
	cache   *cache.Cache
	table   *learned.Table
	learned *learned.Function
}

// says answers every query with a number.
func says(v int64) func(*scheduler.Item) {
	return func(it *scheduler.Item) { end(it, api.OK, int64Bytes(v)) }
}

// fails ends every query with the code.
func fails(code api.Code) func(*scheduler.Item) {
	return func(it *scheduler.Item) { end(it, code) }
}

// floatsOut is floats4 with a float for an answer.
var floatsOut = api.Signature{Inputs: floats4.Inputs, Outputs: []api.TensorSpec{{Name: "output", DType: api.Float64}}}

// gather starts a gateway with function "f" under a policy over models a@1, b@1 …
func gather(t *testing.T, policy string, params map[string]any, sig api.Signature, models []func(*scheduler.Item), change ...func(*fixture)) *crowd {
	t.Helper()
	c := &crowd{cache: cache.New(1 << 20), table: learned.New(learned.Config{})}
	var refs []string
	for i := range models {
		refs = append(refs, string(rune('a'+i)))
	}
	p, err := selection.New(policy, params, refs)
	if err != nil {
		t.Fatal(err)
	}
	c.learned = c.table.Declare("f", p, refs)
	clock := driver.NewClock()
	t.Cleanup(clock.Close)
	setup := func(f *fixture) {
		f.g.cfg.Cache, f.g.cfg.Timers = c.cache, driver.NewTimers(clock)
		f.g.cfg.Now = clock.Now
		f.fn.Candidates = nil
		for i, answer := range models {
			l := &lane{submit: answer}
			c.lanes = append(c.lanes, l)
			m := NewModel(api.ModelID{Name: refs[i], Version: "1"}, sig, l, 0, new(obs.Endpoint))
			m.Ready.Store(1)
			f.fn.Candidates = append(f.fn.Candidates, Candidate{Model: m, Queue: 1})
		}
		f.fn.Selects, f.fn.Mode, f.fn.Selector = policy != "single" && policy != "prefer", p.Mode(), c.learned
		f.fn.Learning, f.fn.Losses = new(obs.Learning), make([]obs.Loss, len(models))
		if sig.Outputs[0].DType == api.Float64 {
			f.fn.Averages = NewAverages(sig, len(models))
			f.fn.Averages.SetTolerance(0.5)
			f.fn.Loss = selection.Loss{Kind: selection.Absolute, Scale: 10}
		}
	}
	c.fixture = serve(t, sig, nil, append([]func(*fixture){setup}, change...)...)
	return c
}

// prediction is an answer as a client reads it.
type prediction struct {
	QueryID     uint64   `json:"query_id"`
	Output      float64  `json:"output"`
	Default     bool     `json:"default"`
	Explanation string   `json:"default_explanation"`
	Confidence  float64  `json:"confidence"`
	Models      []string `json:"models"`
	Late        []string `json:"late"`
	Failed      []string `json:"failed"`
	Dropped     []string `json:"dropped"`
}

func (c *crowd) ask(body string, header ...string) prediction {
	c.t.Helper()
	status, _, answer := c.post("/f/predict", "application/json", body, header...)
	var p prediction
	if err := json.Unmarshal([]byte(answer), &p); err != nil || status != 200 {
		c.t.Fatalf("answered %d %s (%v)", status, answer, err)
	}
	return p
}

const input = `{"input":[1,2,3,4]}`

// weights are the policy's, of one context.
func (c *crowd) weights(context string) []float64 {
	c.t.Helper()
	gains := make([]float64, len(c.lanes))
	report := c.learned.Report(100)
	rows := report.Global
	if context != "" {
		rows = nil
		for _, x := range report.Contexts {
			if x.Context == context {
				rows = x.Rows
			}
		}
	}
	for i, r := range rows {
		gains[i] = r.Weight
	}
	return gains
}

func (c *crowd) feed(body string, want int, status string) {
	c.t.Helper()
	got, _, answer := c.post("/f/feedback", "application/json", body)
	if got != want || !strings.Contains(answer, status) {
		c.t.Errorf("feedback %s is answered %d %s, want %d %s", body, got, answer, want, status)
	}
}

// TestEnsembleVotes: most of the weight wins, and the confidence is how much of it agrees, late members counted.
func TestEnsembleVotes(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(7), says(3), says(7), fails(api.DeadlineExceeded), fails(api.ModelError)})
	got := c.ask(input)
	want := prediction{QueryID: got.QueryID, Output: 7, Confidence: 0.4, Models: []string{"a@1", "b@1", "c@1"}, Late: []string{"d@1"}, Failed: []string{"e@1"}}
	got.Confidence = math.Round(got.Confidence*1e9) / 1e9
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if late := c.fn.Learning.Late.Load(); late != 2 {
		t.Errorf("%d members are counted as late, want 2", late)
	}
}

// TestEnsembleWithoutAnyAnswer: the first reason is the query's.
func TestEnsembleWithoutAnyAnswer(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){fails(api.DeadlineExceeded), fails(api.DeadlineExceeded)}, withDefault("-1"))
	if got := c.ask(input); !got.Default || got.Output != -1 || got.Explanation != api.DeadlineExceeded.Reason() || len(got.Late) != 2 || len(got.Models) != 0 {
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

func saysFloat(v float64) func(*scheduler.Item) {
	return func(it *scheduler.Item) { end(it, api.OK, appendNumbers(nil, api.Float64, []float64{v})) }
}

// TestDoubtfulAnswersBecomeTheDefault, by the function's bound or the query's.
func TestDoubtfulAnswersBecomeTheDefault(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(3), says(3), says(4)}, withDefault("-1"),
		func(f *fixture) { f.fn.MinConfidence = 0.6 })
	got := c.ask(input)
	if !got.Default || got.Output != -1 || got.Explanation != "confidence 0.40 below 0.60" || math.Abs(got.Confidence-0.4) > 1e-9 || len(got.Models) != 5 {
		t.Errorf("answered %+v", got)
	}
	if got := c.ask(`{"input":[1,2,3,4],"min_confidence":0.3}`); got.Default || got.Output != 3 {
		t.Errorf("with a lower bound of its own: %+v", got)
	}
	bare := *c.fn
	bare.Default = nil
	c.g.Publish(&Table{Functions: map[string]*Function{"f": &bare}})
	if status, _, body := c.post("/f/predict", "application/json", `{"input":[1,2,3,4],"min_confidence":0.3}`); status != 400 || !strings.Contains(body, "no default output") {
		t.Errorf("without a default output: %d %s", status, body)
	}
}

// TestFeedbackTeaches: labels, verdicts and losses reach the models that they say something of, each query once.
func TestFeedbackTeaches(t *testing.T) {
	c := gather(t, "exp4", map[string]any{"eta": 0.5}, floats4, []func(*scheduler.Item){says(7), says(3), says(7)})
	before := c.weights("")
	id := c.ask(input).QueryID
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":3}`, id), 200, `"counted"`)
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":3}`, id), 200, `"duplicate"`)
	after := c.weights("")
	if !(after[1] > before[1] && after[0] < before[0] && math.Abs(after[0]-after[2]) < 1e-12) {
		t.Errorf("after 3 was right the weights went from %v to %v", before, after)
	}
	for i, want := range []float64{1, 0, 1} {
		if n, sum := c.fn.Losses[i].Read(); n != 1 || sum != want {
			t.Errorf("candidate %d has %d losses of %v in all, want 1 of %v", i, n, sum, want)
		}
	}
	id = c.ask(input).QueryID // still 7: two of three
	c.feed(fmt.Sprintf(`{"query_id":%d,"correct":false}`, id), 200, `"counted"`)
	if n, _ := c.fn.Losses[1].Read(); n != 1 {
		t.Error("that an answer was wrong says nothing of a model that gave another")
	}
	got := c.ask(input) // now the one that was right outweighs the two that were wrong twice
	id = got.QueryID
	c.feed(fmt.Sprintf(`{"query_id":%d,"loss":0.25}`, id), 200, `"counted"`)
	if n, sum := c.fn.Losses[1].Read(); got.Output != 3 || n != 2 || sum != 0.25 {
		t.Errorf("answered %v, and candidate 1 has %d losses of %v in all, want 3, and 2 of 0.25", got.Output, n, sum)
	}
	c.feed(`{"query_id":12345,"label":3}`, 404, "not_found")
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":"x"}`, id), 400, "label")
	c.feed(fmt.Sprintf(`{"query_id":%d}`, id), 400, "label")
	c.feed(`{`, 400, "Json error")
	first, second := c.ask(input).QueryID, c.ask(input).QueryID
	c.feed(fmt.Sprintf(`{"feedback_batch":[{"query_id":%d,"label":7},{"query_id":%d,"label":7},{"query_id":%d,"label":7}]}`, first, first, second), 200,
		fmt.Sprintf(`{"feedback_results":[{"query_id":%d,"status":"counted"},{"query_id":%d,"status":"duplicate"`, first, first))
}

// TestLateFeedback: what has been overwritten is late, not unknown.
func TestLateFeedback(t *testing.T) {
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(7), says(7)}, func(f *fixture) { f.g.joins = newJoins(2, &f.g.ids) })
	id := c.ask(input).QueryID
	c.ask(input)
	c.ask(input)
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":7}`, id), 410, "gone")
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":7}`, id+1e6), 404, "not_found")
}

// TestBanditAsksOne, learns of that one, and joins feedback by input with the query that was.
func TestBanditAsksOne(t *testing.T) {
	asked := make(chan string, 100)
	say := func(name string, v int64) func(*scheduler.Item) {
		return func(it *scheduler.Item) { asked <- name; says(v)(it) }
	}
	c := gather(t, "exp3", map[string]any{"eta": 0.3}, floats4, []func(*scheduler.Item){say("a@1", 0), say("b@1", 1)})
	for range 60 {
		got := c.ask(input)
		if who := <-asked; len(got.Models) != 1 || got.Models[0] != who || len(asked) != 0 {
			t.Fatalf("%s was asked, %v answered", who, got.Models)
		}
		c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, got.QueryID), 200, `"counted"`)
	}
	if w := c.weights(""); w[1] < 0.8 {
		t.Errorf("after 60 labels the shares are %v", w)
	}
	c.feed(`{"input":[9,9,9,9],"label":1}`, 404, "not_found")
	if len(asked) != 0 {
		t.Error("a bandit asked a model for the sake of feedback")
	}
	c.ask(`{"input":[5,5,5,5],"context":"ann"}`)
	c.feed(`{"input":[5,5,5,5],"label":1}`, 404, "not_found") // another context
	c.feed(`{"input":[5,5,5,5],"label":1,"context":"ann"}`, 200, `"counted"`)
	c.feed(`{"input":[5,5,5,5],"label":1,"uid":"ann"}`, 200, `"duplicate"`)
}

// TestEnsembleFeedbackByInput: every model is asked what it would have said, off the caller's path.
func TestEnsembleFeedbackByInput(t *testing.T) {
	release := make(chan struct{})
	answered := make(chan struct{})
	slow := func(it *scheduler.Item) {
		go func() { <-release; says(1)(it); close(answered) }()
	}
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){slow, says(2)})
	c.feed(`{"input":[1,2,3,4],"label":1,"context":"ann"}`, 202, `"pending"`)
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
		t.Errorf("everybody's shares are %v", w)
	}
}

// TestPerQueryModels: a request names whom it wants.
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
		if status, _, answer := c.post("/f/predict", "application/json", body); status != 400 || !strings.Contains(answer, want) {
			t.Errorf("%.60s is answered %d %s, want 400 and %q", body, status, answer, want)
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

func (p *planned) Members() uint64 { return p.members.Load() }
func (p *planned) Arrived(int)     {}
func (p *planned) Refuse(n int)    { p.refused.Add(int32(n)) }
func (p *planned) Refusing() bool  { return p.refusing.Load() }
func (p *planned) Wish(i int)      { p.wishes[i].Add(1) }
func (p *planned) Limits(dst []float64) []float64 {
	if p.limits == nil {
		return nil
	}
	return append(dst[:0], p.limits...)
}

// TestPlanDropsMembers: those that the plan has no room for are left out and named, unless the cache has what they say.
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
		t.Errorf("with what c said before: %+v", got)
	}
	plan.members.Store(0)
	if status, _, body := c.post("/f/predict", "application/json", `{"input":[0,1,0,1]}`); status != 503 || plan.refused.Load() != 1 {
		t.Errorf("with room for nobody: %d %s, %d refused", status, body, plan.refused.Load())
	}
}

// TestPlanLimitsABandit: what cannot be evaluated goes elsewhere, and the plan hears what was wished for.
func TestPlanLimitsABandit(t *testing.T) {
	plan := &planned{limits: []float64{0, 1}}
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(2)}, func(f *fixture) { f.fn.Choice = plan })
	for range 100 {
		if got := c.ask(input); got.Output != 2 {
			t.Fatalf("a model without room has answered: %+v", got)
		}
	}
	if a, b := plan.wishes[0].Load(), plan.wishes[1].Load(); a < 25 || b < 25 {
		t.Errorf("of 100 queries the plan heard the wishes %d and %d", a, b)
	}
	plan.refusing.Store(true)
	if status, _, body := c.post("/f/predict", "application/json", input); status != 503 || plan.refused.Load() != 1 {
		t.Errorf("a query that the plan refuses: %d %s", status, body)
	}
}

// TestShadowsAreComparedAndNeverAnswer.
func TestShadowsAreComparedAndNeverAnswer(t *testing.T) {
	shadowed := make(chan int32, 10)
	var agree atomic.Bool
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)}, func(f *fixture) {
		m := NewModel(api.ModelID{Name: "new", Version: "2"}, floats4, &lane{submit: func(it *scheduler.Item) {
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
	if err := c.shutdown(t.Context()); err != nil { // then all have been compared
		t.Fatal(err)
	}
	if same, other := c.fn.Learning.ShadowsSame.Load(), c.fn.Learning.ShadowsOther.Load(); same != 1 || other != 2 || len(shadowed) != 3 || <-shadowed != 3 {
		t.Errorf("%d were asked, %d said the same, %d something else", len(shadowed), same, other)
	}
}

// TestAllDown: with nobody to ask and nothing to wait for, the default is given at once.
func TestAllDown(t *testing.T) {
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
		if got := c.ask(input); !got.Default || got.Explanation != api.NoReplica.Reason() {
			t.Errorf("%s: answered %+v", policy, got)
		}
	}
}

// TestAskingInTwoSteps: the heaviest are asked first, the rest only where they disagree.
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

// TestStragglersDoNotHoldUpTheEnd: a caller that has its answer is nobody to wait for, whatever still runs for the cache.
func TestStragglersDoNotHoldUpTheEnd(t *testing.T) {
	held := make(chan *scheduler.Item, 1)
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), func(it *scheduler.Item) { it.Owner.Answered(it, api.DeadlineExceeded); held <- it }})
	if got := c.ask(input); fmt.Sprint(got.Late) != "[b@1]" {
		t.Errorf("answered %+v", got)
	}
	if err := c.shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	it := <-held
	it.Owner.Released(it, api.DeadlineExceeded)
}

// TestVerdictsByInput: that an answer was right or wrong is said of the answer that an ensemble would have given.
func TestVerdictsByInput(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(2)})
	c.feed(`{"input":[1,2,3,4],"correct":false}`, 202, `"pending"`)
	for i, want := range []uint64{0, 1, 1} {
		if n, sum := c.fn.Losses[i].Read(); n != want || sum != float64(want) {
			t.Errorf("candidate %d has %d losses of %v in all, want %d of 1", i, n, sum, want)
		}
	}
	one := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	one.feed(`{"input":[1,2,3,4],"label":2}`, 202, `"pending"`)
	one.feed(`{"input":[1,2,3,4],"correct":true}`, 202, `"pending"`)
	if n, sum := one.fn.Losses[0].Read(); n != 2 || sum != 1 {
		t.Errorf("the only model has %d losses of %v in all, want 2 of 1", n, sum)
	}
}

// TestLabelsAreForwarded: a model that learns by itself gets the label with the input and the context that it predicted for.
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
	id := c.ask(`{"input":[1,2,3,4],"context":"ann"}`).QueryID
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, id), 200, `"counted"`)
	want := taught{"[0 0 128 63]", "ann", "1"}
	if g := <-got; g != want {
		t.Errorf("the model was taught %+v, want %+v", g, want)
	}
	c.ask(`{"input":[1,2,3,4],"context":"bob"}`)
	c.feed(`{"input":[1,2,3,4],"context":"bob","label":0}`, 200, `"counted"`)
	want = taught{"[0 0 128 63]", "bob", "0"}
	if g := <-got; g != want {
		t.Errorf("the model was taught %+v, want %+v", g, want)
	}
	if n := c.g.joins.kept.Load(); n <= 0 {
		t.Error("inputs are kept, and not counted")
	}
}
