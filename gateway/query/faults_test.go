package query

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// TestFeedbackByInputWithoutContext: a bandit's query without a context is found by its input.
func TestFeedbackByInputWithoutContext(t *testing.T) {
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(1)})
	c.ask(input)
	c.feed(`{"input":[1,2,3,4],"label":1}`, Counted)
}

// zeros answers every query with so many zeros.
func zeros(n int) func(*scheduler.Item) {
	return func(it *scheduler.Item) {
		querytest.End(it, api.OK, api.Float64.AppendNumbers(nil, make([]float64, n)))
	}
}

// floatsList is floats4 with n floats for an answer.
func floatsList(n int64) api.Signature {
	return api.Signature{Inputs: floats4.Inputs, Outputs: []api.TensorSpec{{Name: "output", DType: api.Float64, Shape: []int64{n}}}}
}

// TestFeedbackAfterTheOutputsChanged: feedback for a query that an earlier version has answered, with other outputs, is too late.
func TestFeedbackAfterTheOutputsChanged(t *testing.T) {
	c := gather(t, "exp4", nil, floatsList(4), []func(*scheduler.Item){zeros(4)})
	id := c.ask(input).ID
	next := *c.fn // version 2 of the model answers with one float
	next.Candidates = []Candidate{{Model: NewModel(api.ModelID{Name: "a", Version: "2"}, floatsOut, c.lanes[0], 0, new(obs.Endpoint)), Queue: 1}}
	next.Averages = NewAverages(floatsOut, 0, 1)
	c.p.Publish(&Table{Functions: map[string]*Function{"f": &next}})
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":1.5}`, id), TooLate)
}

// TestFeedbackBuffersAreCleared: what was copied for one feedback is not used for the next.
func TestFeedbackBuffersAreCleared(t *testing.T) {
	c := gather(t, "exp4", nil, floatsList(1000), []func(*scheduler.Item){zeros(1000)})
	id := c.ask(input).ID
	w := newWait(c.p)
	w.Open()
	defer w.Drop()
	if err := w.AskFeedback("f"); err != nil {
		t.Fatal(err)
	}
	w.feedback = new(joinedFeedback)
	w.feedback.joined.data[0] = make([]byte, 8) // as after the feedback of a function with one float
	label := []api.Value{{Data: make([]byte, 8000)}}
	outcome := w.Learn(&Feedback{QueryID: id, Verdict: VerdictLabel, Label: label})
	if n, _ := c.fn.Losses[0].Read(); n != 0 || outcome != NothingToLearn {
		t.Errorf("%v: %d losses of a prediction that was not kept", outcome, n)
	}
}

// TestFeedbackOfTwoFunctions is the same with feedback for g, which has one float, before that for f, which has many.
func TestFeedbackOfTwoFunctions(t *testing.T) {
	c := gather(t, "exp4", nil, floatsList(1000), []func(*scheduler.Item){zeros(1000)})
	m := NewModel(api.ModelID{Name: "s", Version: "1"}, floatsOut, &querytest.Lane{Submit: saysFloat(1)}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	p, err := selection.New("exp4", nil, []string{"s"})
	if err != nil {
		t.Fatal(err)
	}
	small := &Function{Name: "g", SLO: time.Minute, Candidates: []Candidate{{Model: m}}, Selects: true, Mode: p.Mode(), Selector: c.table.Declare("g", p, []string{"s"}),
		Learning: new(obs.Learning), Losses: make([]obs.Loss, 1), Averages: NewAverages(floatsOut, 0, 1), Stats: new(obs.Endpoint)}
	c.p.Publish(&Table{Functions: map[string]*Function{"f": c.fn, "g": small}})
	in := [][]api.Value{{{Data: make([]byte, 16)}}}
	id := func(function string) uint64 {
		answers, err := c.p.Do(t.Context(), &Queries{Function: function, Inputs: in}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return answers[0].ID
	}
	first, second, large := id("g"), id("g"), id("f")
	w := newWait(c.p) // one request's memory for all of them
	for _, step := range []struct {
		function string
		id       uint64
		label    int // bytes
		want     Outcome
	}{{"g", first, 8, Counted}, {"g", second, 8, Counted}, {"f", large, 8000, NothingToLearn}} {
		w.Open()
		if err := w.AskFeedback(step.function); err != nil {
			t.Fatal(err)
		}
		f := &Feedback{QueryID: step.id, Verdict: VerdictLabel, Label: []api.Value{{Data: make([]byte, step.label)}}}
		if got := w.Learn(f); got != step.want {
			t.Errorf("feedback for %s: %v, want %v", step.function, got, step.want)
		}
		w.Drop()
	}
}

// TestVerdictByInputWithEveryModelDown: no model can be asked, and both the request and the feedback end.
func TestVerdictByInputWithEveryModelDown(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(1)}, withDefault("-1"), func(f *fixture) {
		for _, cand := range f.fn.Candidates {
			cand.Model.Ready.Store(0)
			cand.Model.Down.Store(true)
		}
	})
	c.feed(`{"input":[1,2,3,4],"correct":true}`, Pending)
	if n := c.p.asking.Load(); n != 0 {
		t.Errorf("%d feedbacks still wait for predictions", n)
	}
	if n := c.p.Open(); n != 0 {
		t.Errorf("%d requests are open", n)
	}
}

