package server

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/node"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/placement"
	"go.uber.org/zap"
)

// scaleEvery is how often it is looked at who needs more replicas, or fewer. Waking a model that sleeps does not wait for it.
const scaleEvery = 250 * time.Millisecond

// capacity says how many replicas each model version has: what its life asks for while it is loaded, what the autoscaler finds while it
// serves, as far as the node has room. It is the only one that changes the number of a set's replicas, but for ending them all.
//
// Its lock is never held together with Server.mu by its own goroutine; whoever holds Server.mu may call it.
type capacity struct {
	s      *Server
	nodes  []placement.Node
	budget budget
	rouse  chan struct{} // capacity 1: somebody is to be looked at before the next tick
	held   atomic.Bool   // replicas are not started yet, for others that have to go are still there

	calls struct {
		sync.Mutex
		woken []*deployment // each at most once: deployment.waking
	}

	mu     sync.Mutex
	seats  map[*deployment]*seat // of versions that have replicas, or want some
	order  []*seat               // of seats, by key: who comes first does not depend on a map
	hinted map[*deployment]bool  // serving versions with hints of what is to come
	// ending is what each replica takes of versions that have no seat any more, and whose replicas may not be gone yet.
	ending      map[*deployment]placement.Resources
	planner     *placement.Planner
	in          placement.Input
	out         placement.Output
	placed      []int32
	snap        scheduler.Snapshot
	gpus        []gpu
	zygoteCount int // as measured, and what they hold together
	zygoteBytes int64
	meter       node.Meter // of the goroutine that measures, as are its usages
	usages      []node.Usage
}

// seat is what capacity knows of one version. Guarded by capacity.mu.
type seat struct {
	d *deployment
	// fixed: the version is being loaded, and is to have so many; else the scaler says how many.
	fixed    bool
	want     int
	granted  int
	set      int // what the supervisor was told last
	short    placement.Short
	decision autoscale.Decision
	scaler   *autoscale.Scaler
	// What the scaler is shown.
	arrived uint64
	last    api.Nanos // when the last query came, as far as the ticks can tell
	grown   api.Nanos // when it was last given a replica more: who is still starting is not idle
	rate    float64
	waiting int
	takes   usage
}

func newCapacity(s *Server) *capacity {
	c := &capacity{
		s: s, rouse: make(chan struct{}, 1), seats: map[*deployment]*seat{}, hinted: map[*deployment]bool{}, ending: map[*deployment]placement.Resources{}, planner: placement.New(),
	}
	c.budget, c.gpus = detectBudget(s.cfg, s.log)
	c.nodes = []placement.Node{{Key: 1, Budget: c.budget.Resources}}
	return c
}

// run keeps the numbers right until ctx ends.
func (c *capacity) run(ctx context.Context) {
	tick := time.NewTicker(scaleEvery)
	defer tick.Stop()
	measure := time.NewTicker(measureEvery)
	defer measure.Stop()
	for {
		select {
		case <-c.rouse:
			c.answerCalls()
		case <-tick.C:
			c.tick()
		case <-measure.C:
			c.measure()
		case <-ctx.Done():
			return
		}
	}
}

// wake is called for each query that finds no replica of a version that may be asked. It does not block, and mostly does nothing: a
// replica is on its way.
func (d *deployment) wake() {
	if d.asked.Load() > 0 || !d.scaled.Load() || d.full.Load() || !d.waking.CompareAndSwap(false, true) {
		return
	}
	c := d.s.capacity
	d.cold.called(c.s.clock.Now())
	c.calls.Lock()
	c.calls.woken = append(c.calls.woken, d)
	c.calls.Unlock()
	c.kick()
}

func (c *capacity) kick() {
	select {
	case c.rouse <- struct{}{}:
	default:
	}
}

// answerCalls wakes those that have been called.
func (c *capacity) answerCalls() {
	c.calls.Lock()
	woken := c.calls.woken
	c.calls.woken = nil
	c.calls.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range woken {
		d.waking.Store(false)
		if !d.scaled.Load() {
			continue // it is being unloaded meanwhile
		}
		seat := c.seatLocked(d)
		c.decideLocked(seat)
		seat.want = max(seat.want, 1)
	}
	c.placeLocked()
}

// seatLocked is the version's seat, made when it is first needed.
func (c *capacity) seatLocked(d *deployment) *seat {
	if st := c.seats[d]; st != nil {
		return st
	}
	if d.scaler == nil {
		d.scaler = autoscale.New()
	}
	st := &seat{d: d, scaler: d.scaler, last: c.s.clock.Now(), takes: d.lastUsage}
	c.seats[d] = st
	at, _ := slices.BinarySearchFunc(c.order, d.key, func(st *seat, key uint64) int { return int(int64(st.d.key) - int64(key)) })
	c.order = slices.Insert(c.order, at, st)
	return st
}

func (c *capacity) leaveLocked(st *seat) {
	st.d.lastUsage = st.takes
	delete(c.seats, st.d)
	if i := slices.Index(c.order, st); i >= 0 {
		c.order = slices.Delete(c.order, i, i+1)
	}
}

