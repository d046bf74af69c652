package query

import (
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// script is a Choice that picks what it was told to, one after the other.
type script struct {
	picks   chan int
	refused atomic.Int64
}

func newScript() *script { return &script{picks: make(chan int, 1)} }

func (s *script) Pick() int { return <-s.picks }

func (s *script) CountRefused(queries int) { s.refused.Add(int64(queries)) }

// What the plan says of functions that select.
func (s *script) Members() uint64            { panic("Members is called") }
func (s *script) CountArrived(int)           { panic("Arrived is called") }
func (s *script) Limits([]float64) []float64 { panic("Limits is called") }
func (s *script) ShouldRefuse() bool         { panic("Refusing is called") }
func (s *script) CountWish(int)              { panic("Wish is called") }

// TestPlannedCandidates: each request goes to the candidate that the plan has picked. A request that the plan has no room for is refused, and
// no model is asked.
func TestPlannedCandidates(t *testing.T) {
	plan := newScript()
	asked := make(chan int32, 16)
	answer := func(it *scheduler.Item) {
		asked <- it.Function
		querytest.End(it, api.OK, querytest.Int64(7))
	}
	f := serve(t, floats4, answer, func(f *fixture) {
		second := NewModel(api.ModelID{Name: "small", Version: "2"}, floats4, f.fn.Candidates[0].Model.Lane, 0, new(obs.Endpoint))
		second.Ready.Store(1)
		f.fn.Candidates = append(f.fn.Candidates, Candidate{Model: second, Queue: 5})
		f.fn.Choice = plan
	})
	for _, c := range []struct {
		pick  int
		code  api.Code
		model string // in the answer
		asked int32  // sub-queue; -1: none
	}{{0, api.OK, "m@1", 1}, {1, api.OK, "small@2", 5}, {-1, api.Overloaded, "", -1}, {2, api.Overloaded, "", -1}, {0, api.OK, "m@1", 1}} {
		plan.picks <- c.pick
		got, err := f.try(input)
		if err != nil || got[0].Code != c.code || c.model != "" && got[0].Models[0] != c.model {
			t.Errorf("candidate %d: answered %+v (%v), want %s by %q", c.pick, got, err, c.code, c.model)
		}
		if c.asked < 0 {
			if len(asked) > 0 {
				t.Error("a refused query was evaluated")
			}
		} else if q := <-asked; q != c.asked {
			t.Errorf("candidate %d: sub-queue %d was asked, want %d", c.pick, q, c.asked)
		}
	}
}

// TestCandidatesWithoutReplicas: whatever the plan says, a request goes to a candidate that has a replica if any has.
func TestCandidatesWithoutReplicas(t *testing.T) {
	first := NewModel(api.ModelID{Name: "a", Version: "1"}, floats4, nil, 0, new(obs.Endpoint))
	second := NewModel(api.ModelID{Name: "b", Version: "1"}, floats4, nil, 0, new(obs.Endpoint))
	f := &Function{Candidates: []Candidate{{Model: first}, {Model: second}}}
	for _, c := range []struct {
		first, second int32 // replicas
		want          *Model
	}{{1, 1, first}, {0, 1, second}, {0, 0, first}, {1, 0, first}} {
		first.Ready.Store(c.first)
		second.Ready.Store(c.second)
		if i, refused := f.pick(); f.Candidates[i].Model != c.want || refused {
			t.Errorf("with %d and %d replicas candidate %d is asked (refused: %v), want %s", c.first, c.second, i, refused, c.want.ID)
		}
	}
}

// TestRefusedByThePlan: every query of a refused request is counted, and answered by the default output.
func TestRefusedByThePlan(t *testing.T) {
	plan := newScript()
	f := serve(t, floats4, func(it *scheduler.Item) { t.Error("a refused query was evaluated") }, withDefault("-1"), func(f *fixture) { f.fn.Choice = plan })
	plan.picks <- -1
	got, err := f.try(`{"input_batch":[[1,2,3,4],[5,6,7,8]]}`)
	if n := plan.refused.Load(); n != 2 {
		t.Errorf("%d queries were counted as refused, want 2", n)
	}
	if err != nil || len(got) != 2 {
		t.Fatalf("answered %+v (%v)", got, err)
	}
	for _, p := range got {
		if p.Code != api.Overloaded || !p.Default || p.Output != -1 {
			t.Errorf("%+v is not the default", p)
		}
	}
}
