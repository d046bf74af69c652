package query

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// say gives feedback without HTTP; a panic is the test's failure and not the program's.
func (c *crowd) say(fn *Function, body string) (out string) {
	c.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			c.t.Errorf("feedback %s panics: %v", body, r)
		}
	}()
	f := feedbackCalls.Get().(*feedbackCall)
	if _, err := c.g.feed(fn, []byte(body), nil, f); err != nil {
		return err.Error()
	}
	return string(f.out)
}

// TestFeedbackByInputWithoutContext: a bandit's query that had no context is found by its input.
func TestFeedbackByInputWithoutContext(t *testing.T) {
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(1)})
	c.ask(input)
	c.feed(`{"input":[1,2,3,4],"label":1}`, 200, `"counted"`)
}

// TestFeedbackAfterTheOutputsChanged: a query that was answered by an earlier version with other outputs is no reason to fall over.
func TestFeedbackAfterTheOutputsChanged(t *testing.T) {
	wide := api.Signature{Inputs: floats4.Inputs, Outputs: []api.TensorSpec{{Name: "output", DType: api.Float64, Shape: []int64{4}}}}
	c := gather(t, "exp4", nil, wide, []func(*scheduler.Item){func(it *scheduler.Item) {
		end(it, api.OK, appendNumbers(nil, api.Float64, []float64{1, 2, 3, 4}))
	}})
	_, _, answer := c.post("/f/predict", "application/json", input)
	var p struct {
		QueryID uint64 `json:"query_id"`
	}
	if err := json.Unmarshal([]byte(answer), &p); err != nil {
		t.Fatal(err, answer)
	}
	next := *c.fn // version 2 of the model answers with one float
	next.Candidates = []Candidate{{Model: NewModel(api.ModelID{Name: "a", Version: "2"}, floatsOut, c.lanes[0], 0, new(obs.Endpoint)), Queue: 1}}
	next.Averages = NewAverages(floatsOut, 1)
	c.g.Publish(&Table{Functions: map[string]*Function{"f": &next}})
	c.say(&next, fmt.Sprintf(`{"query_id":%d,"label":1.5}`, p.QueryID))
}

// TestOfAnotherFunctionsPredictions: what was copied for one feedback is not another's.
func TestOfAnotherFunctionsPredictions(t *testing.T) {
	large := api.Signature{Inputs: floats4.Inputs, Outputs: []api.TensorSpec{{Name: "output", DType: api.Float64, Shape: []int64{1000}}}}
	c := gather(t, "exp4", nil, large, []func(*scheduler.Item){func(it *scheduler.Item) {
		end(it, api.OK, appendNumbers(nil, api.Float64, make([]float64, 1000)))
	}})
	_, _, answer := c.post("/f/predict", "application/json", input)
	var p struct {
		QueryID uint64 `json:"query_id"`
	}
	if err := json.Unmarshal([]byte(answer), &p); err != nil {
		t.Fatal(err)
	}
	f := feedbackCalls.New().(*feedbackCall)
	f.joined.data[0] = make([]byte, 8) // as after the feedback of a function with one float
	label, _ := json.Marshal(make([]float64, 1000))
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panics: %v", r)
		}
	}()
	_, err := c.g.feed(c.fn, []byte(fmt.Sprintf(`{"query_id":%d,"label":%s}`, p.QueryID, label)), nil, f)
	if n, _ := c.fn.Losses[0].Read(); n != 0 {
		t.Errorf("a prediction that was not kept was judged (%v)", err)
	}
}

