package sim

import (
	"container/heap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// A baseline schedules like earlier systems, without early refusal, fairness or priority: queues are first in, first
// out; a query's caller always gets its answer at the deadline; a late query is still evaluated until its time to live
// is over.
//
// Clipper is its batching layer as the paper describes it (Crankshaw et al., NSDI 2017, sections 4.3 and 5.2.2): each
// container, that is each replica, has its own queue, to which queries are dealt in turn, one batch at a time, and a
// cap by additive increase and multiplicative decrease against the latency objective. Queries that a replica was given
// and had not answered when it died are lost; those that waited in its queue are dealt again, which is better than in
// the paper.
type baseline struct {
	rules     baselineRules
	cfg       scheduler.Config
	replicas  []*basicReplica
	next      int  // index of the replica that the next query is dealt to
	shared    fifo // one queue for all replicas, or while there is none
	deadlines taskHeap
	functions int32
	waiting   int
	bytes     int
	held      int
	counters  scheduler.Counters
	now       api.Nanos
	tickAt    api.Nanos
	out       scheduler.Actions
}

// baselineRules are the differences between the baselines.
type baselineRules struct {
	perReplica     bool // each replica has its own queue
	depth          int  // outstanding batches
	maxBatch       int
	objectiveNanos int64
	tickNanos      int64 // batches are formed at multiples of it; 0: whenever a replica has room
	dropLate       bool
}

// Steps of the baselines' caps, the same as the machine's.
const (
	capStep    = 2
	capBackoff = 0.9
	tickNanos  = 10e6
)

// engine makes the policy's engine for a model.
func (s *Spec) engine(m *ModelSpec) Engine {
	if s.Engine != nil {
		return s.Engine(m)
	}
	cfg := scheduler.New(m.Config).Config()
	rules := baselineRules{depth: cfg.Depth, maxBatch: cfg.Batching.MaxBatch, objectiveNanos: m.SLONanos}
	switch s.Policy {
	case Clipper, ClipperDrops:
		rules.perReplica, rules.depth, rules.dropLate = true, 1, s.Policy == ClipperDrops
	case Tick:
		rules.tickNanos = tickNanos
		rules.objectiveNanos = cfg.Batching.ObjectiveNanos
	case Single:
		rules.maxBatch = 1
	default:
		return NewMachine(m.Config)
	}
	return &baseline{rules: rules, cfg: cfg, tickAt: api.Nanos(rules.tickNanos)}
}

// task is a query at a baseline.
type task struct {
	it       *scheduler.Item
	index    int // in the heap of deadlines; -1: not in it
	answered bool
	ended    bool
}

// fifo is a queue that skips ended tasks.
type fifo struct {
	tasks []*task
	head  int
}

func (q *fifo) push(t *task) { q.tasks = append(q.tasks, t) }

func (q *fifo) pop() *task {
	for q.head < len(q.tasks) {
		t := q.tasks[q.head]
		q.tasks[q.head] = nil
		q.head++
		if q.head > 1024 && q.head*2 > len(q.tasks) {
			q.tasks = append(q.tasks[:0], q.tasks[q.head:]...)
			q.head = 0
		}
		if !t.ended {
			return t
		}
	}
	q.tasks, q.head = q.tasks[:0], 0
	return nil
}

type basicReplica struct {
	id       scheduler.ReplicaID
	queue    fifo
	size     int // the cap
	next     uint64
	flights  []*basicFlight
	draining bool
	drained  bool
}

type basicFlight struct {
	batch api.Batch
	tasks []*task
	full  bool
}

// taskHeap has the unanswered tasks by deadline.
type taskHeap []*task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].it.Deadline < h[j].it.Deadline }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}

func (e *baseline) AddFunction(float64) int32 {
	e.functions++
	return e.functions - 1
}

