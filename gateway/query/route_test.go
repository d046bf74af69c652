package query

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
)

// other makes another version of candidate i, "…@2", which answers as the test says.
func (c *crowd) other(i int, answer func(*scheduler.Item)) *Model {
	id := c.fn.Candidates[i].Model.ID
	id.Version = "2"
	m := NewModel(id, c.fn.Candidates[i].Model.Signature, &querytest.Lane{Submit: answer}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	return m
}

// republish puts a changed copy of the function in place.
func (c *crowd) republish(change func(fn *Function)) {
	fn := *c.fn
	fn.Candidates = append([]Candidate(nil), c.fn.Candidates...)
	change(&fn)
	c.fn = &fn
	t := *c.p.table.Load()
	t.Functions = map[string]*Function{"f": &fn}
	c.p.Publish(&t)
}

// TestSplit: a part of the queries without a context goes to the other version. A context always has the same version, and keeps the other one
// when the part grows.
func TestSplit(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	rule := NewRule("a", nil)
	rule.SetPart(0.3)
	c.republish(func(fn *Function) { fn.Candidates[0].Route = &Route{Rule: rule, Model: c.other(0, says(2)), Queue: 1} })
	const n = 600
	moved := 0
	for range n {
		p := c.ask(input)
		if want := fmt.Sprintf("a@%.0f", p.Output); len(p.Models) != 1 || p.Models[0] != want {
			t.Fatalf("%v answered %v", p.Models, p.Output)
		}
		if p.Output == 2 {
			moved++
		}
	}
	if moved < n/5 || moved > 2*n/5 {
		t.Errorf("%d of %d queries went to the other version: expected 30 %%", moved, n)
	}
	if got := rule.Serving.Queries.Load() + rule.Other.Queries.Load(); got != n || rule.Other.Latency.Count() != uint64(moved) {
		t.Errorf("%d answers were counted, %d of the other version timed: expected %d and %d", got, rule.Other.Latency.Count(), n, moved)
	}
	version := func(user int) float64 {
		body := fmt.Sprintf(`{"input":[1,2,3,4],"context":"user%d"}`, user)
		first := c.ask(body).Output
		if again := c.ask(body).Output; again != first {
			t.Fatalf("user %d had version %v, and then %v", user, first, again)
		}
		return first
	}
	before := map[int]float64{}
	for user := range 200 {
		before[user] = version(user)
	}
	rule.SetPart(0.6)
	for user, was := range before {
		if now := version(user); was == 2 && now != 2 {
			t.Errorf("user %d was moved back when the part grew", user)
		}
	}
}

// TestSplitOfAnEnsemble: the policy learns about the candidate, whichever of its versions answers, and the rule about the version.
func TestSplitOfAnEnsemble(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(7)})
	rule := NewRule("a", nil)
	rule.SetPart(1)
	c.republish(func(fn *Function) { fn.Candidates[0].Route = &Route{Rule: rule, Model: c.other(0, says(7)), Queue: 1} })
	p := c.ask(input)
	if p.Output != 7 || strings.Join(p.Models, " ") != "a@2 b@1" {
		t.Fatalf("answered %+v", p)
	}
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, p.ID), Counted)
	n, sum := rule.Other.Losses.Read()
	if n != 1 || sum != 1 || rule.Other.Squares.Load() != 1 {
		t.Errorf("the other version has %d losses with the sum %v: expected one of 1", n, sum)
	}
	if n, _ := rule.Serving.Losses.Read(); n != 0 {
		t.Error("the serving version has the loss of an answer that it did not give")
	}
}

