package capacity

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// Version is what a Capacity asks a model version. The methods must not block and must not call back.
type Version interface {
	// Spec is the current declaration.
	Spec() *api.ModelSpec
	// Crashing reports whether its replicas keep failing.
	Crashing() bool
	// StartsFail reports whether its starts have kept failing since a replica was last ready, although others may be, and how the last
	// one ended.
	StartsFail() (last string, fail bool)
	// Processes are its replicas that are ready. The usage of a replica that still loads means nothing.
	Processes() []Process
	// CountChanged is called when it is to have no replica any more: waiting for one may make no sense now.
	CountChanged()
}

// Process is one replica that is ready.
type Process struct {
	PID     int
	Ready   time.Time
	Batches uint64 // evaluated so far
}

// Member is one model version as a Capacity sees it. It belongs to the version and is not copied once it has joined.
type Member struct {
	c       *Capacity
	version Version
	id      api.ModelID
	key     uint64
	lane    *driver.Lane
	set     *containers.Set
	model   *query.Model

	// Cold measures how long queries waited for the version to wake.
	Cold ColdStarts

	// A scaled version has as many replicas as its queries need; asked is that number now. waking: it has been called and not
	// looked at yet. full: it wants a replica and there is no room; each tick looks again.
	scaled, waking, full atomic.Bool
	spare                atomic.Bool // it may sleep, whatever its declaration says
	asked                atomic.Int32
	profiled             atomic.Bool                      // profile is not nil
	lastReady            atomic.Int64                     // api.Nanos when a replica last became ready
	sloNanos             atomic.Int64                     // the smallest objective of its functions; 0: it has none
	weightBits           atomic.Uint64                    // the largest weight of its functions
	choices              atomic.Pointer[[]*driver.Choice] // of the functions whose first candidate it is

	// Guarded by Capacity.mu.
	scaler            *autoscale.Scaler
	lastUsage         usage
	profile           *api.KnownProfile // nil: no replica has been measured yet
	refused, lastSeen uint64            // of refusedByPlan: so far, and the last reading
}

// Joining is what a version brings when it joins.
type Joining struct {
	ID    api.ModelID
	Key   uint64 // unique in the gateway; ties are broken by it
	Lane  *driver.Lane
	Set   *containers.Set
	Model *query.Model
}

// Join makes m a member for the version. It has no replicas until Load or Serve.
func (c *Capacity) Join(m *Member, v Version, j Joining) {
	m.c, m.version, m.id, m.key, m.lane, m.set, m.model = c, v, j.ID, j.Key, j.Lane, j.Set, j.Model
}

// Asked is how many replicas the version is to have now.
func (m *Member) Asked() int { return int(m.asked.Load()) }

// NoRoom reports whether the version wants a replica and the node has no room for one.
func (m *Member) NoRoom() bool { return m.full.Load() }

// SetDemand says what follows from the functions that use the version: their smallest objective, 0 for none, and their largest
// weight, which is the version's where there is not enough room for all.
func (m *Member) SetDemand(slo time.Duration, weight float64) {
	m.sloNanos.Store(int64(slo))
	m.weightBits.Store(math.Float64bits(weight))
}

// SetChoices says whose refusals count as the version's demand: those of the functions whose first candidate it is. The slice
// is kept; nil: there are none.
func (m *Member) SetChoices(choices []*driver.Choice) {
	switch {
	case choices == nil:
		m.choices.Store(nil)
	case !slices.Equal(m.choicesNow(), choices):
		kept := choices // the usual case, nothing changed, allocates nothing
		m.choices.Store(&kept)
	}
}

func (m *Member) choicesNow() []*driver.Choice {
	if c := m.choices.Load(); c != nil {
		return *c
	}
	return nil
}

func (m *Member) weight() float64    { return math.Float64frombits(m.weightBits.Load()) }
func (m *Member) readyAt() api.Nanos { return api.Nanos(m.lastReady.Load()) }

// ReplicaReady notes that a replica became ready.
func (m *Member) ReplicaReady() { m.lastReady.Store(int64(m.c.cfg.Now())) }

