package driver

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// planned makes a lane with a loopback replica, one function, and an epoch that plans for it.
func planned(t *testing.T, cost, budget float64) (*Clock, *Lane, *Choice, *Epoch) {
	c := NewClock()
	t.Cleanup(c.Close)
	l := NewLane(scheduler.DefaultConfig(), c)
	l.AddFunction(1)
	l.AddReplica(1, &loopback{l: l, id: 1}, 0)
	e := NewEpoch(c, time.Millisecond)
	t.Cleanup(e.Close)
	ch := NewChoice(planner.One, 1, l)
	e.Set(topology(l, ch, cost, budget))
	return c, l, ch, e
}

func topology(l *Lane, ch *Choice, cost, budget float64) *Topology {
	return &Topology{
		Topology: planner.Topology{
			Functions: []planner.FunctionInfo{{Key: 1, Name: "f", Weight: 1, SLONanos: 50e6, Budget: budget, Candidates: []planner.CandidateInfo{{Gain: 1}}}},
			Models:    []planner.ModelInfo{{Key: 2, ID: api.ModelID{Name: "m", Version: "1"}, Cost: cost, Device: -1, MaxBatch: 64}},
		},
		Lanes: []*Lane{l}, Choices: []*Choice{ch},
	}
}

func status(e *Epoch) (s EpochStatus) {
	e.Report(func(es EpochStatus, _ *Topology, _, _ []int32, _ *planner.Input, _ *planner.Output) { s = es })
	return s
}

func ask(t *testing.T, c *Clock, l *Lane) {
	k := newTicket(t, c, 0, hour, 0)
	l.Submit(&k.Item)
	k.want(api.OK, api.OK)
}

// TestEpochsFollowTheTraffic: the first query wakes the planner. Without further queries it falls asleep, and it wakes
// again.
func TestEpochsFollowTheTraffic(t *testing.T) {
	c, l, _, e := planned(t, 0, 0)
	if s := status(e); s.Epochs != 0 || s.Awake != 0 {
		t.Fatalf("planned without a query: %+v", s)
	}
	for range 2 {
		before := status(e).Epochs
		ask(t, c, l)
		eventually(func() bool { s := status(e); return s.Epochs > before && s.Awake == 1 })
		eventually(func() bool { return status(e).Awake == 0 })
		asleep := status(e).Epochs
		if asleep < before+idleEpochs {
			t.Errorf("fell asleep after %d epochs without a query", asleep-before)
		}
	}
}

// TestBudgetIsKept: when the queries of a function cost more than its budget, the plan refuses a part of them. When
// the budget is removed, all of them are evaluated again.
func TestBudgetIsKept(t *testing.T) {
	c, l, ch, e := planned(t, 1, 1)
	refused := func() bool {
		if ch.Pick() < 0 {
			ch.CountRefused(1)
			return true
		}
		ask(t, c, l)
		return false
	}
	eventually(refused)
	e.Report(func(_ EpochStatus, tp *Topology, functions, models []int32, in *planner.Input, out *planner.Output) {
		if in == nil || tp.Functions[functions[0]].Name != "f" || tp.Models[models[0]].Cost != 1 {
			t.Fatal("the report does not show the topology of the plan")
		}
		if f := out.Functions[0]; f.Refused <= 0 || f.RefusedWhy != planner.Budget || f.CostPerSecond > 1+1e-6 || in.Functions[0].Rate <= 1 {
			t.Errorf("planned %+v for %+v", f, in.Functions[0])
		}
	})
	e.Set(topology(l, ch, 1, 0))
	eventually(func() bool { return !refused() && ch.planned.Load() == nil })
}

// TestRemovedLaneLosesItsPlan, because no later plan would change it.
func TestRemovedLaneLosesItsPlan(t *testing.T) {
	c, l, _, e := planned(t, 0, 0)
	ask(t, c, l)
	eventually(func() bool { return status(e).Awake == 1 })
	e.mu.Lock()
	plan := scheduler.Plan{Execution: scheduler.Stream}
	if !e.lanes[0].planned.differs(&plan) || e.lanes[0].planned.differs(&plan) {
		t.Error("want a new plan to differ, and then to be kept")
	}
	l.SetPlan(plan)
	e.mu.Unlock()
	e.Set(&Topology{})
	execution := func() scheduler.Execution {
		var s scheduler.Snapshot
		l.Snapshot(&s)
		return s.Execution
	}
	eventually(func() bool { return execution() == scheduler.Whole })
}