// TestForcedVersion: a request that names a version gets it, on either side of the rule.
func TestForcedVersion(t *testing.T) {
	for _, policy := range []string{"single", "exp3"} {
		models := []func(*scheduler.Item){says(1)}
		if policy == "exp3" {
			models = append(models, says(5))
		}
		c := gather(t, policy, nil, floats4, models)
		rule := NewRule("a", nil)
		rule.SetPart(0.5)
		c.republish(func(fn *Function) { fn.Candidates[0].Route = &Route{Rule: rule, Model: c.other(0, says(2)), Queue: 1} })
		for range 20 {
			for _, v := range []float64{1, 2} {
				if p := c.ask(fmt.Sprintf(`{"input":[1,2,3,4],"models":["a@%.0f"]}`, v)); p.Output != v {
					t.Fatalf("%s: a@%v was named, and %v answered", policy, v, p.Models)
				}
			}
			if p := c.ask(`{"input":[1,2,3,4],"version":"2"}`); p.Output != 2 {
				t.Fatalf("%s: version 2 was named, and %v answered", policy, p.Models)
			}
		}
		if got, err := c.try(`{"input":[1,2,3,4],"models":["a@3"]}`); err == nil {
			t.Errorf("%s: a version that is not there: %+v", policy, got)
		}
	}
}

// TestRouteWithoutReplica: the version that has a replica answers; if neither may be asked, the caller gets the default at once.
func TestRouteWithoutReplica(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)}, withDefault("-1"))
	rule := NewRule("a", nil)
	rule.SetPart(0.5)
	other := c.other(0, says(2))
	c.republish(func(fn *Function) { fn.Candidates[0].Route = &Route{Rule: rule, Model: other, Queue: 1} })
	serving := c.fn.Candidates[0].Model
	expect := func(want float64) {
		t.Helper()
		for range 30 {
			if p := c.ask(input); p.Output != want {
				t.Fatalf("answered %v: expected %v", p.Output, want)
			}
		}
	}
	other.Ready.Store(0)
	expect(1)
	other.Ready.Store(1)
	serving.Ready.Store(0)
	expect(2)
	other.Closed.Store(true)
	serving.Closed.Store(true)
	expect(-1)
	serving.Ready.Store(1)
	expect(-1)
	serving.Closed.Store(false)
	expect(1)
}

// TestRolloutLearns: feedback moves the answers to the better version, within the limit.
func TestRolloutLearns(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	refs := []string{"a@1", "a@2"}
	p, err := selection.New("exp3", map[string]any{"eta": 0.2}, refs)
	if err != nil {
		t.Fatal(err)
	}
	selector := learned.New(learned.Config{}).Declare("a (rollout)", p, refs)
	rule := NewRule("a", selector)
	rule.SetPart(1)
	c.republish(func(fn *Function) { fn.Candidates[0].Route = &Route{Rule: rule, Model: c.other(0, says(2)), Queue: 1} })
	for range 400 {
		answer := c.ask(input)
		c.feed(fmt.Sprintf(`{"query_id":%d,"label":2}`, answer.ID), Counted)
	}
	shares := make([]float64, 2)
	selector.Shares(shares)
	if shares[1] < 0.8 {
		t.Errorf("the better version has %.2f of the answers after 400 judged ones", shares[1])
	}
	rule.SetPart(0)
	for range 50 {
		if answer := c.ask(input); answer.Output != 1 {
			t.Fatalf("the limit is 0, and %v answered", answer.Models)
		}
	}
}

// TestTee: the other version is asked too, and its answers are compared but never returned. No caller waits for it when it hangs or fails.
func TestTee(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	seen := new(Comparison)
	var answer atomic.Pointer[func(*scheduler.Item)]
	set := func(a func(*scheduler.Item)) { answer.Store(&a) }
	other := c.other(0, func(it *scheduler.Item) { (*answer.Load())(it) })
	c.republish(func(fn *Function) {
		fn.Tees = []Tee{{Candidate: Candidate{Model: other, Queue: 2}, Part: 1, Compared: seen}}
	})
	for _, behaviour := range []func(*scheduler.Item){says(1), says(2), fails(api.ModelError)} {
		set(behaviour)
		for range 10 {
			c.ask(`{"input_batch":[[1,2,3,4]]}`)
			if p := c.ask(input); p.Output != 1 || strings.Join(p.Models, " ") != "a@1" {
				t.Fatalf("answered %+v", p)
			}
		}
	}
	var held sync.WaitGroup
	release := make(chan struct{})
	held.Add(5)
	set(func(it *scheduler.Item) {
		go func() {
			defer held.Done()
			<-release
			querytest.End(it, api.DeadlineExceeded)
		}()
	})
	for range 5 {
		c.ask(input)
	}
	close(release)
	held.Wait()
	awaitCompared(t, seen, 65)
	if same, different, failed := seen.Same.Load(), seen.Different.Load(), seen.Failed.Load(); same != 20 || different != 20 || failed != 25 {
		t.Errorf("%d the same, %d different, %d failed: expected 20, 20, 25", same, different, failed)
	}
	if n := seen.Serving.Queries.Load(); n != 65 {
		t.Errorf("%d answers of the serving version were counted: expected 65", n)
	}
}

