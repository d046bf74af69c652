package scheduler

import "github.com/xebec-serving/xebec/api"

// Machine schedules the queries of one model version onto its replicas. See the package comment for how to drive it. It
// is not safe for concurrent use.
type Machine struct {
	cfg Config
	now api.Nanos
	seq uint64

	functions []*function // nil where a function was removed and its index is free
	round                 // the round robin's place among the functions
	minWeight float64

	changeSeq   uint64  // incremented by each event after which a waiting query may no longer be too urgent for a replica
	anyRejected bool    // a replica has found all waiting queries too urgent since changeSeq last changed
	filled      uint64  // number of batches that send began to fill
	deferred    []*Item // while a batch is filled: queries too urgent for its replica but not for another
	live        int     // items in the functions' sub-queues
	liveBytes   int     // bytes of their inputs
	late        queue   // answered items, by the time they expire
	retries     queue   // items that must travel alone, by deadline
	suspects    int     // how many of them may have killed a replica
	homes       homes   // where sticky queries wait
	bytes       int     // of the inputs of all waiting items
	held        int     // items accepted and not released
	waitSince   api.Nanos

	replicas    []*replica
	byID        map[ReplicaID]*replica // nil while there are none
	ready       int                    // replicas that take batches
	readySeenAt api.Nanos              // when a replica was last ready, while none is
	holdUntil   api.Nanos              // when the batch that is held back is due
	followAt    api.Nanos              // when a busy replica should get its next batch
	eagerNanos  int64                  // pipelineEagerNanos, except in the test that measures it

	rate      rate
	execution Execution
	turn      turn // on a shared device
	hedging   hedging
	prior     Prior // that profiles of new replicas begin with
	isolation isolation

	closed    bool
	closeCode api.Code

	out         Actions
	freeFlights []*flight
	counters    Counters
}

// function is one function's sub-queue at this model version.
type function struct {
	index      int32
	weight     float64
	plan       FunctionPlan
	removed    bool
	items      int // accepted and not released
	rate       rate
	arrived    uint64
	bytes      uint64  // of the inputs of arrived queries
	skippedBy  uint64  // the batch (by filling.seq) for which its queries were skipped
	shedding   float64 // sum of plan.Shed: at 1 a query is refused
	queue      queue
	atHome     int // sticky queries that wait
	deficit    float64
	prev, next *function // ring of functions that have queries waiting
}

// Weights beyond these bounds would give one function thousands of batches before another gets one query.
const (
	minFunctionWeight = 0.01
	maxFunctionWeight = 100
)

func (f *function) share() float64 {
	w := f.weight
	if f.plan.Weight != 0 {
		w = f.plan.Weight
	}
	if !(w > 0) { // also true for NaN
		return 1
	}
	return clampWeight(w)
}

func clampWeight(w float64) float64 { return max(minFunctionWeight, min(w, maxFunctionWeight)) }

// New makes a machine without functions and replicas.
func New(cfg Config) *Machine {
	return &Machine{
		cfg:         cfg.normal(),
		minWeight:   1,
		readySeenAt: -api.Never,
		holdUntil:   api.Never,
		followAt:    api.Never,
		eagerNanos:  pipelineEagerNanos,
		hedging:     hedging{tokens: HedgeBurst, dueAt: api.Never},
	}
}

// Config is the configuration in force, with defaults filled in.
func (m *Machine) Config() Config { return m.cfg }

// Configure puts cfg in force. It does not affect batches in flight or queries that wait. Replicas keep their depths
// and profiles; their batch caps adapt to the new policy from their current values.
func (m *Machine) Configure(now api.Nanos, cfg Config) {
	m.tick(now)
	m.noteChange()
	cfg = cfg.normal()
	old := m.cfg
	m.cfg = cfg
	if old.Batching == cfg.Batching {
		return
	}
	hold := old.Batching
	hold.HoldNanos, hold.MaxBatchBytes = cfg.Batching.HoldNanos, cfg.Batching.MaxBatchBytes
	if hold == cfg.Batching {
		return
	}
	for _, r := range m.replicas {
		m.rebuildController(r)
	}
}

// AddFunction attaches a function and returns its index, for [api.Query.Function]. While other functions' queries wait
// too, its part of each batch is proportional to weight. 0 means 1; weights are clamped to between 0.01 and 100.
func (m *Machine) AddFunction(weight float64) int32 {
	f := &function{weight: weight}
	for i, old := range m.functions {
		if old == nil {
			f.index = int32(i)
			m.functions[i] = f
			m.reweigh()
			return f.index
		}
	}
	f.index = int32(len(m.functions))
	m.functions = append(m.functions, f)
	m.reweigh()
	return f.index
}