// load gives a version that is being loaded n replicas.
func (c *capacity) load(d *deployment, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 {
		return
	}
	st := c.seatLocked(d)
	st.fixed, st.want = true, n
	c.placeLocked()
}

// awaken wakes a version that sleeps before anybody asks it.
func (c *capacity) awaken(d *deployment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !d.scaled.Load() || d.asked.Load() > 0 {
		return
	}
	st := c.seatLocked(d)
	st.want = max(st.want, 1)
	c.placeLocked()
}

// serve lets a version's queries say how many replicas it has, from those on that it has been loaded with. One that could sleep does so at
// once, unless it relieves another.
func (c *capacity) serve(d *deployment, relieves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.scaled.Store(true)
	if len(d.spec().Expect) > 0 {
		c.hinted[d] = true
	}
	st := c.seats[d]
	if st == nil {
		if d.spec().Replicas.First() == 0 {
			if c.awaitedLocked(d) { // by who came when it could not be woken yet
				d.wake()
			}
			d.model.Asleep.Store(true)
			return // it sleeps from the beginning
		}
		st = c.seatLocked(d)
	}
	if st.fixed && d.spec().Replicas.First() == 0 && !relieves && !c.awaitedLocked(d) { // it was awake to show that it may be asked
		c.endLocked(st)
		d.seeDown()
		d.model.Asleep.Store(true)
		if c.awaitedLocked(d) { // somebody has come while this was decided
			d.wake()
		}
		return
	}
	st.fixed, st.last = false, c.s.clock.Now()
	st.want = max(st.want, d.spec().Replicas.First())
	c.placeLocked()
}

// awaitedLocked reports whether queries wait for the version. Those that come later find what was stored before this was asked.
func (c *capacity) awaitedLocked(d *deployment) bool {
	d.lane.Snapshot(&c.snap)
	return c.snap.Queued+c.snap.Late+c.snap.Retrying > 0
}

// rebound looks again at a version whose bounds have changed.
func (c *capacity) rebound(d *deployment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !d.scaled.Load() {
		return
	}
	delete(c.hinted, d)
	if len(d.spec().Expect) > 0 {
		c.hinted[d] = true
	}
	if b := d.spec().Replicas; b.Min > 0 || c.seats[d] != nil {
		st := c.seatLocked(d)
		st.want = min(max(st.want, b.Min), b.Max)
		c.placeLocked()
	}
}

// release takes a version's replicas away, and lets it have none until it is loaded again.
func (c *capacity) release(d *deployment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.scaled.Store(false)
	d.model.Asleep.Store(false)
	delete(c.hinted, d)
	d.asked.Store(0)
	if st := c.seats[d]; st != nil {
		c.endLocked(st)
		c.placeLocked() // for those who had no room
	}
}

// endLocked takes a version's replicas and its seat.
func (c *capacity) endLocked(st *seat) {
	c.leaveLocked(st)
	st.d.asked.Store(0)
	st.d.full.Store(false)   // whoever asks it then may find room
	_ = st.d.set.SetCount(0) // fails when the set is closed, which is what is wanted
	if st.d.set.Len() > 0 {
		c.ending[st.d] = c.takesNow(st)
	}
}

// tick decides for every version that is awake, and for those that are expected to be.
func (c *capacity) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.hinted {
		if c.seats[d] == nil && d.expected(time.Now()) > 0 {
			c.seatLocked(d)
		}
	}
	if len(c.seats) == 0 {
		return
	}
	for _, st := range c.order {
		c.decideLocked(st)
	}
	c.placeLocked()
}

// decideLocked asks a version's scaler.
func (c *capacity) decideLocked(st *seat) {
	in := c.sampleLocked(st)
	if st.fixed {
		return
	}
	bounds := &st.d.spec().Replicas
	if !bounds.Scales() {
		st.want = bounds.Min
		return
	}
	before := st.decision
	st.decision = st.scaler.Decide(&in)
	st.want = st.decision.Replicas
	if before.Replicas != st.decision.Replicas && c.s.log.Core().Enabled(zap.DebugLevel) {
		c.s.log.Debug("replicas wanted", zap.Stringer("model", st.d.id), zap.Int("replicas", st.want), zap.Stringer("reason", st.decision.Reason), zap.Float64("rate", st.decision.Rate), zap.Float64("capacity", st.decision.Capacity))
	}
}

// left is told that a version has lost a replica: queries may have come for it that nobody will wake it for, and others may wait for its
// room.
func (c *capacity) left(d *deployment) {
	if c.held.Load() {
		c.kick()
	}
	if d.asked.Load() == 0 && d.scaled.Load() && d.lane.Held() > 0 {
		d.wake()
	}
}

// answers reports whether an available version answers whoever asks it: it has a replica, or sleeps and gets one then.
func (d *deployment) answers() bool {
	return d.model.Ready.Load() > 0 || d.spec().Replicas.Min == 0 && !d.crashing()
}
