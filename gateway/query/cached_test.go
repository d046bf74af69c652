package query

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestCachedPredictions: the second query for the same is answered without the model; another salt, model or input is not.
func TestCachedPredictions(t *testing.T) {
	evaluated := make(chan uint64, 100)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { evaluated <- it.ID; querytest.Sum(it) }}, cached)
	for _, q := range []struct {
		body string
		new  bool
	}{
		{input, true}, {input, false}, {`{"input":[1,2,3,5]}`, true}, {`{"input":[1,2,3,4],"salt":"x"}`, true}, {`{"input":[1,2,3,4],"salt":"x"}`, false},
		{`{"input":[1,2,3,4],"context":"ann"}`, false}, {`{"input":[1,2,3,5]}`, false},
	} {
		got := c.ask(q.body)
		if n := len(evaluated); (n == 1) != q.new {
			t.Errorf("%s was evaluated %d times", q.body, n)
		}
		for len(evaluated) > 0 {
			<-evaluated
		}
		if got.Output != 10 && got.Output != 11 || got.Models[0] != "a@1" {
			t.Errorf("%s is answered %+v", q.body, got)
		}
	}
	c.fn.Candidates[0].Model.Contextual.Store(true)
	c.ask(`{"input":[1,2,3,4],"context":"bob"}`)
	if len(evaluated) != 1 {
		t.Error("a model that sees contexts was not asked for another one")
	}
	c.fn.Candidates[0].Model.Teachable.Store(true)
	c.ask(`{"input":[1,2,3,4],"context":"bob"}`)
	if len(evaluated) != 2 {
		t.Error("the prediction of a model that learns was kept")
	}
}

// TestTheFirstPredictionIsKept: a query that wakes a model asks before it is known whether the answer may be kept. It is, if the worker
// declares so, and under the key that follows from what it declares, also if it came too late for the query.
func TestTheFirstPredictionIsKept(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		contextual, teachable bool
		late                  bool
		next                  string
		hit                   bool
	}{
		{name: "nothing special", next: `{"input":[1,2,3,4],"context":"bob"}`, hit: true},
		{name: "late", late: true, next: `{"input":[1,2,3,4],"context":"ann"}`, hit: true},
		{name: "sees contexts, the same", contextual: true, next: `{"input":[1,2,3,4],"context":"ann"}`, hit: true},
		{name: "sees contexts, another", contextual: true, next: `{"input":[1,2,3,4],"context":"bob"}`},
		{name: "learns", teachable: true, next: `{"input":[1,2,3,4],"context":"ann"}`},
		{name: "another input", next: `{"input":[1,2,3,5],"context":"ann"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			items := make(chan *scheduler.Item, 10)
			c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { items <- it }}, cached, withDefault("-1"), func(f *fixture) {
				f.fn.Candidates[0].Model.CapabilitiesKnown.Store(false)
				f.fn.ColdStart = time.Minute
			})
			ask := func(body string) (answer chan prediction) {
				answer = make(chan prediction, 1)
				go func() { answer <- c.ask(body, time.Minute) }()
				return answer
			}
			first := ask(`{"input":[1,2,3,4],"context":"ann"}`)
			it := <-items
			m := c.fn.Candidates[0].Model
			m.Contextual.Store(tc.contextual)
			m.Teachable.Store(tc.teachable)
			m.CapabilitiesKnown.Store(true)
			if tc.late {
				it.Owner.Answered(it, api.DeadlineExceeded)
				if got := <-first; !got.Default {
					t.Errorf("answered %+v", got)
				}
				it.SetResult([]api.Value{{Data: querytest.Int64(11)}}, math.NaN())
				it.Owner.Released(it, api.OK)
			} else {
				says(11)(it)
				<-first
			}
			next := ask(tc.next)
			select {
			case it := <-items:
				if says(22)(it); tc.hit {
					t.Error("it was evaluated again")
				}
				<-next
			case got := <-next:
				if !tc.hit || got.Output != 11 {
					t.Errorf("answered %+v", got)
				}
			}
		})
	}
}

// TestCoalescedQueries: equal queries share an evaluation, and each has its own deadline. A query that is more urgent than the one that is
// being evaluated does not wait behind it.
func TestCoalescedQueries(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { items <- it }}, cached, withDefault("-1"))
	answers := make(chan prediction, 10)
	var asking sync.WaitGroup
	body := input
	run := func(within time.Duration) {
		asking.Add(1)
		go func(body string) { defer asking.Done(); answers <- c.ask(body, within) }(body)
	}
	run(10 * time.Millisecond) // the lane is the test's, and does not end it at its deadline
	leader := <-items
	run(20 * time.Millisecond)
	if got := <-answers; !got.Default || got.Code != api.DeadlineExceeded {
		t.Errorf("the query that could not wait is answered %+v", got)
	}
	run(time.Minute)
	c.waitCoalesced(2)
	querytest.Sum(leader)
	for range 2 {
		if got := <-answers; got.Output != 10 {
			t.Errorf("answered %+v", got)
		}
	}
	asking.Wait()
	if len(items) != 0 {
		t.Error("it was evaluated more than once")
	}
	body = `{"input":[1,2,3,4],"salt":"another"}`
	run(time.Minute)
	leader = <-items
	run(30 * time.Second)
	urgent := <-items
	querytest.Sum(urgent)
	if got := <-answers; got.Output != 10 {
		t.Errorf("the urgent query is answered %+v", got)
	}
	querytest.Sum(leader)
	asking.Wait()
}

// TestFailedLeader: queries that waited for an evaluation that ran out of time ask for themselves; an evaluation that failed by the model's
// fault fails for all.
func TestFailedLeader(t *testing.T) {
	for code, again := range map[api.Code]bool{api.Overloaded: true, api.DeadlineExceeded: true, api.Cancelled: true, api.ModelError: false, api.ReplicaLost: false} {
		items := make(chan *scheduler.Item, 10)
		c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { items <- it }}, cached, withDefault("-1"))
		answers := make(chan prediction, 10)
		for i := range 3 {
			go func() { answers <- c.ask(input) }()
			if i == 0 {
				leader := <-items
				go func() {
					c.waitCoalesced(2)
					querytest.End(leader, code)
				}()
			}
		}
		if again {
			next := <-items
			querytest.Sum(next)
		}
		defaults := 0
		for range 3 {
			if (<-answers).Default {
				defaults++
			}
		}
		if want := map[bool]int{true: 1, false: 3}[again]; defaults != want {
			t.Errorf("%s: %d defaults, want %d", code, defaults, want)
		}
	}
}

// TestLateResultsFillTheCache: a result that is too late for its query answers the next one.
func TestLateResultsFillTheCache(t *testing.T) {
	items := make(chan *scheduler.Item, 10)
	c := gather(t, "single", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) { it.Owner.Answered(it, api.DeadlineExceeded); items <- it }}, cached, withDefault("-1"))
	if got := c.ask(input); !got.Default {
		t.Fatalf("answered %+v", got)
	}
	late := <-items
	late.Outputs = append(late.Outputs[:0], api.Value{Data: querytest.Int64(42)})
	late.Owner.Released(late, api.OK)
	if got := c.ask(input); got.Output != 42 {
		t.Errorf("answered %+v", got)
	}
}