// TestStaleEndToEnd is the same by HTTP alone: function g with one float, then f with many.
func TestStaleEndToEnd(t *testing.T) {
	large := api.Signature{Inputs: floats4.Inputs, Outputs: []api.TensorSpec{{Name: "output", DType: api.Float64, Shape: []int64{1000}}}}
	c := gather(t, "exp4", nil, large, []func(*scheduler.Item){func(it *scheduler.Item) {
		end(it, api.OK, appendNumbers(nil, api.Float64, make([]float64, 1000)))
	}})
	m := NewModel(api.ModelID{Name: "s", Version: "1"}, floatsOut, &lane{submit: saysFloat(1)}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	p, _ := selection.New("exp4", nil, []string{"s"})
	small := &Function{Name: "g", SLO: time.Minute, Candidates: []Candidate{{Model: m}}, Selects: true, Mode: p.Mode(), Selector: c.table.Declare("g", p, []string{"s"}),
		Learning: new(obs.Learning), Losses: make([]obs.Loss, 1), Averages: NewAverages(floatsOut, 1), Stats: new(obs.Endpoint)}
	c.g.Publish(&Table{Functions: map[string]*Function{"f": c.fn, "g": small}})
	label, _ := json.Marshal(make([]float64, 1000))
	id := func(path string) uint64 {
		_, _, answer := c.post(path, "application/json", input)
		var q struct {
			QueryID uint64 `json:"query_id"`
		}
		json.Unmarshal([]byte(answer), &q)
		return q.QueryID
	}
	a, b := id("/g/predict"), id("/f/predict")
	c.say(small, fmt.Sprintf(`{"query_id":%d,"label":1}`, a))
	f := feedbackCalls.Get().(*feedbackCall)
	if _, err := c.g.feed(small, []byte(fmt.Sprintf(`{"query_id":%d,"label":1}`, id("/g/predict"))), nil, f); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panics: %v", r)
		}
	}()
	c.g.feed(c.fn, []byte(fmt.Sprintf(`{"query_id":%d,"label":%s}`, b, label)), nil, f)
}

// TestVerdictByInputWithEverybodyDown: nobody can be asked, and that is all.
func TestVerdictByInputWithEverybodyDown(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(1)}, withDefault("-1"), func(f *fixture) {
		for _, cand := range f.fn.Candidates {
			cand.Model.Ready.Store(0)
			cand.Model.Down.Store(true)
		}
	})
	c.say(c.fn, `{"input":[1,2,3,4],"correct":true}`)
	if n := c.g.asking.Load(); n != 0 {
		t.Errorf("%d feedbacks are still being asked for", n)
	}
}

// TestVerdictByInputWithEverybodyDownHTTP: and the caller is answered.
func TestVerdictByInputWithEverybodyDownHTTP(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(1)}, withDefault("-1"), func(f *fixture) {
		for _, cand := range f.fn.Candidates {
			cand.Model.Ready.Store(0)
			cand.Model.Down.Store(true)
		}
	})
	con, r := c.raw()
	con.SetDeadline(time.Now().Add(3 * time.Second))
	fmt.Fprint(con, request("/f/feedback", `{"input":[1,2,3,4],"correct":true}`))
	if _, err := r.ReadByte(); err != nil {
		t.Errorf("no answer: %v; %d calls open", err, c.g.Open())
	}
}

// TestContextsBeforeTheFirstReplica: what one user's context has led to is not another's, also before the model has said
// that it sees contexts.
func TestContextsBeforeTheFirstReplica(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { items <- it }}, cached, func(f *fixture) {
		f.fn.Candidates[0].Model.Ready.Store(0)
		f.fn.Candidates[0].Model.Told.Store(false)
		f.fn.ColdStart = time.Minute
	})
	answers := make(chan prediction, 2)
	go func() { answers <- c.ask(`{"input":[1,2,3,4],"context":"ann"}`) }()
	ann := <-items
	go func() { answers <- c.ask(`{"input":[1,2,3,4],"context":"bob"}`) }()
	stop := time.After(2 * time.Second)
	var bob *scheduler.Item
	for bob == nil && c.fn.Candidates[0].Model.Cache.Stats().Coalesced == 0 {
		select {
		case bob = <-items:
		case <-stop:
			t.Fatal("nothing")
		default:
		}
	}
	m := c.fn.Candidates[0].Model
	m.Contextual.Store(true)
	m.Told.Store(true)
	m.Ready.Store(1)
	says(11)(ann)
	if bob == nil {
		t.Error("bob waits for ann's answer")
	} else {
		says(22)(bob)
	}
	<-answers
	<-answers
	if got := func() prediction {
		p := make(chan prediction, 1)
		go func() { p <- c.ask(input) }()
		select {
		case it := <-items:
			says(33)(it)
		case got := <-p:
			return got
		}
		return <-p
	}(); got.Output != 33 {
		t.Errorf("who has no context is answered %v, which was for ann", got.Output)
	}
}

