package sim

import (
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

const (
	// handNanos is the time to hand a batch to a replica, and to hand its answer back: a wake-up across cores, as
	// measured.
	handNanos = 30_000
	// deathNanos is how long it takes to notice that a process has ended.
	deathNanos = 200_000
	// drainNanos is how long after the last query everything must have ended.
	drainNanos = 120e9
	// maxDecisions bounds the decisions at one moment.
	maxDecisions = 100_000
	// jumpsEvery: one wake in this many is late by up to Spec.JumpNanos.
	jumpsEvery = 100
)

// world is a run of a Spec.
type world struct {
	spec      *Spec
	rng       *rand.Rand // for faults
	now       api.Nanos
	events    eventQueue
	functions []*function
	models    []*model
	devices   []*device
	dirty     []*model // engines with inputs since their last Ready
	queries   []*query // by id; nil after release
	calls     []*call  // by id; nil when done
	open      int      // queries that are not released
	lastID    scheduler.ReplicaID
	planning  *planning
	result    Result
	log       io.Writer // nil: no transcript
	failed    error
}

// function is a function with its traffic.
type function struct {
	spec    *FunctionSpec
	index   int
	sources []*source
	queues  []int32 // of each candidate: its sub-queue
	counter uint64
	parts   []float64 // of each candidate, from the last plan; nil: no plan
	refuse  float64   // the part that the last plan refuses
	limits  []float64 // of each candidate, from the last plan, for the mode Shares; nil: none
	refused uint64    // by a plan, before they reached an engine
	wished  []uint64  // of each candidate: how many queries the policy would have given it
	picked  []int32
	rng     *rand.Rand // for the policy
	stats   *FunctionResult
}

// model is a model version with its engine.
type model struct {
	spec     *ModelSpec
	index    int
	engine   Engine
	acts     scheduler.Actions
	places   []*place
	failures []failure // of this decision
	device   *device
	tenant   scheduler.TenantID
	isDirty  bool
	wakeAt   api.Nanos // the wake-up time asked for; it is woken then or somewhat later
	wakeSeq  uint64
	snapshot scheduler.Snapshot
	ledger   ledger
	scaling  *scaling // nil: the number of its replicas is fixed
}

// device is shared by several models: batches of one tenant at a time run on it.
type device struct {
	index   int
	arbiter scheduler.Device
	models  map[scheduler.TenantID]*model
	holder  *model      // the model that has the turn
	freeAt  []api.Nanos // of each model of the world: until when its batches run
}

// call is a caller's request, with one or more queries to models.
type call struct {
	id                            uint64
	function                      *function
	at, deadline                  api.Nanos
	asked, answered, ok, overload int
	client                        int     // source of the closed loop; -1: none
	inTime                        int     // number of OK answers in time
	missingGain                   float64 // what the answers in time leave to gain: Π(1 − gain)
	queries                       []*query
}

// query is one item at one model.
type query struct {
	scheduler.Item
	call      *call
	model     *model
	candidate int // index in the function's candidates
	arrivedAt api.Nanos
	flight    *flight
	waiting   bool // held by the engine, in no batch
	late      bool // answered, or about to be, without having been evaluated
	answered  bool
	released  bool
	lost      int  // number of replicas that died on it
	apart     bool // a batch with others has failed on it
	flowed    bool // it is a stream that has had its first output
	hedgeState
}

// Answered and Released make a query the owner of its item; the world reads an engine's ends itself.
func (*query) Answered(*scheduler.Item, api.Code) {}

// Released: see Answered.
func (*query) Released(*scheduler.Item, api.Code) {}

// Run runs a world to its end. The error says which promise was broken, or that the Spec is invalid. log, if not nil,
// gets a transcript.
func Run(spec *Spec, log io.Writer) (*Result, error) {
	w := &world{spec: spec, rng: stream(spec.Seed, 0), log: log}
	if err := w.build(); err != nil {
		return nil, err
	}
	limit := spec.Duration + drainNanos
	for w.failed == nil && len(w.events.heap) > 0 && (w.now < spec.Duration || w.open > 0) {
		e := w.events.pop()
		if e.at > limit {
			w.fail("%d queries have not ended %v after the last arrival", w.open, span(drainNanos))
			break
		}
		w.now = max(w.now, e.at)
		w.handle(&e)
		for w.failed == nil && len(w.events.heap) > 0 && w.events.heap[0].at <= w.now {
			e = w.events.pop()
			w.handle(&e)
		}
		w.settle()
	}
	if w.failed == nil {
		w.checkFinal()
	}
	w.result.End = w.now
	w.sumUpScaling()
	return &w.result, w.failed
}

// stream is a named stream of random numbers.
func stream(seed uint64, name uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15*(name+1)))
}