// TestContextsBeforeTheFirstReplica: the answer for one user's context is not another's, also before the model has declared that it sees
// contexts.
func TestContextsBeforeTheFirstReplica(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { items <- it }}, cached, func(f *fixture) {
		f.fn.Candidates[0].Model.Ready.Store(0)
		f.fn.Candidates[0].Model.CapabilitiesKnown.Store(false)
		f.fn.ColdStart = time.Minute
	})
	answers := make(chan prediction, 2)
	go func() { answers <- c.ask(`{"input":[1,2,3,4],"context":"ann"}`) }()
	ann := <-items
	go func() { answers <- c.ask(`{"input":[1,2,3,4],"context":"bob"}`) }()
	var bob *scheduler.Item
	poll(t, func() bool {
		select {
		case bob = <-items:
		default:
		}
		return bob != nil || c.fn.Candidates[0].Model.Cache.Stats().Coalesced > 0
	})
	m := c.fn.Candidates[0].Model
	m.Contextual.Store(true)
	m.CapabilitiesKnown.Store(true)
	m.Ready.Store(1)
	says(11)(ann)
	if bob == nil {
		t.Error("bob waits for ann's answer")
	} else {
		says(22)(bob)
	}
	<-answers
	<-answers
	without := make(chan prediction, 1)
	go func() { without <- c.ask(input) }()
	select {
	case it := <-items:
		says(33)(it)
		<-without
	case got := <-without:
		t.Errorf("a query without a context is answered %v, which was for another", got.Output)
	}
}

// TestTwoCancelledLeaders: a query whose client is still there does not end as cancelled.
func TestTwoCancelledLeaders(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { items <- it }}, cached)
	answers := make(chan api.Code, 10)
	for i := range 3 {
		go func() { answers <- c.code(input) }()
		if i == 0 {
			first := <-items
			go func() { c.waitCoalesced(2); querytest.End(first, api.Cancelled) }()
		}
	}
	second := <-items // one of the others has it now
	poll(t, func() bool { return c.fn.Candidates[0].Model.Cache.Stats().Coalesced >= 3 })
	querytest.End(second, api.Cancelled)
	cancelled := 0
	for n := 0; n < 3; {
		select {
		case it := <-items:
			querytest.Sum(it)
		case code := <-answers:
			n++
			if code == api.Cancelled {
				cancelled++
			}
		}
	}
	if cancelled != 2 {
		t.Errorf("%d queries are answered as cancelled, 2 clients have left", cancelled)
	}
}