// TestTwoLeadersThatLeave: whose client is still there is not told that it has left.
func TestTwoLeadersThatLeave(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { items <- it }}, cached)
	type result struct {
		status int
		body   string
	}
	answers := make(chan result, 10)
	for i := range 3 {
		go func() {
			s, _, b := c.post("/f/predict", "application/json", input)
			answers <- result{s, b}
		}()
		if i == 0 {
			first := <-items
			go func() { c.waitCoalesced(2); end(first, api.Cancelled) }()
		}
	}
	second := <-items // one of the others has it now
	poll(t, func() bool { return c.fn.Candidates[0].Model.Cache.Stats().Coalesced >= 3 })
	end(second, api.Cancelled)
	cancelled := 0
	for n := 0; n < 3; {
		select {
		case it := <-items:
			sum(it)
		case r := <-answers:
			n++
			if r.status == 499 {
				cancelled++
			}
		}
	}
	if cancelled != 2 {
		t.Errorf("%d queries are answered as cancelled, 2 clients have left", cancelled)
	}
}

// feed is a request of feedback.
func (g *Path) feed(fn *Function, body, context []byte, f *feedbackCall) (int, error) {
	inputs := g.newCall()
	defer inputs.drop()
	return g.feedback(fn, inputs, body, context, f)
}

// TestJoinsForgetLargeInputs: what is not kept takes no memory.
func TestJoinsForgetLargeInputs(t *testing.T) {
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){says(1), says(1)}, func(f *fixture) {
		f.fn.Candidates[0].Model.Teachable.Store(true)
		f.g.joins = newJoins(512, &f.g.ids)
	})
	big := make([]byte, 1<<20)
	cl := c.g.newCall()
	cl.fn = c.fn
	cl.model = c.fn.Candidates[0].Model
	in, _ := cl.Next()
	in[0].Data = big
	it := cl.items[0]
	for range 512 {
		it.begin(c.g.ids.id(c.g.ids.take(1)))
		it.scratchpad()
		c.g.joins.put(it)
	}
	total := 0
	for i := range c.g.joins.slots {
		total += cap(c.g.joins.slots[i].packed)
	}
	if total > 2*keptInputBytes {
		t.Errorf("%d MiB are held, %d MiB may be kept", total>>20, keptInputBytes>>20)
	}
	cl.drop()
}

// TestVerdictOnADefault: that the default output was right says nothing of models whose answer was not given.
func TestVerdictOnADefault(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2), says(3), says(3), says(4)}, withDefault("-1"),
		func(f *fixture) { f.fn.MinConfidence = 0.6 })
	got := c.ask(input)
	if !got.Default {
		t.Fatal(got)
	}
	out := c.say(c.fn, fmt.Sprintf(`{"query_id":%d,"correct":true}`, got.QueryID))
	for i := range 5 {
		if n, sum := c.fn.Losses[i].Read(); n != 0 {
			t.Errorf("candidate %d is credited with a loss of %v for a default output (%s)", i, sum, out)
		}
	}
}