func (w *world) build() error {
	s := w.spec
	w.result = newResult(s)
	for i := range s.Devices {
		w.devices = append(w.devices, &device{index: i, models: map[scheduler.TenantID]*model{}, freeAt: make([]api.Nanos, len(s.Models))})
	}
	for i := range s.Models {
		ms := &s.Models[i]
		m := &model{spec: ms, index: i, wakeAt: api.Never}
		if ms.Device >= s.Devices {
			return fmt.Errorf("model %s is on device %d of %d", ms.Name, ms.Device, s.Devices)
		}
		if ms.Device >= 0 {
			m.device = w.devices[ms.Device]
			m.tenant = m.device.arbiter.Attach()
			m.device.models[m.tenant] = m
		}
		m.engine = s.engine(ms)
		w.models = append(w.models, m)
		for j := range ms.Replicas {
			p := &place{spec: &ms.Replicas[j], model: m, rng: stream(s.Seed, uint64(1000+100*i+j))}
			m.places = append(m.places, p)
			w.events.push(event{at: api.Nanos(p.spec.AtNanos), kind: replicaUp, p: p})
			for k := range p.spec.Faults {
				w.events.push(event{at: api.Nanos(p.spec.Faults[k].AtNanos), kind: faultStrikes, a: i, b: uint64(j)<<32 | uint64(k)})
			}
		}
	}
	for i := range s.Functions {
		if err := w.addFunction(i); err != nil {
			return err
		}
	}
	for _, m := range w.models {
		m.ledger.init(m.spec.Config)
		if err := w.addScaling(m); err != nil {
			return err
		}
	}
	if s.Policy == Planned || s.Policy == RandomPlans {
		w.planning = newPlanning(w)
		w.events.push(event{at: api.Nanos(w.planning.epochNanos), kind: epochEnds})
	}
	return nil
}

func (w *world) addFunction(i int) error {
	fs := &w.spec.Functions[i]
	f := &function{
		spec: fs, index: i, stats: &w.result.Functions[i], rng: stream(w.spec.Seed, uint64(200_000+i)), wished: make([]uint64, len(fs.Candidates)),
	}
	if len(fs.Candidates) == 0 {
		return fmt.Errorf("function %s has no candidates", fs.Name)
	}
	for _, c := range fs.Candidates {
		if c.Model < 0 || c.Model >= len(w.models) {
			return fmt.Errorf("function %s asks model %d of %d", fs.Name, c.Model, len(w.models))
		}
		m := w.models[c.Model]
		q := m.engine.AddFunction(fs.Weight)
		f.queues = append(f.queues, q)
		m.ledger.attach(q, fs.Weight)
	}
	for j := range fs.Traffic {
		src := &source{Traffic: fs.Traffic[j], rng: stream(w.spec.Seed, uint64(100_000+100*i+j))}
		f.sources = append(f.sources, src)
		if src.Shape == Closed {
			for range src.Clients {
				w.events.push(event{at: src.From, kind: clientSends, a: i, b: uint64(j)})
			}
			continue
		}
		w.scheduleNext(f, j, 0)
	}
	w.functions = append(w.functions, f)
	return nil
}

// scheduleNext schedules the next query of a source.
func (w *world) scheduleNext(f *function, source int, after api.Nanos) {
	if at := f.sources[source].after(after); at < w.spec.Duration {
		w.events.push(event{at: at, kind: queryArrives, a: f.index, b: uint64(source)})
	}
}

func (w *world) handle(e *event) {
	switch e.kind {
	case queryArrives:
		f := w.functions[e.a]
		w.call(f, -1)
		w.scheduleNext(f, int(e.b), w.now)
	case clientSends:
		f := w.functions[e.a]
		if until := f.sources[e.b].Until; w.now < w.spec.Duration && (until == 0 || w.now < until) {
			w.call(f, int(e.b))
		}
	case callerLeaves:
		if c := w.calls[e.b]; c != nil {
			for _, q := range c.queries {
				if !q.released {
					w.step(q.model, &Input{Kind: Cancel, Item: &q.Item})
					w.leaveStream(q.flight)
				}
			}
		}
	case answerSeen:
		w.answerSeen(e.r, e.b)
	case firstSeen:
		w.firstSeen(e.r, e.b)
	case callerLeavesStream:
		w.leaveStream(e.r.find(e.b))
	case streamsSilent:
		w.die(e.r)
	case replicaUp:
		w.replicaUp(e.p)
	case faultStrikes:
		m := w.models[e.a]
		if m.scaling != nil {
			w.injectFault(m, m.scaling.oldest(m), &m.scaling.spec.Replica.Faults[e.b])
			return
		}
		p := m.places[e.b>>32]
		w.injectFault(m, p, &p.spec.Faults[e.b&0xffffffff])
	case deathSeen:
		w.deathSeen(e.r)
	case wake:
		if m := w.models[e.a]; m.wakeSeq == e.b {
			m.wakeAt = api.Never
			w.step(m, &Input{Kind: Advance})
		}
	case epochEnds:
		w.planning.epoch()
		w.events.push(event{at: w.now + api.Nanos(w.planning.epochNanos), kind: epochEnds})
	case scaleTick:
		w.runScaler(w.models[e.a], false)
		w.events.push(event{at: w.now + api.Nanos(w.models[e.a].scaling.tickNanos), kind: scaleTick, a: e.a})
	case secondEnds:
		w.notePoints()
		w.events.push(event{at: w.now + pointNanos, kind: secondEnds})
	}
}