// SetWeight changes the weight that a function was attached with.
func (m *Machine) SetWeight(index int32, weight float64) {
	if f := m.function(index); f != nil {
		f.weight = weight
		m.reweigh()
	}
}

// RemoveFunction detaches a function: its new queries are refused with ModelRemoved, those that were accepted are
// served. The index may be reused once the last of them has been released.
func (m *Machine) RemoveFunction(index int32) {
	f := m.function(index)
	if f == nil {
		return
	}
	f.removed = true
	m.freeIndex(f)
}

func (m *Machine) function(index int32) *function {
	if index < 0 || int(index) >= len(m.functions) {
		return nil
	}
	return m.functions[index]
}

// freeIndex frees the index of a removed function that has no query left.
func (m *Machine) freeIndex(f *function) {
	if f.removed && f.items == 0 {
		m.functions[f.index] = nil
		m.reweigh()
	}
}

func (m *Machine) reweigh() {
	m.minWeight = maxFunctionWeight
	for _, f := range m.functions {
		if f != nil {
			m.minWeight = min(m.minWeight, f.share())
		}
	}
	for _, r := range m.replicas {
		r.minShare = maxFunctionWeight
		for _, f := range m.functions {
			if f != nil {
				if share := r.shareOf(f); share > 0 {
					r.minShare = min(r.minShare, share)
				}
			}
		}
		for len(r.deficits) < len(m.functions) {
			r.deficits = append(r.deficits, 0)
		}
	}
}

// FreeBuffers frees the memory of batches and queues if the machine has no replicas and holds no queries. A model version
// may sleep for days, and thousands of sleeping ones may each have had a rush once. FreeBuffers changes nothing else; the
// memory is allocated again on demand. Call it after the actions of the last Ready have been carried out.
func (m *Machine) FreeBuffers() {
	if len(m.replicas) > 0 || m.held > 0 {
		return
	}
	m.freeFlights, m.deferred, m.replicas, m.byID = nil, nil, nil, nil
	m.late.heap, m.retries.heap, m.homes = nil, nil, homes{}
	for _, f := range m.functions {
		if f != nil {
			f.queue.heap = nil
		}
	}
	if o := &m.out; len(o.Dispatches)+len(o.Kills)+len(o.Ends)+len(o.Drained)+len(o.Evaluated) == 0 {
		*o = Actions{EndTurn: o.EndTurn, WantTurn: o.WantTurn}
	}
}

// tick moves the machine's clock. Events may be stamped slightly out of order (a completion carries the time at which
// it was seen), but the clock itself never goes back.
func (m *Machine) tick(now api.Nanos) { m.now = max(m.now, now) }

// Arrive hands a query over. The machine owns the item until an End of kind Both or ReleaseOnly names it, even if the
// query is refused: a refusal is an End like any other.
func (m *Machine) Arrive(now api.Nanos, it *Item) {
	m.tick(now)
	it.seq = m.seq
	m.seq++
	it.acceptedAt = m.now
	it.bytes = it.InputBytes()
	it.place, it.answered, it.retried, it.suspect, it.probe, it.hedged, it.winner = nowhere, false, false, false, false, false, nil
	it.failed = api.OK
	m.counters.Arrived++
	m.rate.count(m.now)
	if m.anyRejected {
		m.recheckRejected(it)
	}
	if f := m.function(it.Function); f != nil {
		f.arrived++
		f.rate.count(m.now)
		f.bytes += uint64(it.bytes)
	}

	if code := m.admit(it); code != api.OK {
		m.counters.Ended[code]++
		m.out.Ends = append(m.out.Ends, End{it, code, Both})
		return
	}
	f := m.functions[it.Function]
	f.items++
	m.held++
	m.enqueue(f, it)
}

// noteChange records an event after which a waiting query may no longer be too urgent for a replica.
func (m *Machine) noteChange() {
	m.changeSeq++
	m.anyRejected = false
}

// recheckRejected checks whether a replica that found all other queries too urgent may be quick enough for a new one.
func (m *Machine) recheckRejected(it *Item) {
	for _, r := range m.replicas {
		if r.rejectedSeq == m.changeSeq && r.meetsDeadline(m.now, it.Deadline) {
			m.noteChange()
			return
		}
	}
}

// Cancel drops a waiting query because its caller has gone; it ends as Cancelled. A query in flight stays where it is
// and ends with its batch. An item that the machine does not hold (any more) is ignored.
func (m *Machine) Cancel(now api.Nanos, it *Item) {
	m.tick(now)
	m.noteChange()
	if m.withdraw(it) {
		m.finish(it, api.Cancelled)
	}
}

