package driver

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Replica is a lane's connection to one running worker.
type Replica interface {
	// Send hands a batch to the worker and never blocks. It is called under the lane's lock. The lane owns the batch:
	// the transport may read it, and write its queries' outputs, until it calls BatchDone or ReplicaGone. An error
	// means that the batch was not taken and will not be touched. An *api.Error with code TooLarge blames the batch;
	// any other error blames the replica, which is then killed.
	Send(b *api.Batch) error
	// Kill ends the worker, whatever it is doing, and never blocks; ReplicaGone must follow. It may be called more than
	// once, and after the worker's death.
	Kill(reason string)
}

// Concurrent is a [Replica] whose worker may evaluate several batches at once.
type Concurrent interface {
	// Concurrency is how many. It does not change.
	Concurrency() int
}

// Lane drives the scheduler of one model version. Any number of goroutines hand in queries and completions. A goroutine
// that finds none working does the work for all.
type Lane struct {
	clock *Clock

	// Four inboxes. The goroutine that finds an inbox empty must make sure that it is emptied.
	intake  atomic.Pointer[scheduler.Item] // chained by Item.Link.Next, newest first
	reports atomic.Pointer[report]         // chained by report.next, newest first
	due     atomic.Bool                    // set by the clock
	turn    atomic.Int64                   // set by the device: length of the granted turn in nanoseconds, 0 if none

	held atomic.Int64 // queries waiting or in flight, as of the last round

	mu       sync.Mutex
	machine  *scheduler.Machine
	replicas map[scheduler.ReplicaID]*attached // nil while there are none
	gone     []scheduler.ReplicaID             // reported gone in this round
	actions  scheduler.Actions
	wakeAt   api.Nanos // the machine's last NextWake

	sleeper sleeper // for the clock

	device *Device // shared with other lanes, or nil
	tenant scheduler.TenantID

	// For the planner.
	active     atomic.Bool // had queries since the planner last looked
	epoch      atomic.Pointer[Epoch]
	nextActive *Lane

	measurements atomic.Pointer[measurements] // nil until there is something to measure
}

// attached is a replica of this lane.
type attached struct {
	Replica
	drained []func() // called when it holds no batch any more
	empty   bool     // drained: it holds no batch and gets none
}

// NewLane makes a lane without functions and replicas. It needs no closing: a lane without queries costs no goroutine
// and no time.
func NewLane(cfg scheduler.Config, clock *Clock) *Lane {
	l := &Lane{
		clock:   clock,
		machine: scheduler.New(cfg),
		wakeAt:  api.Never,
	}
	l.sleeper.init(l.advance)
	return l
}

// AttachDevice makes the lane a tenant of a device that it shares with other lanes in turns. The lane's configuration must
// have Shared set. Call AttachDevice at most once, before anything else.
func (l *Lane) AttachDevice(d *Device) { l.device, l.tenant = d, d.attach(l) }

// DetachDevice gives up the lane's place at its device, if it has one. Call it at most once, when the lane holds no query and
// gets no more.
func (l *Lane) DetachDevice() {
	if l.device != nil {
		l.device.detach(l)
	}
}

// Submit hands a query over. The lane owns the item until its owner's Released is called, which may be before Submit
// returns and on any goroutine. Arrived, Deadline and Expires are readings of the lane's clock.
func (l *Lane) Submit(it *scheduler.Item) { l.push(it, it, nil) }

// SubmitAll hands over several queries at once, so that they are likely to share a batch. The caller keeps the slice. With a cork (it may be
// nil) the queries also share a batch with those that the caller submits before it releases the cork.
func (l *Lane) SubmitAll(items []*scheduler.Item, cork *Cork) {
	if len(items) == 0 {
		return
	}
	for i := 1; i < len(items); i++ {
		items[i].Link.Next = items[i-1]
	}
	l.push(items[0], items[len(items)-1], cork)
}

