package driver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

const (
	// DefaultEpoch is the default planning period.
	DefaultEpoch = 10 * time.Millisecond //xebec:limit interval between plans; `--epoch`
	// idleEpochs is how many epochs without a query a lane stays awake, so that its estimated rate decays instead of
	// breaking off.
	idleEpochs = 100 //xebec:limit epochs without a query after which a lane is not planned
	// maxPlanningShare bounds the cost of planning: an epoch is stretched so that making a plan takes at most
	// 1/maxPlanningShare of it, but to at most maxStretch times its length. Waiting for busy lanes does not count.
	maxPlanningShare = 20 //xebec:limit planning takes at most one part in this many of a core
	// gainsEpochs: policies are asked for gains once in this many epochs, because what they learn changes slowly
	// compared with a rate.
	gainsEpochs = 16
	maxStretch  = 10
)

// Topology is what an epoch plans for, with the parts that carry the plans out. It must not change once it is set.
type Topology struct {
	planner.Topology
	Lanes   []*Lane   // of each model
	Choices []*Choice // of each function
	Devices []*Device // of each device
	// Gains write what an answer of each candidate is worth to a function's policy, see [Choice.SetGains]. A nil entry,
	// or a nil slice, keeps the declared gains. The epoch calls them for functions that have traffic, every gainsEpochs
	// epochs.
	Gains []func(gains []float64)
}

// Epoch makes plans off the data path: every period it takes snapshots of the lanes that are awake, has a plan made and
// puts it in force. While no lane has queries it sleeps, and the plans are withdrawn.
type Epoch struct {
	clock *Clock
	nanos int64

	activeLanes atomic.Pointer[Lane] // lanes that had queries, chained by Lane.nextActive
	kicks       chan struct{}
	stop        chan struct{}
	done        chan struct{}

	next atomic.Pointer[Topology]

	// PlanNanos is the duration of epochs, from the first snapshot to the last change.
	PlanNanos Histogram

	mu             sync.Mutex // held during planning and Report
	current        *Topology
	collect        *planner.Collector
	planner        *planner.Planner
	in             *planner.Input
	out            planner.Output
	lanes          []awakeLane // of each model of the topology
	index          map[*Lane]int32
	awake          []int32   // indexes of those that are awake
	multiCandidate []int32   // functions with several candidates
	functionsOf    [][]int32 // of each lane: the functions that may ask it
	status         EpochStatus
	snap           scheduler.Snapshot
	gains          [64]float64 // a function has at most this many candidates
}

// awakeLane is the epoch's state of a lane.
type awakeLane struct {
	awake   bool
	held    bool // it had queries at the last look
	idle    int  // epochs without a query
	planned planKeeper
}

// EpochStatus is the state of planning, for display.
type EpochStatus struct {
	// Nanos is the period.
	Nanos int64
	// Epochs counts the plans made; LastNanos is the duration of the last one.
	Epochs    uint64
	LastNanos int64
	LastAt    api.Nanos
	// Awake is the number of model versions in the last plan. 0: asleep.
	Awake int
}

// NewEpoch starts planning every period. Close ends it.
func NewEpoch(clock *Clock, period time.Duration) *Epoch {
	e := &Epoch{
		clock: clock, nanos: int64(period), planner: planner.New(),
		kicks: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	e.status.Nanos = e.nanos
	go e.run()
	return e
}

// Close stops planning. Plans in force stay.
func (e *Epoch) Close() {
	close(e.stop)
	<-e.done
}

// Set replaces the topology; the next epoch plans for the new one. Lanes that it no longer contains lose their plans.
func (e *Epoch) Set(t *Topology) {
	for _, l := range t.Lanes {
		l.epoch.Store(e)
	}
	e.next.Store(t)
	e.kick()
}

func (e *Epoch) kick() {
	select {
	case e.kicks <- struct{}{}:
	default:
	}
}

// markActive puts the lane on the epoch's list, at most once between two looks.
func (l *Lane) markActive() {
	e := l.epoch.Load()
	if e == nil || !l.active.CompareAndSwap(false, true) {
		return
	}
	for {
		head := e.activeLanes.Load()
		l.nextActive = head
		if e.activeLanes.CompareAndSwap(head, l) {
			if head == nil {
				e.kick()
			}
			return
		}
	}
}

func (e *Epoch) run() {
	defer close(e.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		pause := e.plan()
		var passed <-chan time.Time
		kicks := e.kicks
		if pause > 0 {
			timer.Reset(pause)
			passed, kicks = timer.C, nil // a kick must not shorten the period
		}
		select {
		case <-passed:
		case <-kicks:
		case <-e.stop:
			return
		}
	}
}

// plan runs one epoch. It returns how long to wait for the next one; 0: until a lane becomes active.
func (e *Epoch) plan() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	began := e.clock.Now()
	if t := e.next.Load(); t != e.current {
		e.install(t)
	}
	if e.current == nil {
		return 0
	}
	e.wakeActive()
	if !e.gather(began) {
		return 0
	}
	planning := e.clock.Now()
	e.in = e.collect.Input()
	if e.status.Epochs%gainsEpochs == 0 {
		e.askGains()
	}
	e.planner.Plan(e.in, &e.out)
	planned := int64(e.clock.Now() - planning)
	e.apply()

	took := int64(e.clock.Now() - began)
	e.PlanNanos.observe(took)
	e.status.Epochs++
	e.status.LastNanos, e.status.LastAt = took, began
	return time.Duration(max(e.nanos-took, min(maxPlanningShare*planned, maxStretch*e.nanos), 1))
}