// withdraw takes a waiting item out of its queue. It returns false if the item does not wait.
func (m *Machine) withdraw(it *Item) bool {
	switch it.place {
	case queued:
		f := m.functions[it.Function]
		i := f.queue.find(it.Deadline, it)
		if i < 0 {
			return false
		}
		f.queue.removeAt(i)
		m.live--
		m.liveBytes -= it.bytes
		if f.queue.len() == 0 {
			m.leaveRing(f)
		}
	case atHome:
		q := m.homeQueue(it)
		q.removeAt(q.find(it.Deadline, it))
		m.leaveHome(it)
		return true
	case late:
		m.late.removeAt(m.late.find(it.Expires, it))
	case retrying:
		m.retries.removeAt(m.retries.find(it.Deadline, it))
		if it.mayKill() {
			m.suspects--
		}
	default:
		return false
	}
	m.bytes -= it.bytes
	return true
}

// Close answers everything that waits with code (ShuttingDown or ModelRemoved), and every query that arrives later.
// Queries in flight end with their batches; those of a replica that dies end with code. A second Close only changes the
// code.
func (m *Machine) Close(now api.Nanos, code api.Code) {
	m.tick(now)
	m.closed, m.closeCode = true, code
	m.closeHomes(code)
	for m.cursor != nil {
		m.finish(m.takeLive(m.cursor), code)
	}
	for m.retries.len() > 0 {
		m.finish(m.takeRetry(), code)
	}
	for m.late.len() > 0 {
		m.finish(m.takeFrom(&m.late), code)
	}
}

// enqueue puts an item into its function's sub-queue or, if it is sticky, into the queue of its home.
func (m *Machine) enqueue(f *function, it *Item) {
	if it.Sticky != 0 {
		m.queueAtHome(it)
		return
	}
	if m.live == 0 {
		m.waitSince = m.now
	}
	it.place = queued
	m.live++
	m.liveBytes += it.bytes
	m.bytes += it.bytes
	if f.queue.len() == 0 {
		m.joinRing(f)
	}
	f.queue.push(it.Deadline, it)
}

// takeLive takes the most urgent item out of f's sub-queue.
func (m *Machine) takeLive(f *function) *Item {
	it := f.queue.pop()
	m.live--
	m.liveBytes -= it.bytes
	m.bytes -= it.bytes
	if f.queue.len() == 0 {
		m.leaveRing(f)
	}
	return it
}

// takeFrom takes the first item out of the late or the retry queue.
func (m *Machine) takeFrom(q *queue) *Item {
	it := q.pop()
	m.bytes -= it.bytes
	return it
}

// finish ends an accepted item that is in no queue and no batch any more.
func (m *Machine) finish(it *Item, code api.Code) {
	kind := Both
	if it.answered {
		kind = ReleaseOnly
	} else {
		m.counters.Ended[code]++
	}
	m.leave(it, End{it, code, kind})
}

// leave ends the machine's use of an accepted item.
func (m *Machine) leave(it *Item, end End) {
	it.place = nowhere
	m.held--
	m.out.Ends = append(m.out.Ends, end)
	f := m.functions[it.Function]
	f.items--
	if f.removed {
		m.freeIndex(f)
	}
}

// answer answers the caller of an item that stays in the machine.
func (m *Machine) answer(it *Item, code api.Code) {
	it.answered = true
	m.counters.Ended[code]++
	m.out.Ends = append(m.out.Ends, End{it, code, AnswerOnly})
}

// queuedItems is the number of items that wait.
func (m *Machine) queuedItems() int { return m.forAny() + m.homes.waiting }

// forAny is the number of items that wait for any replica.
func (m *Machine) forAny() int { return m.live + m.late.len() + m.retries.len() }

func (m *Machine) joinRing(f *function) {
	if m.cursor == nil {
		f.prev, f.next = f, f
		m.round = round{cursor: f}
		return
	}
	// Behind all others: the cursor's predecessor is visited last.
	f.next, f.prev = m.cursor, m.cursor.prev
	f.prev.next, f.next.prev = f, f
}

func (m *Machine) leaveRing(f *function) {
	f.deficit = 0 // a function with an empty queue saves no deficit
	next := f.next
	if next == f {
		next = nil
	}
	if m.cursor == f {
		m.round = round{cursor: next}
	}
	for _, r := range m.replicas {
		if len(r.shares) > 0 {
			r.deficits[f.index] = 0
			if r.cursor == f {
				r.round = round{cursor: next}
			}
		}
	}
	f.prev.next, f.next.prev = f.next, f.prev
	f.prev, f.next = nil, nil
}