// awaitCompared waits until n answers have been compared, or should have been. Comparing happens when the last goroutine lets go of a query,
// which may be the one that has sent its answer.
func awaitCompared(t *testing.T, seen *Comparison, n uint64) {
	t.Helper()
	look, deadline := time.NewTicker(time.Millisecond), time.After(20*time.Second)
	defer look.Stop()
	for seen.Same.Load()+seen.Different.Load()+seen.Failed.Load() < n {
		select {
		case <-look.C:
		case <-deadline:
			return
		}
	}
}

// TestRulesOfDirectRequests: a request that names the model only is subject to its rules; one that names a version or label gets that version.
func TestRulesOfDirectRequests(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){says(1)})
	m, other := c.fn.Candidates[0].Model, c.other(0, says(2))
	rule, seen := NewRule("a", nil), new(Comparison)
	rule.SetPart(1)
	table := *c.p.table.Load()
	table.Models = map[string]*Model{"a": m}
	table.Versions = map[api.ModelID]*Model{m.ID: m, other.ID: other, {Name: "a", Version: "canary"}: other}
	table.Routes = map[string]*Route{"a": {Rule: rule, Model: other}}
	table.Tees = map[string][]Tee{"a": {{Candidate: Candidate{Model: other}, Part: 1, Compared: seen}}}
	c.p.Publish(&table)
	do := func(version string) ([]Answer, error) {
		in := []api.Value{{Data: api.Float32.AppendNumbers(nil, []float64{1, 2, 3, 4})}}
		return c.p.Do(t.Context(), &Queries{Model: api.ModelID{Name: "a", Version: version}, Inputs: [][]api.Value{in}}, nil)
	}
	ask := func(version string) string {
		t.Helper()
		answers, err := do(version)
		if err != nil || len(answers) != 1 || answers[0].Code != api.OK {
			t.Fatalf("a@%s: %+v (%v)", version, answers, err)
		}
		return answers[0].Answered[0].Version
	}
	if v := ask(""); v != "2" {
		t.Errorf("version %s answers, all of which goes to 2", v)
	}
	if v := ask("1"); v != "1" {
		t.Errorf("version %s answers, and 1 was named", v)
	}
	if v := ask("canary"); v != "2" {
		t.Errorf("version %s answers, and canary was named", v)
	}
	rule.SetPart(0)
	if v := ask(""); v != "1" {
		t.Errorf("version %s answers, all of which goes to 1", v)
	}
	awaitCompared(t, seen, 1)
	if seen.Different.Load() != 1 {
		t.Errorf("%d answers were compared: expected one, that of the serving version", seen.Different.Load())
	}
	other.Closed.Store(true)
	if answers, err := do("2"); err != nil || answers[0].Code != api.NoReplica {
		t.Errorf("a closed version answers %+v (%v)", answers, err)
	}
}