// askGains reads from the policies what they have learned, for the plans after this one.
func (e *Epoch) askGains() {
	if e.current.Gains == nil {
		return
	}
	for _, f := range e.collect.Functions {
		ask := e.current.Gains[f]
		if n := len(e.current.Functions[f].Candidates); ask != nil && n <= len(e.gains) {
			ask(e.gains[:n])
			e.current.Choices[f].SetGains(e.gains[:n])
		}
	}
}

// install switches to a new topology. The estimated rates start over, which takes about a tenth of a second.
func (e *Epoch) install(t *Topology) {
	old, oldIndex := e.lanes, e.index
	e.lanes, e.index = make([]awakeLane, len(t.Lanes)), make(map[*Lane]int32, len(t.Lanes))
	e.awake, e.multiCandidate = e.awake[:0], e.multiCandidate[:0]
	for i, l := range t.Lanes {
		e.index[l] = int32(i)
		if was, ok := oldIndex[l]; ok {
			e.lanes[i] = old[was]
			e.lanes[i].planned.plan = scheduler.Plan{} // indexes may mean other functions now: set the plan again
			delete(oldIndex, l)
			if e.lanes[i].awake {
				e.awake = append(e.awake, int32(i))
			}
		}
	}
	e.functionsOf = make([][]int32, len(t.Lanes))
	for f := range t.Functions {
		if len(t.Functions[f].Candidates) > 1 {
			e.multiCandidate = append(e.multiCandidate, int32(f))
		}
		for _, c := range t.Functions[f].Candidates {
			e.functionsOf[c.Model] = append(e.functionsOf[c.Model], int32(f))
		}
	}
	for l, was := range oldIndex {
		if old[was].planned.inForce {
			l.SetPlan(scheduler.Plan{})
		}
	}
	e.current = t
	e.collect = planner.NewCollector(&t.Topology, choices(t.Choices))
	e.in = nil
}

// wakeActive wakes the lanes that had queries since the last epoch, and the other candidates of their functions.
func (e *Epoch) wakeActive() {
	for l := e.activeLanes.Swap(nil); l != nil; {
		next := l.nextActive
		l.nextActive = nil
		l.active.Store(false) // from now on it may be put on the list again
		if i, ok := e.index[l]; ok {
			e.wake(i)
		}
		l = next
	}
	for _, f := range e.multiCandidate {
		cands := e.current.Functions[f].Candidates
		active := false
		for _, c := range cands {
			lane := &e.lanes[c.Model]
			// A lane that holds queries keeps the others awake: a sleeping one is not in the plan and would get no
			// queries.
			active = active || lane.awake && (lane.idle == 0 || lane.held)
		}
		for _, c := range cands {
			if active {
				e.wake(c.Model)
			}
		}
	}
}

func (e *Epoch) wake(i int32) {
	lane := &e.lanes[i]
	lane.idle = 0
	if !lane.awake {
		lane.awake = true
		e.awake = append(e.awake, i)
	}
}

// gather takes the snapshots. It returns false if all lanes sleep.
func (e *Epoch) gather(now api.Nanos) bool {
	e.collect.Begin(now, e.nanos)
	awake := e.awake[:0]
	for _, i := range e.awake {
		lane := &e.lanes[i]
		e.current.Lanes[i].Snapshot(&e.snap)
		if lane.held = e.snap.Held > 0; lane.held {
			lane.idle = 0
		}
		if lane.idle++; lane.idle > idleEpochs {
			e.retire(i)
			continue
		}
		awake = append(awake, i)
		e.collect.Model(int(i), &e.snap)
	}
	e.awake = awake
	e.status.Awake = len(awake)
	return len(awake) > 0
}