// TestJoinsForgetLargeInputs: inputs beyond the bound take no memory.
func TestJoinsForgetLargeInputs(t *testing.T) {
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(1)}, func(f *fixture) {
		f.fn.Candidates[0].Model.Teachable.Store(true)
		f.p.joins = newJoins(512, DefaultFeedbackBytes, &f.p.ids)
	})
	w := newWait(c.p)
	w.Open()
	w.askFunction(c.fn)
	in, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	in[0].Data = make([]byte, 1<<20)
	q := w.Query(0)
	for range 512 {
		q.begin(c.p.ids.id(c.p.ids.take(1)))
		q.scratchpad()
		c.p.joins.put(q)
	}
	total := 0
	for i := range c.p.joins.slots {
		total += cap(c.p.joins.slots[i].packed)
	}
	if total > 2*DefaultFeedbackBytes {
		t.Errorf("%d MiB are held, %d MiB may be kept", total>>20, DefaultFeedbackBytes>>20)
	}
	w.Drop()
}

// TestVerdictOnADefault: a verdict on the default output is no loss of the models whose answers were not used.
func TestVerdictOnADefault(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(3), says(3), says(4)}, withDefault("-1"),
		func(f *fixture) { f.fn.MinConfidence = 0.6 })
	got := c.ask(input)
	if !got.Default {
		t.Fatal(got)
	}
	c.feed(fmt.Sprintf(`{"query_id":%d,"correct":true}`, got.ID), NothingToLearn)
	for i := range 5 {
		if n, sum := c.fn.Losses[i].Read(); n != 0 {
			t.Errorf("candidate %d has a loss of %v for a default output", i, sum)
		}
	}
}

// TestCombineIgnoresShadows (with -race): combining does not look at a shadow, which may be ending.
func TestCombineIgnoresShadows(t *testing.T) {
	var done sync.WaitGroup
	c := gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){saysFloat(1), fails(api.DeadlineExceeded)}, func(f *fixture) {
		m := NewModel(api.ModelID{Name: "new", Version: "2"}, floatsOut, &querytest.Lane{Submit: func(it *scheduler.Item) {
			done.Add(1)
			go func() { defer done.Done(); saysFloat(1)(it) }()
		}}, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		f.fn.Shadows = []Shadow{{Candidate: Candidate{Model: m, Queue: 3}, Part: 1}}
	})
	for range 200 {
		c.ask(input)
	}
	done.Wait()
}

// TestTwoMembersRetryAtOnce (with -race): members of one query that retry at the same time do not share memory.
func TestTwoMembersRetryAtOnce(t *testing.T) {
	type got struct {
		lane int
		it   *scheduler.Item
	}
	items := make(chan got, 64)
	at := func(i int) func(*scheduler.Item) { return func(it *scheduler.Item) { items <- got{i, it} } }
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){at(0), at(1), at(2), at(3)}, cached)
	for n := range 50 {
		body := fmt.Sprintf(`{"input":[%d,2,3,4]}`, n)
		answers := make(chan api.Code, 2)
		ask := func() { answers <- c.code(body) }
		go ask()
		var lead []got
		for range 4 {
			lead = append(lead, <-items)
		}
		go ask()
		for i := range c.fn.Candidates {
			poll(t, func() bool { return c.fn.Candidates[i].Model.Cache.Stats().Coalesced >= uint64(n+1) })
		}
		start := make(chan struct{})
		for _, l := range lead {
			go func() { <-start; querytest.End(l.it, api.Overloaded) }()
		}
		close(start)
		seen := map[int]bool{}
		timeout := time.After(5 * time.Second)
		for range 4 {
			select {
			case g := <-items:
				if seen[g.lane] || g.it.Owner.(*member).model != c.fn.Candidates[g.lane].Model {
					t.Fatalf("round %d: lane %d got the query of %s", n, g.lane, g.it.Owner.(*member).model.ID)
				}
				seen[g.lane] = true
				says(1)(g.it)
			case <-timeout:
				t.Fatalf("round %d: only lanes %v were asked again", n, seen)
			}
		}
		<-answers
		<-answers
	}
}

// ringer is an alarm's owner.
type ringer func()

func (r ringer) Ring(*driver.Alarm) { r() }

// slowOwner lets a test hold up a waiter's owner.
type slowOwner struct{ hold chan struct{} }

