package driver

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// TestChoiceKeepsToItsParts: every candidate gets its part of the queries, even over a few dozen of them, and the rest
// is refused.
func TestChoiceKeepsToItsParts(t *testing.T) {
	for _, c := range []struct {
		parts []float64
		want  []int // of 100 queries; the last number is refused
	}{
		{nil, []int{100, 0, 0, 0}},
		{[]float64{1, 0, 0}, []int{100, 0, 0, 0}},
		{[]float64{0.5, 0.3, 0.2}, []int{50, 30, 20, 0}},
		{[]float64{0.25, 0, 0.25}, []int{25, 0, 25, 50}},
		{[]float64{0, 0, 1}, []int{0, 0, 100, 0}},
		{[]float64{0, 0, 0}, []int{0, 0, 0, 100}},
		{[]float64{-3, 0.5}, []int{0, 50, 0, 50}},
		{[]float64{0.1, 0.2, 0.7, 0.9}, []int{10, 20, 70, 0}}, // more parts than candidates: the rest is ignored
	} {
		ch := NewChoice(planner.One, 3, nil)
		ch.Set(&planner.FunctionPlan{Evaluate: c.parts})
		got := make([]int, 4)
		for range 100 {
			i := ch.Pick()
			if i < 0 {
				i = 3
				ch.CountRefused(2)
			}
			got[i]++
		}
		for i := range got {
			if d := got[i] - c.want[i]; d < -2 || d > 2 {
				t.Errorf("parts %v: %v of 100 queries, want about %v", c.parts, got, c.want)
				break
			}
		}
		if int(ch.Refused()) != 2*got[3] {
			t.Errorf("parts %v: %d requests of two queries were refused, counted %d", c.parts, got[3], ch.Refused())
		}
		ch.Set(nil)
		if i := ch.Pick(); i != 0 {
			t.Errorf("without a plan a query goes to candidate %d", i)
		}
	}
}

// TestRefusalsWakeThePlanner: a function whose queries are all refused before they reach a lane is still planned for.
// Otherwise it would never be admitted again.
func TestRefusalsWakeThePlanner(t *testing.T) {
	_, l := newTestLane(t, scheduler.DefaultConfig())
	e := &Epoch{kicks: make(chan struct{}, 1)}
	l.epoch.Store(e)
	ch := NewChoice(planner.One, 1, l)
	ch.Set(&planner.FunctionPlan{Evaluate: []float64{0}})
	if ch.Pick() != -1 {
		t.Fatal("not refused")
	}
	ch.CountRefused(1)
	select {
	case <-e.kicks:
	default:
		t.Error("the epoch was not woken")
	}
	if e.activeLanes.Load() != l || !l.active.Load() {
		t.Error("the lane is not on the epoch's list")
	}
	ch.CountRefused(1) // once is enough
	if l.nextActive != nil {
		t.Error("the lane is on the list twice")
	}
}

// TestMembersKeepToTheirParts: each member evaluates its part of the queries, even over a few in a row, and the
// selection matches planner.FunctionPlan.Pick.
func TestMembersKeepToTheirParts(t *testing.T) {
	for _, parts := range [][]float64{{1, 0.5, 0.25}, {0.6, 0.6, 0.6}, {0.3, 0.2, 0.1}, {0, 0, 0}, {0, 1, 1 - 1e-12}, {1, 1, 0}, {0.9, math.NaN(), -1}} {
		ch := NewChoice(planner.All, 3, nil)
		p := &planner.FunctionPlan{Evaluate: parts}
		ch.Set(p)
		sound := &planner.FunctionPlan{}
		for i := range 3 {
			sound.Evaluate = append(sound.Evaluate, partOf(parts, i))
		}
		var asked [3]int
		for n := range 100 {
			set := ch.Members()
			want := uint64(0)
			for _, i := range sound.Pick(float64(uint64(n+1)*goldenRatio>>11)/(1<<53), nil) {
				want |= 1 << i
			}
			if set != want {
				t.Fatalf("parts %v: query %d may ask %b, want %b", parts, n, set, want)
			}
			for i := range asked {
				asked[i] += int(set >> i & 1)
			}
		}
		for i, part := range sound.Evaluate {
			if d := float64(asked[i]) - 100*part; math.Abs(d) > 2 {
				t.Errorf("parts %v: member %d evaluates %d of 100", parts, i, asked[i])
			}
			if dropped := ch.Limited()>>i&1 != 0; dropped != (part < fullPart) {
				t.Errorf("parts %v: %b are dropped", parts, ch.Limited())
			}
		}
	}
	ch := NewChoice(planner.All, 3, nil)
	for _, p := range []*planner.FunctionPlan{nil, {}, {Evaluate: []float64{1, 1, 1}}} {
		ch.Set(&planner.FunctionPlan{Evaluate: []float64{0, 0, 0}})
		if ch.Set(p); ch.Members() != ^uint64(0) || ch.Limited() != 0 {
			t.Errorf("%+v limits something", p)
		}
	}
}