// TestShadowsCodeIsNotRead (with -race): a shadow that ends while the answer is made is not looked at.
func TestShadowsCodeIsNotRead(t *testing.T) {
	var done sync.WaitGroup
	c := gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){saysFloat(1), fails(api.DeadlineExceeded)}, func(f *fixture) {
		m := NewModel(api.ModelID{Name: "new", Version: "2"}, floatsOut, &lane{submit: func(it *scheduler.Item) {
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

// TestTwoMembersAskAgain (with -race): members of one query that ask for themselves at the same time do not share memory.
func TestTwoMembersAskAgain(t *testing.T) {
	type got struct {
		lane int
		it   *scheduler.Item
	}
	items := make(chan got, 64)
	at := func(i int) func(*scheduler.Item) { return func(it *scheduler.Item) { items <- got{i, it} } }
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){at(0), at(1), at(2), at(3)}, cached)
	for n := range 50 {
		body := fmt.Sprintf(`{"input":[%d,2,3,4]}`, n)
		answers := make(chan int, 2)
		post := func() {
			s, _, _ := c.post("/f/predict", "application/json", body)
			answers <- s
		}
		go post()
		var lead []got
		for range 4 {
			lead = append(lead, <-items)
		}
		go post()
		for i := range c.fn.Candidates {
			poll(t, func() bool { return c.fn.Candidates[i].Model.Cache.Stats().Coalesced >= uint64(n+1) })
		}
		start := make(chan struct{})
		for _, l := range lead {
			go func() { <-start; end(l.it, api.Overloaded) }()
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

// poll looks until it is so.
func poll(t *testing.T, so func() bool) {
	t.Helper()
	look, late := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer look.Stop()
	for !so() {
		select {
		case <-look.C:
		case <-late:
			t.Fatal("it did not come to that within 30 s")
		}
	}
}

// ringer is told of an alarm.
type ringer func()

func (r ringer) Ring(*driver.Alarm) { r() }

// slowOwner lets a test hold up a waiter that is told.
type slowOwner struct{ hold chan struct{} }

func (s *slowOwner) Filled(*cache.Waiter)           { <-s.hold }
func (s *slowOwner) Failed(*cache.Waiter, api.Code) { <-s.hold }

// TestShadowsAlarmAndFill: a shadow that waits for another's evaluation, whose deadline comes while those before it are being told.
func TestShadowsAlarmAndFill(t *testing.T) {
	var shadow *Model
	held := make(chan *scheduler.Item, 1)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)}, func(f *fixture) {
		shadow = NewModel(api.ModelID{Name: "new", Version: "2"}, floats4, &lane{submit: func(it *scheduler.Item) { held <- it }}, 0, new(obs.Endpoint))
		shadow.Cache = f.g.cfg.Cache.Model()
		shadow.Told.Store(true)
		shadow.CacheOn.Store(true)
		shadow.Ready.Store(1)
		f.fn.Shadows = []Shadow{{Candidate: Candidate{Model: shadow, Queue: 3}, Part: 1}}
	})
	in := []api.Value{{Data: appendNumbers(nil, api.Float32, []float64{1, 2, 3, 4})}}
	key := c.g.cfg.Cache.Key(nil, in)
	owner := &slowOwner{hold: make(chan struct{})}
	leader, slow := &cache.Waiter{Owner: owner}, &cache.Waiter{Owner: owner, Until: api.Never}
	if o := shadow.Cache.Request(key, nil, in, leader); o != cache.Lead {
		t.Fatal(o)
	}
	if o := shadow.Cache.Request(key, nil, in, slow); o != cache.Wait {
		t.Fatal(o)
	}
	c.ask(input, "Xebec-Slo-Ms", "300") // answered by a; its shadow waits
	if shadow.Cache.Stats().Coalesced != 2 {
		t.Fatalf("%+v", shadow.Cache.Stats())
	}
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		leader.Fill([]api.Value{{Data: int64Bytes(1)}}, 1)
	}()
	rung := make(chan struct{})
	var later driver.Alarm
	later.Owner = ringer(func() { close(rung) })
	c.g.cfg.Timers.Set(&later, c.g.cfg.Now()+api.Nanos(400*time.Millisecond))
	<-rung // after its deadline
	close(owner.hold)
	if p := <-panicked; p != nil {
		t.Errorf("panics: %v", p)
	}
}

// TestSecondStepKeepsTheDeadline: a model that has lost its replicas since the query came does not keep the others' answer.
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

// TestHurriedFollower: who has 20 ms does not wait behind a query that has ten minutes.
func TestHurriedFollower(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) {
		if it.Deadline-it.Arrived > api.Nanos(time.Minute) {
			items <- it // the lane has more urgent ones to do first
		} else {
			sum(it)
		}
	}}, cached, withDefault("-1"), func(f *fixture) { f.fn.SLO = 100 * time.Millisecond })
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		c.post("/f/predict", "application/json", input, "Xebec-Slo-Ms", "600000")
	}()
	it := <-items
	if got := c.ask(input); got.Default {
		t.Errorf("a query with 100 ms is answered %+v: it waited for one with ten minutes", got)
	}
	sum(it)
	<-asked
}
