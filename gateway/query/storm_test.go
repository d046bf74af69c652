package query

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestPlanForAModelWithoutReplicas: a plan that still counts on a model that has lost its replicas does not refuse queries that another can answer.
func TestPlanForAModelWithoutReplicas(t *testing.T) {
	plan := &planned{}
	plan.members.Store(2) // b only
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){says(1), says(2)}, func(f *fixture) { f.fn.Choice = plan; f.fn.Candidates[1].Model.Ready.Store(0) })
	if code := c.code(input); code != api.OK {
		t.Errorf("a is ready, and the query is answered %s", code)
	}
}

// TestOldQueryDoesNotForgetANewerOne: a query that is answered very late does not overwrite a newer one.
func TestOldQueryDoesNotForgetANewerOne(t *testing.T) {
	held := make(chan *scheduler.Item, 1)
	var first atomic.Bool
	first.Store(true)
	c := gather(t, "exp3", nil, floats4, []func(*scheduler.Item){func(it *scheduler.Item) {
		if first.Swap(false) {
			held <- it
		} else {
			says(1)(it)
		}
	}}, func(f *fixture) { f.p.joins = newJoins(2, DefaultFeedbackBytes, &f.p.ids) })
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { defer wg.Done(); c.ask(input) }()
	it := <-held
	c.ask(input)
	newer := c.ask(input).ID // in the place of the first
	says(1)(it)
	wg.Wait()
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":1}`, newer), Counted)
}

// TestNaNOutputs: outputs that are not numbers stop neither an ensemble nor its feedback.
func TestNaNOutputs(t *testing.T) {
	nan := func(it *scheduler.Item) { querytest.End(it, api.OK, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x7f}) }
	c := gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){nan, nan})
	if code := c.code(input); code != api.OK {
		t.Errorf("answered %s", code)
	}
	c = gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){nan, saysFloat(3)})
	p := c.ask(input)
	if p.Output != 3 {
		t.Errorf("%+v", p)
	}
	c.feed(fmt.Sprintf(`{"query_id":%d,"label":3}`, p.ID), Counted)
	for _, w := range c.weights("") {
		if !(w >= 0 && w <= 1) {
			t.Error(c.weights(""))
		}
	}
}

// TestHugeSums: running averages of outputs near the largest number do not overflow to infinity.
func TestHugeSums(t *testing.T) {
	c := gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){saysFloat(1.7e308), saysFloat(-1.7e308), fails(api.DeadlineExceeded)})
	for range 3 {
		if code := c.code(input); code != api.OK {
			t.Errorf("answered %s", code)
		}
	}
	if m := c.fn.Averages.Mean(0); math.IsInf(m[0], 0) {
		t.Error(m)
	}
	d := gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){func() func(*scheduler.Item) {
		n := 0
		return func(it *scheduler.Item) {
			n++
			v := 1.7e308
			if n%2 == 0 {
				v = -v
			}
			saysFloat(v)(it)
		}
	}()})
	for range 4 {
		d.code(input)
	}
	if m := d.fn.Averages.Mean(0); math.IsInf(m[0], 0) || math.IsNaN(m[0]) {
		t.Errorf("the running average of finite predictions is %v", m)
	}
}

// TestFailedAtTheDeadline: members ask again at their deadline, many times, with real timers. No query is lost, none ends twice.
func TestFailedAtTheDeadline(t *testing.T) {
	var now atomic.Pointer[func() api.Nanos]
	submit := func(it *scheduler.Item) {
		go func() {
			<-time.After(time.Duration(it.Deadline-(*now.Load())()) - 100*time.Microsecond)
			querytest.End(it, api.DeadlineExceeded)
		}()
	}
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){submit, submit}, cached, withDefault("-1"), func(f *fixture) { now.Store(&f.p.cfg.Now) })
	var wg sync.WaitGroup
	for range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 60 {
				c.ask(fmt.Sprintf(`{"input":[%d,2,3,4]}`, i), 3*time.Millisecond)
			}
		}()
	}
	wg.Wait()
	poll(t, func() bool { return c.p.Open() == 0 })
}

// TestClosedLane: a cache leader at a lane that refuses everything at once, with followers. Every follower ends.
func TestClosedLane(t *testing.T) {
	c := gather(t, "exp4", nil, floats4, []func(*scheduler.Item){fails(api.Overloaded), fails(api.ModelRemoved)}, cached, withDefault("-1"))
	var wg sync.WaitGroup
	for range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 100 {
				c.ask(input)
			}
		}()
	}
	wg.Wait()
	if n := c.p.cfg.Cache.Stats().Pending; n != 0 {
		t.Errorf("%d entries are pending for ever", n)
	}
}

// TestRedeclareWhileQueries: declaring fewer, more and other candidates while queries and feedback run.
func TestRedeclareWhileQueries(t *testing.T) {
	c := gather(t, "exp4", nil, floatsOut, []func(*scheduler.Item){saysFloat(1), saysFloat(2), saysFloat(3), saysFloat(4)}, cached)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var ids [64]atomic.Uint64
	for w := range 4 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ids[i%64].Store(c.ask(fmt.Sprintf(`{"input":[%d,%d,3,4],"context":"c%d"}`, i%7, w, i%5)).ID)
			}
		}()
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				for _, body := range []string{
					fmt.Sprintf(`{"query_id":%d,"label":1}`, ids[i%64].Load()), `{"input":[1,2,3,4],"label":2,"context":"c1"}`,
					fmt.Sprintf(`{"query_id":%d,"correct":true}`, ids[(i+9)%64].Load()),
				} {
					if _, err := c.feedback("f", body); err != nil {
						t.Errorf("feedback %s: %v", body, err)
					}
				}
			}
		}()
	}
	all := c.fn.Candidates
	refs := []string{"a", "b", "c", "d"}
	for n := range 300 {
		order := [][]int{{0, 1, 2, 3}, {3, 1}, {2}, {1, 0, 3}}[n%4]
		var names []string
		var cands []Candidate
		for _, i := range order {
			names, cands = append(names, refs[i]), append(cands, all[i])
		}
		name := []string{"exp4", "exp3"}[n/40%2]
		p, err := selection.New(name, nil, names)
		if err != nil {
			t.Fatal(err)
		}
		fn := *c.fn
		if n%50 == 49 {
			c.p.Publish(&Table{Functions: map[string]*Function{"f": c.fn}})
			c.table.Forget("f")
			c.p.Forget("f")
		}
		fn.Selector, fn.Mode, fn.Candidates = c.table.Declare("f", p, names), p.Mode(), cands
		fn.Averages, fn.Losses = NewAverages(floatsOut, 0, len(cands)), make([]obs.Loss, len(cands))
		c.p.Publish(&Table{Functions: map[string]*Function{"f": &fn}})
		answered := c.fn.Stats.Read().Queries
		poll(t, func() bool { return c.fn.Stats.Read().Queries >= answered+10 })
	}
	close(stop)
	wg.Wait()
}