// TestLimitsAndRefusals: Limits copies nothing without limits, and the part without room is refused.
func TestLimitsAndRefusals(t *testing.T) {
	dst := make([]float64, 5)
	for _, c := range []struct {
		plan    *planner.FunctionPlan
		limits  []float64
		refused int // of 100
		drops   uint64
	}{
		{nil, nil, 0, 0},
		{&planner.FunctionPlan{Evaluate: []float64{0.7, 0.3}}, nil, 0, 0},
		{&planner.FunctionPlan{Evaluate: []float64{0.4, 0.6}, Limits: []float64{0.5, 1}}, []float64{0.5, 1}, 0, 1},
		{&planner.FunctionPlan{Evaluate: []float64{0.4, 0.2}, Limits: []float64{0.5, 1}, Refused: 0.4}, []float64{0.5, 1}, 40, 1},
		{&planner.FunctionPlan{Evaluate: []float64{0.2, 0.1}, Refused: 0.7}, nil, 70, 0},
		{&planner.FunctionPlan{Evaluate: []float64{0, 0}, Refused: 1}, nil, 100, 0},
		{&planner.FunctionPlan{Evaluate: []float64{1, 0}, Limits: []float64{math.NaN(), 7}}, []float64{0, 1}, 0, 1},
	} {
		ch := NewChoice(planner.Shares, 2, nil)
		ch.Set(&planner.FunctionPlan{Evaluate: []float64{0, 0}, Limits: []float64{0, 0}, Refused: 1})
		ch.Set(c.plan)
		got, refused := ch.Limits(dst), 0
		for range 100 {
			if ch.ShouldRefuse() {
				refused++
			}
		}
		if !slices.Equal(got, c.limits) || (got == nil) != (c.limits == nil) || ch.Limited() != c.drops {
			t.Errorf("%+v: limits %v, dropping %b", c.plan, got, ch.Limited())
		}
		if d := refused - c.refused; d < -2 || d > 2 {
			t.Errorf("%+v: %d of 100 are refused, want %d", c.plan, refused, c.refused)
		}
	}
}

// TestCountsAndGainsForPlanner checks the counts and gains for each mode.
func TestCountsAndGainsForPlanner(t *testing.T) {
	for mode, want := range map[planner.Mode]uint64{planner.One: 5, planner.Shares: 5, planner.All: 7} {
		ch := NewChoice(mode, 2, nil)
		ch.CountRefused(5)
		ch.CountArrived(7)
		ch.CountWish(1)
		ch.CountWish(1)
		c := choices{ch}
		if got := c.Counted(0); got != want || ch.Refused() != 5 {
			t.Errorf("mode %d: %d are counted, want %d", mode, got, want)
		}
		if c.Wished(0, 0) != 0 || c.Wished(0, 1) != 2 {
			t.Errorf("mode %d: wished %d and %d", mode, c.Wished(0, 0), c.Wished(0, 1))
		}
		if _, ok := c.Gain(0, 1); ok {
			t.Error("a gain before SetGains")
		}
		ch.SetGains([]float64{math.NaN(), 0.25, 9})
		_, first := c.Gain(0, 0)
		if gain, ok := c.Gain(0, 1); first || !ok || gain != 0.25 {
			t.Errorf("the second gain is %v (%v), want 0.25; the first is set: %v, want false", gain, ok, first)
		}
	}
}

// TestChoiceConcurrentReads has many readers; what they read belongs to one of the plans, or to none.
func TestChoiceConcurrentReads(t *testing.T) {
	all, shares := NewChoice(planner.All, 3, nil), NewChoice(planner.Shares, 3, nil)
	var readers sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			dst := make([]float64, 3)
			for !stop.Load() {
				if set := all.Members(); set != ^uint64(0) && set&1 == 0 {
					t.Errorf("members %b lack the first, which is in every plan", set)
					return
				}
				if limits := shares.Limits(dst); limits != nil && (limits[0] > 0.5 || limits[2] != 1) {
					t.Errorf("limits %v", limits)
					return
				}
				shares.ShouldRefuse()
				all.CountArrived(1)
			}
		}()
	}
	for n := range 10000 {
		part := float64(n%100) / 100
		all.Set(&planner.FunctionPlan{Evaluate: []float64{1, part, 1 - part}})
		shares.Set(&planner.FunctionPlan{Evaluate: []float64{0, 0, 1}, Limits: []float64{part / 2, part, 1}})
		if n%1000 == 0 {
			all.Set(nil)
			shares.Set(nil)
		}
	}
	stop.Store(true)
	readers.Wait()
}