func (e *baseline) Step(now api.Nanos, in *Input) {
	e.now = max(e.now, now)
	switch in.Kind {
	case Arrive:
		e.arrive(in.Item)
	case ReplicaReady:
		e.replicas = append(e.replicas, &basicReplica{id: in.Replica, size: 1, next: 1})
		if e.rules.perReplica {
			waiting := e.shared
			e.shared = fifo{}
			for t := waiting.pop(); t != nil; t = waiting.pop() {
				e.deal(t)
			}
		}
	case ReplicaDrain:
		if r, _ := e.find(in.Replica); r != nil {
			r.draining = true
			e.redeal(r)
		}
	case ReplicaGone:
		e.gone(in.Replica)
	case BatchDone:
		e.done(in)
	case SendFailed:
		e.sendFailed(in)
	}
}

func (e *baseline) arrive(it *scheduler.Item) {
	e.counters.Arrived++
	t := &task{it: it, index: -1}
	e.held++
	e.wait(t, 1)
	if it.Deadline <= e.now {
		e.end(t, api.DeadlineExceeded)
		return
	}
	heap.Push(&e.deadlines, t)
	e.deal(t)
}

func (e *baseline) wait(t *task, sign int) {
	e.waiting += sign
	e.bytes += sign * t.it.InputBytes()
}

// deal puts a task into the next replica's queue, or into the shared one.
func (e *baseline) deal(t *task) {
	if e.rules.perReplica {
		for range e.replicas {
			e.next++
			if r := e.replicas[e.next%len(e.replicas)]; !r.draining {
				r.queue.push(t)
				return
			}
		}
	}
	e.shared.push(t)
}

func (e *baseline) redeal(r *basicReplica) {
	for t := r.queue.pop(); t != nil; t = r.queue.pop() {
		e.deal(t)
	}
}

func (e *baseline) find(id scheduler.ReplicaID) (*basicReplica, int) {
	for i, r := range e.replicas {
		if r.id == id {
			return r, i
		}
	}
	return nil, -1
}

// end answers and releases a task that waits or comes out of a batch.
func (e *baseline) end(t *task, code api.Code) {
	kind := scheduler.Both
	if t.answered {
		kind = scheduler.ReleaseOnly
	} else {
		e.counters.Ended[code]++
	}
	if t.index >= 0 {
		heap.Remove(&e.deadlines, t.index)
	}
	t.ended = true
	e.held--
	e.out.Ends = append(e.out.Ends, scheduler.End{Item: t.it, Code: code, Kind: kind})
}

// endWaiting ends a task that waits.
func (e *baseline) endWaiting(t *task, code api.Code) {
	e.wait(t, -1)
	e.end(t, code)
}

func (e *baseline) take(id scheduler.ReplicaID, batch uint64) (*basicReplica, *basicFlight) {
	r, _ := e.find(id)
	if r == nil {
		return nil, nil
	}
	for i, fl := range r.flights {
		if fl.batch.ID == batch {
			r.flights = append(r.flights[:i], r.flights[i+1:]...)
			return r, fl
		}
	}
	return nil, nil
}

func (e *baseline) done(in *Input) {
	r, fl := e.take(in.Replica, in.Result.ID)
	if r == nil {
		return
	}
	took := in.Result.WorkNanos // the evaluation alone, which is better than what a gateway could measure
	switch {
	case took > e.rules.objectiveNanos && e.rules.objectiveNanos > 0:
		r.size = max(1, int(float64(r.size)*capBackoff))
	case fl.full && took*10 < e.rules.objectiveNanos*9 || e.rules.objectiveNanos == 0:
		r.size = min(e.rules.maxBatch, r.size+capStep)
	}
	e.counters.Batches++
	for _, t := range fl.tasks {
		e.end(t, in.Result.Code)
	}
}