func TestPlansAreKeptAndCompared(t *testing.T) {
	var k planKeeper
	none := &scheduler.Plan{Functions: make([]scheduler.FunctionPlan, 2), Replicas: []scheduler.ReplicaPlan{{ID: 3}}}
	if k.differs(none) {
		t.Error("a plan that changes nothing differs from none")
	}
	shares := []float64{1, 0}
	plans := []*scheduler.Plan{
		{Execution: scheduler.Split},
		{Functions: []scheduler.FunctionPlan{{Weight: 2}}},
		{Functions: []scheduler.FunctionPlan{{Shed: 0.5}}},
		{Replicas: []scheduler.ReplicaPlan{{ID: 1, Cap: 2}}},
		{Replicas: []scheduler.ReplicaPlan{{ID: 2, Cap: 2}}},
		{Replicas: []scheduler.ReplicaPlan{{ID: 2, HoldNanos: -1}}},
		{Replicas: []scheduler.ReplicaPlan{{ID: 2, ObjectiveNanos: 5}}},
		{Replicas: []scheduler.ReplicaPlan{{ID: 2, HoldNanos: -1, Shares: shares}}},
		{Replicas: []scheduler.ReplicaPlan{{ID: 2, HoldNanos: -1, Shares: []float64{0, 1}}}},
	}
	for i, p := range plans {
		if !k.differs(p) {
			t.Errorf("plan %d does not differ from the one before", i)
		}
		if k.differs(p) {
			t.Errorf("plan %d differs from itself", i)
		}
	}
	k.differs(plans[7])
	shares[0] = 5 // the planner reuses its memory
	if !k.differs(plans[7]) {
		t.Error("differs kept the planner's shares instead of a copy")
	}
	if !k.differs(none) || k.differs(none) {
		t.Error("want the return to no plan to differ exactly once")
	}
}

// TestPlanIsApplied: turns go to the devices, parts to the choices, and plans to the lanes.
func TestPlanIsApplied(t *testing.T) {
	c := NewClock()
	t.Cleanup(c.Close)
	dev := NewDevice()
	l := NewLane(scheduler.Config{Shared: true}, c)
	l.AttachDevice(dev)
	l.AddFunction(1)
	ch := NewChoice(planner.One, 1, l)
	top := topology(l, ch, 0, 0)
	top.Topology.Devices, top.Devices, top.Topology.Models[0].Device = []string{"gpu0"}, []*Device{dev}, 0
	e := &Epoch{clock: c, current: top, lanes: make([]awakeLane, 1), collect: planner.NewCollector(&top.Topology, choices(top.Choices))}
	var snap scheduler.Snapshot
	l.Snapshot(&snap)
	e.collect.Begin(1, 1e7)
	e.collect.Model(0, &snap)
	e.out = planner.Output{
		Functions: []planner.FunctionPlan{{Evaluate: []float64{0.5}}},
		Models:    []planner.ModelPlan{{Plan: scheduler.Plan{Execution: scheduler.Stream}}},
		Devices:   []planner.DevicePlan{{Turns: []planner.Turn{{Model: 0, Nanos: 7e6}}}},
	}
	e.collect.Input()
	e.collect.Functions = []int32{0}
	e.apply()
	dev.device.Want(l.tenant)
	if _, nanos, ok := dev.device.Next(); !ok || nanos != 7e6 {
		t.Errorf("the turn is %d ns long (%v), want 7 ms", nanos, ok)
	}
	if l.Snapshot(&snap); snap.Execution != scheduler.Stream {
		t.Errorf("the lane's execution is %v", snap.Execution)
	}
	refused := 0
	for range 10 {
		if ch.Pick() < 0 {
			refused++
		}
	}
	if refused != 5 {
		t.Errorf("%d of 10 queries are refused, want 5", refused)
	}
}