// push puts a chain into the intake, from its newest item to its oldest.
func (l *Lane) push(oldest, newest *scheduler.Item, cork *Cork) {
	if !l.active.Load() {
		l.markActive()
	}
	var head *scheduler.Item
	for {
		head = l.intake.Load()
		oldest.Link.Next = head
		if l.intake.CompareAndSwap(head, newest) {
			break
		}
	}
	if head != nil {
		return // the goroutine that pushed head does the work
	}
	if cork != nil {
		cork.add(l)
		return
	}
	// Let other goroutines that are about to submit do so before the intake is emptied: waking and sending in bulk keep
	// the cost of a query low. A single caller would only lose time.
	if l.held.Load() > 0 {
		runtime.Gosched()
	}
	l.work()
}

// Held is the number of queries waiting or in flight, as of the last round. It is 0 only if there is no query that was submitted before the
// call. It takes no lock.
func (l *Lane) Held() int64 {
	arriving := l.intake.Load() != nil // read first: takeItems notes in held that there are some before it takes them
	held := l.held.Load()
	if held == 0 && arriving {
		return 1
	}
	return held
}

// Cancel reports that the query's caller has gone. A waiting query ends as Cancelled; one in flight ends with its
// batch. Cancel takes the lane's lock for a moment. The owner must not submit the item again, for another query, before
// Cancel has returned. The item may have been released meanwhile.
func (l *Lane) Cancel(it *scheduler.Item) {
	l.mu.Lock()
	l.round(func(now api.Nanos) { l.machine.Cancel(now, it) })
}

// GiveBack hands waiting queries back to those of their owners that are a [Taker]. give chooses the queries, under the
// lane's lock. See [scheduler.Machine.GiveBack].
func (l *Lane) GiveBack(give func(*scheduler.Item) bool) {
	l.mu.Lock()
	l.round(func(now api.Nanos) {
		l.machine.GiveBack(now, func(it *scheduler.Item) bool {
			_, takes := it.Owner.(Taker)
			return takes && give(it)
		})
	})
}

// Taker is an owner that takes waiting queries back.
type Taker interface {
	// TakeBack returns an item that was submitted and will not be answered. It is called without a lock.
	TakeBack(it *scheduler.Item)
}

// AddFunction attaches a function with the given weight and returns its index, for Query.Function. See
// [scheduler.Machine.AddFunction].
func (l *Lane) AddFunction(weight float64) (index int32) {
	l.mu.Lock()
	l.round(func(api.Nanos) { index = l.machine.AddFunction(weight) })
	return index
}

// SetPrior says what is known of the times of replicas that have evaluated nothing yet. See [scheduler.Prior].
func (l *Lane) SetPrior(p scheduler.Prior) {
	l.mu.Lock()
	l.round(func(api.Nanos) { l.machine.SetPrior(p) })
}

// SetWeight changes the weight that a function was attached with.
func (l *Lane) SetWeight(index int32, weight float64) {
	l.mu.Lock()
	l.round(func(api.Nanos) { l.machine.SetWeight(index, weight) })
}

// RemoveFunction detaches a function. Queries that were accepted are served; later ones end as ModelRemoved.
func (l *Lane) RemoveFunction(index int32) {
	l.mu.Lock()
	l.round(func(api.Nanos) { l.machine.RemoveFunction(index) })
}

// Configure puts cfg in force. See [scheduler.Machine.Configure].
func (l *Lane) Configure(cfg scheduler.Config) {
	l.mu.Lock()
	l.round(func(now api.Nanos) { l.machine.Configure(now, cfg) })
}

// SetPlan puts a plan in force. See [scheduler.Plan].
func (l *Lane) SetPlan(p scheduler.Plan) {
	l.mu.Lock()
	l.round(func(api.Nanos) { l.machine.SetPlan(p) })
}

