//go:build !race

package query

import (
	"context"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

func newInstant() (*Path, *Function) {
	start := time.Now()
	p := New(Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }})
	m := NewModel(api.ModelID{Name: "m", Version: "1"}, floats4, querytest.Instant{}, 0, new(obs.Endpoint))
	m.Ready.Store(1)
	fn := &Function{Name: "f", SLO: time.Second, Candidates: []Candidate{{Model: m}}, Stats: new(obs.Endpoint)}
	p.Publish(&Table{Functions: map[string]*Function{"f": fn}, Models: map[string]*Model{"m": m}, Versions: map[api.ModelID]*Model{m.ID: m}})
	return p, fn
}

// TestAllocsOfDo: a caller in this process that uses its answers again makes the path allocate nothing.
func TestAllocsOfDo(t *testing.T) {
	p, _ := newInstant()
	one := []api.Value{{Data: make([]byte, 16)}}
	for _, qs := range []*Queries{
		{Function: "f", Inputs: [][]api.Value{one}}, {Function: "f", Inputs: [][]api.Value{one, one, one}},
		{Model: api.ModelID{Name: "m"}, Inputs: [][]api.Value{one}}, {Model: api.ModelID{Name: "m", Version: "1"}, Inputs: [][]api.Value{one}},
	} {
		var answers []Answer
		do := func() {
			var err error
			if answers, err = p.Do(context.Background(), qs, answers); err != nil || answers[0].Code != api.OK {
				t.Fatalf("%+v, %v", answers, err)
			}
		}
		do()
		if n := testing.AllocsPerRun(1000, do); n >= 1 {
			t.Errorf("%d queries to %q: %.1f allocations, want none", len(qs.Inputs), qs.Function, n)
		}
	}
}

// TestAllocsOfSelecting: a query that selects, from the policy to the joined feedback, with and without a cache.
func TestAllocsOfSelecting(t *testing.T) {
	for _, policy := range []string{"exp3", "exp4", "thompson"} {
		for _, keeps := range []bool{false, true} {
			p, fn := newInstant()
			select3(t, p, fn, policy, keeps)
			qs := &Queries{Function: "f", Inputs: [][]api.Value{{{Data: make([]byte, 16)}}}}
			label := []api.Value{{Data: make([]byte, 8)}}
			f := Feedback{Verdict: VerdictLabel, Label: label, LabelText: []byte("0")}
			var answers []Answer
			round := func() {
				var err error
				if answers, err = p.Do(context.Background(), qs, answers); err != nil {
					t.Fatal(err)
				}
				f.QueryID = answers[0].ID
				if outcome, err := p.Feedback("f", f, nil); err != nil || outcome != Counted {
					t.Fatal(outcome, err)
				}
			}
			for range 100 {
				round()
			}
			if n := testing.AllocsPerRun(1000, round); n >= 1 {
				t.Errorf("%s, cache %v: %.1f allocations a query with its feedback, want none", policy, keeps, n)
			}
		}
	}
}

// select3 gives the function three models and a policy.
func select3(tb testing.TB, p *Path, fn *Function, policy string, keeps bool) {
	refs := []string{"a", "b", "c"}
	made, err := selection.New(policy, nil, refs)
	if err != nil {
		tb.Fatal(err)
	}
	clock := driver.NewClock()
	tb.Cleanup(clock.Close)
	p.cfg.Timers, p.cfg.Cache = driver.NewTimers(clock), cache.New(1<<20)
	p.joins = newJoins(64, DefaultFeedbackBytes, &p.ids)
	fn.Candidates = nil
	for _, ref := range refs {
		m := NewModel(api.ModelID{Name: ref, Version: "1"}, floats4, querytest.Instant{}, 0, new(obs.Endpoint))
		m.Ready.Store(1)
		if keeps {
			m.Cache = p.cfg.Cache.Model()
			m.CapabilitiesKnown.Store(true)
			m.CacheOn.Store(true)
		}
		fn.Candidates = append(fn.Candidates, Candidate{Model: m})
	}
	fn.Selects, fn.Mode, fn.Selector = true, made.Mode(), learned.New(learned.Config{}).Declare("f", made, refs)
	fn.Learning, fn.Losses = new(obs.Learning), make([]obs.Loss, len(refs))
}