// Wake is called for each query that found no replica of a version that may be asked. It does not block, and mostly does
// nothing because a replica is on its way.
func (m *Member) Wake() {
	if m.asked.Load() > 0 || !m.scaled.Load() || m.full.Load() || !m.waking.CompareAndSwap(false, true) {
		return
	}
	m.Cold.called(m.c.cfg.Now())
	m.c.calls.Lock()
	m.c.calls.woken = append(m.c.calls.woken, m)
	m.c.calls.Unlock()
	m.c.kick()
}

// Load gives a version that is loading n replicas; 0 changes nothing.
func (m *Member) Load(n int) {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 {
		return
	}
	st := c.seatOf(m)
	st.fixed, st.want = true, n
	c.place()
}

// Awaken wakes a sleeping version before a query asks for it.
func (m *Member) Awaken() {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.scaled.Load() || m.asked.Load() > 0 {
		return
	}
	st := c.seatOf(m)
	st.want = max(st.want, 1)
	c.place()
}

// Serve lets a version's queries decide its number of replicas, starting from the replicas it was loaded with. A version that
// may sleep does so at once, unless it takes over from another.
func (m *Member) Serve(takesOver bool) {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	m.scaled.Store(true)
	spec := m.version.Spec()
	if len(spec.Expect) > 0 {
		c.hinted[m] = true
	}
	st := c.seats[m]
	bounds := m.bounds()
	first := max(bounds.First(), c.floor(m))
	if st == nil {
		if first == 0 {
			if c.awaited(m) { // by queries that came when it could not be woken yet
				m.Wake()
			}
			m.model.Asleep.Store(true)
			return // it sleeps from the beginning
		}
		st = c.seatOf(m)
	}
	if st.fixed && first == 0 && !takesOver && !c.awaited(m) { // it was awake only to be validated
		c.end(st)
		m.version.CountChanged()
		m.model.Asleep.Store(true)
		if c.awaited(m) { // a query came while this was decided
			m.Wake()
		}
		return
	}
	st.fixed, st.last = false, c.cfg.Now()
	st.want = max(st.want, first)
	c.place()
}

// Rebound looks again at a version whose bounds have changed.
func (m *Member) Rebound() {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !m.scaled.Load() {
		return
	}
	delete(c.hinted, m)
	spec := m.version.Spec()
	if len(spec.Expect) > 0 {
		c.hinted[m] = true
	}
	if b := m.bounds(); b.Min > 0 || c.seats[m] != nil {
		st := c.seatOf(m)
		st.want = min(max(st.want, b.Min), b.Max)
		c.place()
	}
}

// SetSpare says whether the version only waits for the failure of another one. It then sleeps when it is idle, whatever its
// declaration says.
func (m *Member) SetSpare(spare bool) {
	if m.spare.Swap(spare) != spare {
		m.Rebound()
	}
}

// Spare reports whether the version only waits for the failure of another one.
func (m *Member) Spare() bool { return m.spare.Load() }

// bounds are the declared bounds of the number of replicas, as they apply now.
func (m *Member) bounds() api.ReplicaBounds {
	b := m.version.Spec().Replicas
	if m.spare.Load() {
		b.Min, b.Initial = 0, 0
	}
	return b
}

// Release ends a version's replicas. It gets no more until it is loaded again.
func (m *Member) Release() {
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	m.scaled.Store(false)
	m.model.Asleep.Store(false)
	delete(c.hinted, m)
	m.asked.Store(0)
	if st := c.seats[m]; st != nil {
		c.end(st)
		c.place() // others may have waited for the room
	}
}

// ReplicaLost is called when a version lost a replica: queries may be queued with no pending wake-up, and other versions may
// wait for the room.
func (m *Member) ReplicaLost() {
	if m.c.held.Load() {
		m.c.kick()
	}
	if m.asked.Load() == 0 && m.scaled.Load() && m.lane.Held() > 0 {
		m.Wake()
	}
}

// refusedByPlan counts the queries that reached no lane because the plan had no place for them. It never falls, although
// choices are replaced and start at 0. Its caller holds Capacity.mu.
func (m *Member) refusedByPlan() uint64 {
	now := uint64(0)
	for _, c := range m.choicesNow() {
		now += c.Refused()
	}
	if now > m.lastSeen {
		m.refused += now - m.lastSeen
	}
	m.lastSeen = now
	return m.refused
}