func (e *baseline) sendFailed(in *Input) {
	r, fl := e.take(in.Replica, in.Result.ID)
	if r == nil {
		return
	}
	for _, t := range fl.tasks {
		e.end(t, api.ReplicaLost)
	}
	e.out.Kills = append(e.out.Kills, scheduler.Kill{Replica: in.Replica, Reason: "a batch could not be sent"})
	r.draining = true
	e.redeal(r)
}

func (e *baseline) gone(id scheduler.ReplicaID) {
	r, i := e.find(id)
	if r == nil {
		return
	}
	e.replicas = append(e.replicas[:i], e.replicas[i+1:]...)
	for _, fl := range r.flights {
		for _, t := range fl.tasks {
			e.end(t, api.ReplicaLost)
		}
	}
	e.redeal(r)
}

func (e *baseline) Ready(now api.Nanos, a *scheduler.Actions) {
	e.now = max(e.now, now)
	for len(e.deadlines) > 0 && e.deadlines[0].it.Deadline <= e.now {
		t := heap.Pop(&e.deadlines).(*task)
		t.answered = true
		e.counters.Ended[api.DeadlineExceeded]++
		e.out.Ends = append(e.out.Ends, scheduler.End{Item: t.it, Code: api.DeadlineExceeded, Kind: scheduler.AnswerOnly})
	}
	if e.rules.tickNanos == 0 || e.now >= e.tickAt {
		for _, r := range e.replicas {
			for !r.draining && len(r.flights) < e.rules.depth && e.send(r) {
			}
		}
		if e.rules.tickNanos > 0 {
			e.tickAt = (e.now/api.Nanos(e.rules.tickNanos) + 1) * api.Nanos(e.rules.tickNanos)
		}
	}
	for _, r := range e.replicas {
		if r.draining && !r.drained && len(r.flights) == 0 {
			r.drained = true
			e.out.Drained = append(e.out.Drained, r.id)
		}
	}
	a.Reset()
	*a, e.out = e.out, *a
}

// send sends the waiting tasks of r. It returns false if there were none.
func (e *baseline) send(r *basicReplica) bool {
	queue := &e.shared
	if e.rules.perReplica {
		queue = &r.queue
	}
	fl := &basicFlight{}
	most := min(r.size, e.rules.maxBatch)
	for len(fl.tasks) < most {
		t := queue.pop()
		if t == nil {
			break
		}
		if t.it.Expires <= e.now || t.answered && e.rules.dropLate {
			e.endWaiting(t, api.DeadlineExceeded)
			continue
		}
		e.wait(t, -1)
		fl.tasks = append(fl.tasks, t)
		fl.batch.Queries = append(fl.batch.Queries, &t.it.Query)
	}
	if len(fl.tasks) == 0 {
		return false
	}
	fl.full = len(fl.tasks) == r.size
	fl.batch.ID = r.next
	r.next++
	r.flights = append(r.flights, fl)
	e.out.Dispatches = append(e.out.Dispatches, scheduler.Dispatch{Replica: r.id, Batch: &fl.batch})
	return true
}

func (e *baseline) NextWake() api.Nanos {
	at := api.Never
	if len(e.deadlines) > 0 {
		at = e.deadlines[0].it.Deadline
	}
	if e.rules.tickNanos > 0 && e.waiting > 0 {
		at = min(at, e.tickAt)
	}
	return at
}

func (e *baseline) Snapshot(s *scheduler.Snapshot) {
	*s = scheduler.Snapshot{Now: e.now, Queued: e.waiting, QueuedBytes: e.bytes, Held: e.held, Counters: e.counters, NextWake: e.NextWake(),
		Functions: s.Functions[:0], Replicas: s.Replicas[:0]}
	for _, r := range e.replicas {
		n := 0
		for _, fl := range r.flights {
			n += len(fl.tasks)
		}
		s.Replicas = append(s.Replicas, scheduler.ReplicaSnapshot{ID: r.id, Cap: r.size, Learned: r.size, Batches: len(r.flights), Queries: n})
	}
}