// TestAsk: the gateway's own queries use neither rules nor caches, and their answers are copies.
func TestAsk(t *testing.T) {
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { querytest.End(it, api.OK, querytest.Int64(int64(it.Inputs[0].Data[0]))) }})
	m := c.fn.Candidates[0].Model
	m.Closed.Store(true)
	m.Cache = c.cache.Model()
	m.CacheOn.Store(true)
	m.CapabilitiesKnown.Store(true)
	var inputs [][]api.Value
	for i := range 3 * asksAtOnce {
		inputs = append(inputs, []api.Value{{Data: []byte{byte(i), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}})
	}
	for range 2 {
		answers, err := c.p.Ask(context.Background(), m, inputs, time.Minute)
		if err != nil || len(answers) != len(inputs) {
			t.Fatalf("%d answers of %d: %v", len(answers), len(inputs), err)
		}
		for i, a := range answers {
			if a.Code != api.OK || a.Outputs[0].Data[0] != byte(i) {
				t.Fatalf("query %d: %v %v", i, a.Code, a.Outputs)
			}
		}
	}
	if st := m.Cache.Stats(); st.Misses+st.Hits != 0 {
		t.Errorf("the cache was asked: %+v", st)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if answers, err := c.p.Ask(ctx, m, inputs, time.Minute); err == nil || len(answers) != 0 {
		t.Errorf("after the end: %d answers, %v", len(answers), err)
	}
}

// TestQuiesce: it waits for every request that may act on an older table, until its queries are in their lanes, and for no later request.
func TestQuiesce(t *testing.T) {
	hold := make(chan *scheduler.Item, 16)
	entered, admit := make(chan struct{}), make(chan struct{})
	f := serve(t, floats4, func(it *scheduler.Item) {
		if it.Inputs[0].Data[0] == 0 && it.Inputs[0].Data[3] == 0 { // the first one takes its time on the way to its lane
			entered <- struct{}{}
			<-admit
		}
		hold <- it
	})
	answered := make(chan api.Code, 2)
	ask := func(first int) {
		go func() { answered <- f.code(fmt.Sprintf(`{"input":[%d,2,3,4]}`, first)) }()
	}
	ask(0)
	<-entered
	table := *f.p.table.Load()
	f.p.Publish(&table)
	quiet := make(chan error, 1)
	go func() { quiet <- f.p.Quiesce(context.Background()) }()
	for f.p.readers.waiting.Load() == 0 { // it has begun to wait
		select {
		case err := <-quiet:
			t.Fatalf("Quiesce returned %v while a request was on its way", err)
		default:
			runtime.Gosched()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.p.Quiesce(ctx); err == nil {
		t.Error("Quiesce did not say that a request is on its way")
	}
	ask(1)
	young := <-hold
	close(admit)
	old := <-hold
	if err := <-quiet; err != nil { // although neither is answered
		t.Fatal(err)
	}
	if n := f.p.Open(); n != 2 {
		t.Errorf("%d requests are open: expected two", n)
	}
	for _, it := range []*scheduler.Item{young, old} {
		querytest.End(it, api.OK, querytest.Int64(1))
		if code := <-answered; code != api.OK {
			t.Fatalf("answered %s", code)
		}
	}
}

// TestQuiesceUnderLoad: it returns under load, and no reader uses the old table afterwards.
func TestQuiesceUnderLoad(t *testing.T) {
	var g grace
	g.init()
	var published atomic.Pointer[atomic.Bool] // whether what it points to may be used
	first := new(atomic.Bool)
	first.Store(true)
	published.Store(first)
	var readers sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for !stop.Load() {
				turn := g.enter()
				p := published.Load()
				for range 50 {
					if !p.Load() {
						t.Error("a reader uses what was taken out of use")
						stop.Store(true)
						break
					}
				}
				g.leave(turn)
			}
		}()
	}
	for range 2000 {
		next := new(atomic.Bool)
		next.Store(true)
		old := published.Swap(next)
		g.next()
		if err := g.wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		old.Store(false)
	}
	stop.Store(true)
	readers.Wait()
	for i := range g.readers {
		if n := g.readers[i].n.Load(); n != 0 {
			t.Errorf("%d readers are counted after all have left", n)
		}
	}
}

// TestQuiesceWithManyTurns: with more turns than counters, one of which is in use for long, no reader that may have seen the old is missed.
func TestQuiesceWithManyTurns(t *testing.T) {
	var g grace
	g.init()
	long := g.enter()
	for range 3 * graceTurns {
		g.next()
		g.leave(g.enter())
	}
	late := g.enter()
	g.next()
	done := make(chan error, 1)
	go func() { done <- g.wait(context.Background()) }()
	for g.waiting.Load() == 0 {
		runtime.Gosched()
	}
	g.leave(long)
	select {
	case <-done:
		t.Fatal("a reader from before is not waited for")
	case <-time.After(5 * time.Millisecond): // it would have come by now; if not, the test sees less
	}
	g.leave(late)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
