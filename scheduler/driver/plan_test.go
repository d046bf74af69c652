package driver

import (
	"math"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// planWorld is a topology with made-up traffic: the machines' snapshots are written by the test, everything else is
// what an epoch uses.
type planWorld struct {
	*Epoch
	t     *testing.T
	top   *Topology
	snaps []scheduler.Snapshot
	at    api.Nanos
}

// queryNanos is the time of a query on a replica of every model, so that a replica serves 1,000 per second.
const queryNanos = float64(time.Millisecond)

// newPlanWorld has this many models with a replica each, on one device if shared.
func newPlanWorld(t *testing.T, models int, shared bool) *planWorld {
	c := NewClock()
	t.Cleanup(c.Close)
	w := &planWorld{t: t, top: &Topology{}, Epoch: &Epoch{clock: c, lanes: make([]awakeLane, models), planner: planner.New()}}
	if shared {
		w.top.Topology.Devices, w.top.Devices = []string{"gpu0"}, []*Device{NewDevice()}
	}
	for i := range models {
		info := planner.ModelInfo{Key: uint64(i + 1), Device: -1, MaxBatch: 10}
		l := NewLane(scheduler.Config{Shared: shared}, c)
		if shared {
			info.Device = 0
			l.AttachDevice(w.top.Devices[0])
		}
		w.top.Models = append(w.top.Models, info)
		w.top.Lanes = append(w.top.Lanes, l)
		w.snaps = append(w.snaps, scheduler.Snapshot{Replicas: []scheduler.ReplicaSnapshot{{
			ID: scheduler.ReplicaID(i + 1), Learned: 10, Settled: true, Samples: 100, SlopeNanos: queryNanos,
		}}})
	}
	return w
}

// function adds a function with these models as candidates, and returns its choice.
func (w *planWorld) function(f planner.FunctionInfo, models ...int) *Choice {
	f.Key = uint64(len(w.top.Functions) + 1)
	f.SLONanos = 100e6
	for i, m := range models {
		s := &w.snaps[m]
		q := int32(len(s.Functions))
		s.Functions = append(s.Functions, scheduler.FunctionSnapshot{Index: q, Attached: f.Weight})
		f.Candidates = append(f.Candidates, planner.CandidateInfo{Model: int32(m), Queue: q, Gain: math.Pow(0.9, float64(i))})
	}
	ch := NewChoice(f.Mode, len(models), w.top.Lanes[models[0]])
	w.top.Functions = append(w.top.Functions, f)
	w.top.Choices = append(w.top.Choices, ch)
	return ch
}

// run makes a second of plans. It calls traffic in each epoch to add the queries of that epoch.
func (w *planWorld) run(traffic func()) {
	if w.collect == nil {
		w.current = w.top
		w.collect = planner.NewCollector(&w.top.Topology, choices(w.top.Choices))
	}
	for range 100 {
		w.at += 10e6
		w.collect.Begin(w.at, 10e6)
		for i := range w.snaps {
			w.snaps[i].Now = w.at
			w.collect.Model(i, &w.snaps[i])
		}
		w.in = w.collect.Input()
		w.planner.Plan(w.in, &w.out)
		w.apply()
		traffic()
	}
}

// members asks a choice for n queries, and counts for each candidate those that it may evaluate.
func (w *planWorld) members(function int, ch *Choice, n int) []int {
	asked := make([]int, len(ch.wished))
	for range n {
		set := ch.Members()
		for i, c := range w.top.Functions[function].Candidates {
			if set>>i&1 != 0 {
				asked[i]++
				w.snaps[c.Model].Functions[c.Queue].Arrived++
			}
		}
	}
	ch.CountArrived(n)
	return asked
}

func (w *planWorld) about(what string, got, want float64) {
	w.t.Helper()
	if math.Abs(got-want) > 0.03 {
		w.t.Errorf("%s: %.3f, want about %v", what, got, want)
	}
}

// TestEnsembleLosesMembersAsPlanned covers the path from the counts of arrivals and the policy's gains to the members
// of each query.
func TestEnsembleLosesMembersAsPlanned(t *testing.T) {
	w := newPlanWorld(t, 3, true)
	ch := w.function(planner.FunctionInfo{Mode: planner.All}, 0, 1, 2)
	perEpoch := 2 // 200/s, three evaluations of 1 ms each: 60 % of the device
	var asked [3]int
	total := 0
	traffic := func() {
		for i, n := range w.members(0, ch, perEpoch) {
			asked[i] += n
		}
		total += perEpoch
	}
	w.run(traffic)
	if ch.Limited() != 0 || ch.Members() != ^uint64(0) || ch.Planned(make([]float64, 3)) != nil {
		t.Errorf("members %b are dropped although there is room for all", ch.Limited())
	}
	// 500/s: one evaluation of each is half of the device. Up to three quarters there is room for a second one of half
	// of them. The declared gains fall from first to last.
	perEpoch = 5
	w.run(traffic)
	asked, total = [3]int{}, 0
	w.run(traffic)
	for i, want := range []float64{1, 0.5, 0} {
		w.about("declared gains, member's part", float64(asked[i])/float64(total), want)
	}
	ch.SetGains([]float64{0.1, 0.5, 0.9}) // the policy has learned other gains
	w.run(traffic)
	asked, total = [3]int{}, 0
	w.run(traffic)
	for i, want := range []float64{0, 0.5, 1} {
		w.about("gains set by the policy, member's part", float64(asked[i])/float64(total), want)
	}
	if got := ch.Limited(); got != 0b011 {
		t.Errorf("members %b are dropped, want the first two", got)
	}
	if parts := ch.Planned(make([]float64, 3)); len(parts) != 3 || parts[0] > 0.03 || parts[2] != 1 {
		t.Errorf("planned parts %v", parts)
	}
	e := w.Epoch
	e.index, e.functionsOf = map[*Lane]int32{}, [][]int32{{0}, {0}, {0}}
	e.retire(1)
	if ch.Limited() != 0 || ch.Members() != ^uint64(0) {
		t.Error("a plan is in force after its lane has fallen asleep")
	}
}

// TestPolicyIsLimitedAsPlanned: the policy's wishes reach the planner, and its limits and refusals come back, so that
// queries go where there is room. This policy wishes nine of ten for the first candidate.
func TestPolicyIsLimitedAsPlanned(t *testing.T) {
	w := newPlanWorld(t, 2, false)
	ch := w.function(planner.FunctionInfo{Mode: planner.Shares}, 0, 1)
	perEpoch, queries := 5, 0
	var went [2]int
	refused := 0
	even := 0.5 // a sequence spread evenly over the unit interval
	draw := func() float64 {
		even = math.Mod(even+math.Sqrt2, 1)
		return even
	}
	traffic := func() {
		dst := make([]float64, 2)
		for range perEpoch {
			queries++
			wish := 0
			if queries%10 == 0 {
				wish = 1
			}
			ch.CountWish(wish)
			if ch.ShouldRefuse() {
				ch.CountRefused(1)
				refused++
				continue
			}
			if limits := ch.Limits(dst); limits != nil && draw() >= limits[wish] {
				wish = 1 - wish
			}
			went[wish]++
			w.snaps[wish].Functions[0].Arrived++
		}
	}
	settled := func() (first, second, no float64) {
		w.run(traffic)
		w.run(traffic)
		queries, refused, went = 0, 0, [2]int{}
		w.run(traffic)
		n := float64(queries)
		return float64(went[0]) / n, float64(went[1]) / n, float64(refused) / n
	}
	first, second, _ := settled() // 500/s: 450 and 50
	w.about("as wished, the first's part", first, 0.9)
	w.about("as wished, the second's", second, 0.1)
	if ch.Limits(make([]float64, 2)) != nil || ch.ShouldRefuse() || ch.Limited() != 0 {
		t.Error("a limit or refusal although there is room for everything")
	}
	perEpoch = 15 // 1,500/s: the first can serve 900 of 1,350; the second has room
	first, second, _ = settled()
	w.about("at 1,500/s the first's part", first, 0.6)
	w.about("at 1,500/s the second's", second, 0.4)
	if limits := ch.Limits(make([]float64, 2)); len(limits) != 2 || limits[1] != 1 || ch.Limited() != 1 {
		t.Errorf("limits %v, dropping %b", limits, ch.Limited())
	}
	perEpoch = 95 // 9,500/s: five times the capacity of both; two and a half times the capacity is admitted
	_, _, no := settled()
	w.about("at 9,500/s the part that is refused", no, 1-2.5*1900/9500)
}

// TestShadowLeavesLiveUnaffected: a background function evaluates what a live one leaves over, and loses all of its
// queries before the other loses any.
func TestShadowLeavesLiveUnaffected(t *testing.T) {
	w := newPlanWorld(t, 2, true)
	live := w.function(planner.FunctionInfo{Mode: planner.One, Weight: 1}, 0)
	shadow := w.function(planner.FunctionInfo{Mode: planner.All, Background: true, Weight: 0.01}, 1)
	liveRate, shadowed, refused, queries := 0, 0, 0, 0
	traffic := func() {
		for range liveRate {
			if queries++; live.Pick() < 0 {
				live.CountRefused(1)
				refused++
			} else {
				w.snaps[0].Functions[0].Arrived++
			}
		}
		shadowed += w.members(1, shadow, 2)[0]
	}
	for _, c := range []struct {
		perEpoch     int
		shadow, live float64 // the parts that are evaluated
	}{
		{3, 1, 1},      // 30 % and 20 % of the device
		{7, 0.5, 1},    // 70 %: 10 % are left below four fifths
		{9, 0, 1},      // 90 %
		{20, 0, 1},     // twice the device's capacity: the machine chooses
		{100, 0, 0.25}, // ten times: 2.5 times the capacity is admitted
		{3, 1, 1},      // as before
	} {
		liveRate = c.perEpoch
		w.run(traffic)
		w.run(traffic)
		shadowed, refused, queries = 0, 0, 0
		w.run(traffic)
		w.about("the shadow's part", float64(shadowed)/200, c.shadow)
		w.about("the live function's part", 1-float64(refused)/float64(queries), c.live)
	}
}

// TestMembersWakeTogether: the lanes of an ensemble wake with the first of its queries, even if it is refused, and
// fall asleep together.
func TestMembersWakeTogether(t *testing.T) {
	c := NewClock()
	t.Cleanup(c.Close)
	top := &Topology{}
	f := planner.FunctionInfo{Key: 1, Mode: planner.All}
	for i := range 3 {
		l := NewLane(scheduler.DefaultConfig(), c)
		l.AddFunction(1)
		top.Models = append(top.Models, planner.ModelInfo{Key: uint64(i + 1), Device: -1, MaxBatch: 10})
		top.Lanes = append(top.Lanes, l)
		f.Candidates = append(f.Candidates, planner.CandidateInfo{Model: int32(i), Gain: 1})
	}
	ch := NewChoice(planner.All, 3, top.Lanes[0])
	top.Functions, top.Choices = []planner.FunctionInfo{f}, []*Choice{ch}
	e := NewEpoch(c, time.Millisecond)
	t.Cleanup(e.Close)
	e.Set(top)
	eventually(func() bool { return e.next.Load() == top && status(e).Awake == 0 })
	ch.CountArrived(1)
	eventually(func() bool { return status(e).Awake == 3 })
	eventually(func() bool { return status(e).Awake == 0 })

	// A lane that holds a query keeps the others awake: a plan without them would not ask them.
	k := newTicket(t, c, 0, hour, 0)
	top.Lanes[2].Submit(&k.Item)
	eventually(func() bool { return status(e).Awake == 3 })
	before := status(e).Epochs
	eventually(func() bool { return status(e).Epochs > before+2*idleEpochs })
	if n := status(e).Awake; n != 3 {
		t.Errorf("%d lanes are awake while one holds a query, want 3", n)
	}
	top.Lanes[2].Close(api.ModelRemoved)
	k.want(api.ModelRemoved, api.ModelRemoved)
	eventually(func() bool { return status(e).Awake == 0 })
}

// TestEpochAsksPoliciesForGains: the epoch reads what policies have learned, only for functions that have traffic.
func TestEpochAsksPoliciesForGains(t *testing.T) {
	two := planner.FunctionInfo{Mode: planner.All, Candidates: make([]planner.CandidateInfo, 2)}
	top := &Topology{
		Topology: planner.Topology{Functions: []planner.FunctionInfo{two, two, two}},
		Choices:  []*Choice{NewChoice(planner.All, 2, nil), NewChoice(planner.All, 2, nil), NewChoice(planner.All, 2, nil)},
	}
	e := &Epoch{current: top, collect: &planner.Collector{Functions: []int32{0, 2}}}
	e.askGains() // without any Gains
	says := func(gains []float64) { copy(gains, []float64{0.25, 0.75}) }
	top.Gains = []func([]float64){says, func([]float64) { t.Error("a function without traffic was asked") }, nil}
	e.askGains()
	if g, ok := top.Choices[0].gain(1); g != 0.75 || !ok {
		t.Errorf("the second candidate's gain is %v (%v), want 0.75", g, ok)
	}
	if g, ok := top.Choices[2].gain(1); ok {
		t.Errorf("a function without a gains callback has the gain %v", g)
	}
}