// AddReplica attaches a replica that is ready; depth 0 is the configured one. The id must not have been used at this
// lane before. The replica may get its first batch before AddReplica returns.
func (l *Lane) AddReplica(id scheduler.ReplicaID, r Replica, depth int) {
	l.mu.Lock()
	l.round(func(now api.Nanos) {
		if l.replicas[id] == nil {
			if l.replicas == nil {
				l.replicas = make(map[scheduler.ReplicaID]*attached)
			}
			l.replicas[id] = &attached{Replica: r}
			l.machine.ReplicaReady(now, id, depth)
			if c, ok := r.(Concurrent); ok {
				l.machine.SetConcurrency(id, c.Concurrency())
			}
		}
	})
}

// DrainReplica stops sending batches to the replica. done (which may be nil) is called once, on any goroutine and not
// under the lock, when the replica holds no batch any more or is gone. The replica stays attached until ReplicaGone.
func (l *Lane) DrainReplica(id scheduler.ReplicaID, done func()) {
	l.mu.Lock()
	empty := false
	l.round(func(now api.Nanos) {
		a := l.replicas[id]
		if empty = a == nil || a.empty; empty {
			return
		}
		if done != nil {
			a.drained = append(a.drained, done)
		}
		l.machine.ReplicaDrain(now, id)
	})
	if empty && done != nil {
		done()
	}
}

// HasCulprit reports whether it matters how a replica that is about to be reported gone has ended. See [scheduler.Machine.HasCulprit].
func (l *Lane) HasCulprit(id scheduler.ReplicaID, begun func(batch uint64) bool) (has bool) {
	l.mu.Lock()
	l.round(func(now api.Nanos) { has = l.machine.HasCulprit(now, id, begun) })
	return has
}

// Close ends everything that waits, and every query that arrives later, with code (ShuttingDown or ModelRemoved).
// Batches in flight end by themselves: wait for Snapshot's Held to become 0, or for DrainReplica.
func (l *Lane) Close(code api.Code) {
	l.mu.Lock()
	l.round(func(now api.Nanos) { l.machine.Close(now, code) })
}

// Snapshot writes the lane's state into s, reusing its lists. It takes the lane's lock for a moment.
func (l *Lane) Snapshot(s *scheduler.Snapshot) {
	l.mu.Lock()
	l.round(func(api.Nanos) { l.machine.Snapshot(s) })
}

// measurements are a lane's histograms, 6 KiB. They are allocated on demand, because most of ten thousand lanes never
// see a query.
type measurements struct {
	queueNanos, evalNanos, batchSize, lateNanos Histogram
	bySize                                      sizeTimes
}

// nothingMeasured is read for a lane without measurements.
var nothingMeasured measurements

func (l *Lane) measured() *measurements {
	if m := l.measurements.Load(); m != nil {
		return m
	}
	l.measurements.CompareAndSwap(nil, new(measurements))
	return l.measurements.Load()
}

func (l *Lane) measuredSoFar() *measurements {
	if m := l.measurements.Load(); m != nil {
		return m
	}
	return &nothingMeasured
}

// QueueNanos is the time from Arrived to the sending of the batch, in nanoseconds. A query that is sent again after its
// replica died counts again; a hedge does not count.
func (l *Lane) QueueNanos() *Histogram { return &l.measuredSoFar().queueNanos }

// EvalNanos is the evaluation time of batches, without their time behind other batches, in nanoseconds.
func (l *Lane) EvalNanos() *Histogram { return &l.measuredSoFar().evalNanos }

// LateNanos is how long after their deadlines queries were answered because the deadlines had passed, in nanoseconds:
// the clock's tick, plus the time that a busy machine takes to deliver the answers.
func (l *Lane) LateNanos() *Histogram { return &l.measuredSoFar().lateNanos }

// BySize is the evaluation time of the batches that were answered, by their size.
func (l *Lane) BySize() []SizeTime { return l.measuredSoFar().bySize.list() }

// BatchSize is the number of queries of the batches that came back.
func (l *Lane) BatchSize() *Histogram { return &l.measuredSoFar().batchSize }