// retire withdraws the plan of a lane that falls asleep.
func (e *Epoch) retire(i int32) {
	lane := &e.lanes[i]
	lane.awake = false
	if lane.planned.inForce {
		e.current.Lanes[i].SetPlan(scheduler.Plan{})
		lane.planned.inForce = false
	}
	for _, f := range e.functionsOf[i] {
		e.current.Choices[f].Set(nil)
	}
}

// apply puts the plan in force where it differs from the previous one.
func (e *Epoch) apply() {
	for i := range e.out.Models {
		at := e.collect.Models[i]
		if lane := &e.lanes[at]; lane.planned.differs(&e.out.Models[i].Plan) {
			e.current.Lanes[at].SetPlan(e.out.Models[i].Plan)
		}
	}
	for i := range e.out.Functions {
		e.current.Choices[e.collect.Functions[i]].Set(&e.out.Functions[i])
	}
	for i := range e.out.Devices {
		for _, turn := range e.out.Devices[i].Turns {
			l := e.current.Lanes[e.collect.Models[turn.Model]]
			e.current.Devices[i].setTurn(l, turn.Nanos)
		}
	}
}

// choices gives the planner access to the counts and gains.
type choices []*Choice

func (c choices) Counted(function int) uint64 { return c[function].counted() }

func (c choices) Gain(function, candidate int) (float64, bool) { return c[function].gain(candidate) }

func (c choices) Wished(function, candidate int) uint64 { return c[function].wished[candidate].Load() }

// Report calls show with the last plan and its input, for display. show must keep nothing of it. in is nil while there
// is no plan. The indexes in in and out are positions in functions and models, which hold the topology's indexes.
func (e *Epoch) Report(show func(status EpochStatus, t *Topology, functions, models []int32, in *planner.Input, out *planner.Output)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil || e.in == nil || e.status.Awake == 0 {
		show(e.status, e.current, nil, nil, nil, nil)
		return
	}
	show(e.status, e.current, e.collect.Functions, e.collect.Models, e.in, &e.out)
}

// planKeeper remembers the plan in force.
type planKeeper struct {
	inForce bool // a plan other than the zero plan
	plan    scheduler.Plan
	shares  []float64 // memory of plan.Replicas[].Shares
}

// differs reports whether p differs from the plan that it keeps, and keeps p if so.
func (k *planKeeper) differs(p *scheduler.Plan) bool {
	none := p.Execution == scheduler.Whole
	for i := range p.Functions {
		none = none && p.Functions[i] == scheduler.FunctionPlan{}
	}
	for i := range p.Replicas {
		r := &p.Replicas[i]
		none = none && r.Cap == 0 && r.HoldNanos == 0 && r.ObjectiveNanos == 0 && len(r.Shares) == 0
	}
	if none {
		was := k.inForce
		k.inForce = false
		return was
	}
	if k.inForce && k.same(p) {
		return false
	}
	k.inForce = true
	k.plan.Execution = p.Execution
	k.plan.Functions = append(k.plan.Functions[:0], p.Functions...)
	k.plan.Replicas, k.shares = k.plan.Replicas[:0], k.shares[:0]
	for _, r := range p.Replicas {
		from := len(k.shares)
		k.shares = append(k.shares, r.Shares...)
		r.Shares = k.shares[from:len(k.shares):len(k.shares)]
		k.plan.Replicas = append(k.plan.Replicas, r)
	}
	return true
}

func (k *planKeeper) same(p *scheduler.Plan) bool {
	if k.plan.Execution != p.Execution || len(k.plan.Functions) != len(p.Functions) || len(k.plan.Replicas) != len(p.Replicas) {
		return false
	}
	for i := range p.Functions {
		if k.plan.Functions[i] != p.Functions[i] {
			return false
		}
	}
	for i := range p.Replicas {
		a, b := &k.plan.Replicas[i], &p.Replicas[i]
		if a.ID != b.ID || a.Cap != b.Cap || a.HoldNanos != b.HoldNanos || a.ObjectiveNanos != b.ObjectiveNanos || len(a.Shares) != len(b.Shares) {
			return false
		}
		for s := range a.Shares {
			if a.Shares[s] != b.Shares[s] {
				return false
			}
		}
	}
	return true
}