// step reports an event to an engine.
func (w *world) step(m *model, in *Input) {
	if w.log != nil {
		w.write(m, "  "+in.String())
	}
	m.engine.Step(w.now, in)
	if !m.isDirty {
		m.isDirty = true
		w.dirty = append(w.dirty, m)
	}
}

// settle asks engines with new inputs for their decisions, until there are no more.
func (w *world) settle() {
	touched := 0
	for turns := 0; touched < len(w.dirty) && w.failed == nil; turns++ {
		if turns > maxDecisions {
			w.fail("the engines do not settle: %d decisions at one moment", turns)
			return
		}
		m := w.dirty[touched]
		touched++
		m.isDirty = false
		m.engine.Ready(w.now, &m.acts)
		w.carryOut(m)
	}
	for _, m := range w.dirty {
		if w.failed == nil {
			w.checkLedger(m)
			w.arrangeWake(m)
		}
	}
	w.dirty = w.dirty[:0]
}

// arrangeWake schedules the engine's next wake-up, up to lateNanos late.
func (w *world) arrangeWake(m *model) {
	at := m.engine.NextWake()
	if at >= m.wakeAt {
		return
	}
	m.wakeAt = at
	m.wakeSeq++
	at = max(at, w.now) + api.Nanos(w.rng.Int64N(w.lateNanos()+1))
	if w.spec.JumpNanos > 0 && w.rng.IntN(jumpsEvery) == 0 {
		at += api.Nanos(w.rng.Int64N(w.spec.JumpNanos + 1))
	}
	w.events.push(event{at: at, kind: wake, a: m.index, b: m.wakeSeq})
}

func (w *world) lateNanos() int64 {
	if w.spec.LateNanos > 0 {
		return w.spec.LateNanos
	}
	return 1e6
}

// carryOut carries out an engine's actions, in the order of their fields.
func (w *world) carryOut(m *model) {
	a := &m.acts
	if w.log != nil {
		w.writeActions(m)
	}
	if w.spec.Check && len(a.Dispatches) > 0 {
		m.engine.Snapshot(&m.snapshot) // as of the forming of the batches
	}
	m.ledger.markLate(a.Ends)
	for i := range a.Dispatches {
		w.dispatch(m, &a.Dispatches[i])
	}
	for _, k := range a.Kills {
		w.kill(m, k.Replica)
	}
	for i := range a.Ends {
		w.end(m, &a.Ends[i])
	}
	w.checkHedged(m)
	for i := range m.ledger.servings {
		w.serve(m, &m.ledger.servings[i])
	}
	m.ledger.servings = m.ledger.servings[:0]
	for _, f := range m.failures {
		w.sendFailed(m, f)
	}
	m.failures = m.failures[:0]
	for _, id := range a.Drained {
		w.drained(m, id)
	}
	if m.device != nil {
		w.turns(m)
	}
}

// turns passes the actions' turn requests to the arbiter of a shared device.
func (w *world) turns(m *model) {
	d := m.device
	switch {
	case m.acts.EndTurn != 0:
		d.holder = nil
		d.arbiter.End(m.tenant, m.acts.EndTurn, m.acts.WantTurn)
	case m.acts.WantTurn:
		d.arbiter.Want(m.tenant)
	default:
		return
	}
	if id, nanos, ok := d.arbiter.Next(); ok {
		d.holder = d.models[id]
		w.step(d.holder, &Input{Kind: TurnGranted, Nanos: nanos})
	}
}

func (w *world) write(m *model, text string) {
	fmt.Fprintf(w.log, "%12v m%d %s\n", span(w.now), m.index, text)
}

// fail records the first broken promise; the run ends.
func (w *world) fail(format string, args ...any) {
	if w.failed == nil {
		w.failed = fmt.Errorf("at %v: %s", span(w.now), fmt.Sprintf(format, args...))
		if w.log != nil {
			fmt.Fprintf(w.log, "%12v !! %s\n", span(w.now), fmt.Sprintf(format, args...))
		}
	}
}