func (s *slowOwner) Filled(*cache.Waiter)           { <-s.hold }
func (s *slowOwner) Failed(*cache.Waiter, api.Code) { <-s.hold }

// TestShadowDeadlineDuringFill: a shadow waits for another query's evaluation, and its deadline comes while earlier waiters are being called.
func TestShadowDeadlineDuringFill(t *testing.T) {
	var shadow *Model
	held := make(chan *scheduler.Item, 1)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)}, func(f *fixture) {
		shadow = NewModel(api.ModelID{Name: "new", Version: "2"}, floats4, &querytest.Lane{Submit: func(it *scheduler.Item) { held <- it }}, 0, new(obs.Endpoint))
		shadow.Cache = f.p.cfg.Cache.Model()
		shadow.CapabilitiesKnown.Store(true)
		shadow.CacheOn.Store(true)
		shadow.Ready.Store(1)
		f.fn.Shadows = []Shadow{{Candidate: Candidate{Model: shadow, Queue: 3}, Part: 1}}
	})
	in := []api.Value{{Data: api.Float32.AppendNumbers(nil, []float64{1, 2, 3, 4})}}
	key := c.p.cfg.Cache.Key(nil, in)
	owner := &slowOwner{hold: make(chan struct{})}
	leader, slow := &cache.Waiter{Owner: owner}, &cache.Waiter{Owner: owner, Until: api.Never}
	if o := shadow.Cache.Request(key, nil, in, leader); o != cache.Lead {
		t.Fatal(o)
	}
	if o := shadow.Cache.Request(key, nil, in, slow); o != cache.Wait {
		t.Fatal(o)
	}
	c.ask(input, 300*time.Millisecond) // answered by a; its shadow waits
	if shadow.Cache.Stats().Coalesced != 2 {
		t.Fatalf("%+v", shadow.Cache.Stats())
	}
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		leader.Fill([]api.Value{{Data: querytest.Int64(1)}}, 1)
	}()
	rung := make(chan struct{})
	var later driver.Alarm
	later.Owner = ringer(func() { close(rung) })
	c.p.cfg.Timers.Set(&later, c.p.cfg.Now()+api.Nanos(400*time.Millisecond))
	<-rung // after its deadline
	close(owner.hold)
	if p := <-panicked; p != nil {
		t.Errorf("panics: %v", p)
	}
}

// TestSecondStepKeepsTheDeadline: a model that has lost its replicas since the query came does not delay the others' answer.
func TestSecondStepKeepsTheDeadline(t *testing.T) {
	var third atomic.Pointer[Model]
	deadline := make(chan time.Duration, 1)
	c := gather(t, "exp4", map[string]any{"first": 2.0, "explore": 0.0}, floats4, []func(*scheduler.Item){says(1), func(it *scheduler.Item) {
		third.Load().Ready.Store(0) // its last replica dies
		says(2)(it)
	}, func(it *scheduler.Item) {
		deadline <- time.Duration(it.Deadline - it.Arrived)
		says(2)(it)
	}}, func(f *fixture) {
		third.Store(f.fn.Candidates[2].Model)
		f.fn.SLO, f.fn.ColdStart = 50*time.Millisecond, 30*time.Second
	})
	c.ask(input)
	if d := <-deadline; d > 50*time.Millisecond {
		t.Errorf("the third may take %v, the query 50ms", d)
	}
}

// TestUrgentFollower: a query with 100 ms does not wait behind an equal one with ten minutes.
func TestUrgentFollower(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) {
		if it.Deadline-it.Arrived > api.Nanos(time.Minute) {
			items <- it // the lane has more urgent ones to do first
		} else {
			querytest.Sum(it)
		}
	}}, cached, withDefault("-1"), func(f *fixture) { f.fn.SLO = 100 * time.Millisecond })
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		c.ask(input, MaxSLO)
	}()
	it := <-items
	if got := c.ask(input); got.Default {
		t.Errorf("a query with 100 ms is answered %+v: it waited for one with ten minutes", got)
	}
	querytest.Sum(it)
	<-asked
}
