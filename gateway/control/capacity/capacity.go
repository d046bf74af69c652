package capacity

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

// scaleEvery is the period of the autoscaler. Waking a sleeping version does not wait for it.
const scaleEvery = 250 * time.Millisecond //xebec:limit interval between autoscaling decisions

// Config is what a Capacity needs of the gateway.
type Config struct {
	// CPU (cores) and MemoryBytes override what the machine is found to have; 0: as found.
	CPU         float64
	MemoryBytes int64
	Now         func() api.Nanos
	// Life ends when the gateway begins to stop: from then on nothing is started in the room of what ends.
	Life context.Context
	// Changed is called when a version's number of replicas changed in a way its life cycle depends on. It must not block.
	Changed func(model string)
	// Preloaded returns the PIDs of processes that hold preloaded modules, which count against the node's memory; may be nil.
	Preloaded func() []int
	Log       *zap.Logger
}

// Capacity decides how many replicas each model version has. It is the only caller that changes the count of a version's
// set, except for the version's own end.
type Capacity struct {
	cfg    Config
	nodes  []placement.Node
	budget budget
	kicked chan struct{} // capacity 1: a member is to be looked at before the next tick
	held   atomic.Bool   // replicas are not started yet because others are still ending

	calls struct {
		sync.Mutex
		woken []*Member // each at most once: Member.waking
	}

	mu     sync.Mutex
	floors map[api.ModelID]int // replicas that versions have at least, whatever their queries need; nil: none
	seats  map[*Member]*seat   // of versions that have replicas, or want some
	order  []*seat             // of seats, by key: results do not depend on the order of a map
	hinted map[*Member]bool    // serving versions with hints of expected load
	// ending is what one replica uses, of versions that have no seat any more and whose replicas may still be ending.
	ending       map[*Member]placement.Resources
	planner      *placement.Planner
	in           placement.Input
	out          placement.Output
	placed       []int32
	snap         scheduler.Snapshot
	gpus         []gpu
	preloadCount int // processes that hold preloaded modules, as last measured, and the memory they hold together
	preloadBytes int64
	meter        node.Meter // used by the measuring goroutine only, as is usages
	usages       []node.Usage
}

// seat is what Capacity knows of a version that has replicas or wants some. Guarded by Capacity.mu.
type seat struct {
	m *Member
	// fixed: the version is loading and gets want replicas; otherwise the scaler sets want.
	fixed    bool
	want     int
	granted  int
	set      int // the count that the supervisor was given last
	short    placement.Shortage
	decision autoscale.Decision
	scaler   *autoscale.Scaler
	// The scaler's input.
	arrived uint64
	last    api.Nanos // of the last query, to the resolution of the ticks
	grown   api.Nanos // when the count last grew: a replica that is starting is not idle
	rate    float64
	waiting int
	usage   usage
}

// New makes a Capacity for this machine. Run starts it.
func New(cfg Config) *Capacity {
	c := &Capacity{
		cfg: cfg, kicked: make(chan struct{}, 1), seats: map[*Member]*seat{}, hinted: map[*Member]bool{}, ending: map[*Member]placement.Resources{}, planner: placement.New(),
	}
	c.budget, c.gpus = detectBudget(cfg)
	c.nodes = []placement.Node{{Key: 1, Budget: c.budget.Resources}}
	return c
}

// Run keeps the counts right until ctx ends.
func (c *Capacity) Run(ctx context.Context) {
	tick := time.NewTicker(scaleEvery)
	defer tick.Stop()
	measure := time.NewTicker(measureEvery)
	defer measure.Stop()
	for {
		select {
		case <-c.kicked:
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

// Awake is how many versions have replicas, or want some.
func (c *Capacity) Awake() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seats)
}

func (c *Capacity) kick() {
	select {
	case c.kicked <- struct{}{}:
	default:
	}
}

// answerCalls gives each woken version a replica.
func (c *Capacity) answerCalls() {
	c.calls.Lock()
	woken := c.calls.woken
	c.calls.woken = nil
	c.calls.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range woken {
		m.waking.Store(false)
		if !m.scaled.Load() {
			continue // it is being unloaded meanwhile
		}
		seat := c.seatOf(m)
		c.decide(seat)
		seat.want = max(seat.want, 1)
	}
	c.place()
}

// The methods below need Capacity.mu.

// seatOf returns the member's seat, made when it is first needed.
func (c *Capacity) seatOf(m *Member) *seat {
	if st := c.seats[m]; st != nil {
		return st
	}
	if m.scaler == nil {
		m.scaler = autoscale.New()
	}
	st := &seat{m: m, scaler: m.scaler, last: c.cfg.Now(), usage: m.lastUsage}
	c.seats[m] = st
	at, _ := slices.BinarySearchFunc(c.order, m.key, func(st *seat, key uint64) int { return int(int64(st.m.key) - int64(key)) })
	c.order = slices.Insert(c.order, at, st)
	return st
}

func (c *Capacity) leave(st *seat) {
	st.m.lastUsage = st.usage
	delete(c.seats, st.m)
	if i := slices.Index(c.order, st); i >= 0 {
		c.order = slices.Delete(c.order, i, i+1)
	}
}

// awaited reports whether queries wait for the version. A query that comes later sees what was stored before this call.
func (c *Capacity) awaited(m *Member) bool {
	m.lane.Snapshot(&c.snap)
	return c.snap.Queued+c.snap.Late+c.snap.Retrying > 0
}

// end takes a version's replicas and its seat.
func (c *Capacity) end(st *seat) {
	c.leave(st)
	st.m.asked.Store(0)
	st.m.full.Store(false)   // a later query may find room
	_ = st.m.set.SetCount(0) // fails when the set is closed, which is what is wanted
	if st.m.set.Len() > 0 {
		c.ending[st.m] = c.plannedUsage(st)
	}
}

// tick decides for every version that is awake, and for those that are expected to get queries.
func (c *Capacity) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := range c.hinted {
		if c.seats[m] == nil && m.expected(time.Now()) > 0 {
			c.seatOf(m)
		}
	}
	if len(c.seats) == 0 {
		return
	}
	for _, st := range c.order {
		c.decide(st)
	}
	c.place()
}

// decide asks a version's scaler.
func (c *Capacity) decide(st *seat) {
	in := c.sample(st)
	if st.fixed {
		return
	}
	bounds := st.m.bounds()
	if !bounds.Scales() {
		st.want = bounds.Min
		return
	}
	before := st.decision
	st.decision = st.scaler.Decide(&in)
	st.want = st.decision.Replicas
	if before.Replicas != st.decision.Replicas && c.cfg.Log.Core().Enabled(zap.DebugLevel) {
		c.cfg.Log.Debug("replicas wanted", zap.Stringer("model", st.m.id), zap.Int("replicas", st.want), zap.Stringer("reason", st.decision.Reason), zap.Float64("rate", st.decision.Rate), zap.Float64("capacity", st.decision.Capacity))
	}
}
