package driver

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Replica is a lane's way to one running worker.
type Replica interface {
	// Send hands a batch to the worker and never blocks. It is called under the lane's lock. The batch is the lane's own:
	// the transport may read it, and write its queries' outputs, until it calls BatchDone or ReplicaGone. An error means
	// that the batch was not taken and nothing of it is touched any more; an *api.Error with code TooLarge blames the
	// batch, any other error the replica, which is then killed.
	Send(b *api.Batch) error
	// Kill ends the worker, whatever it is doing, and never blocks; ReplicaGone is to follow. It may be called more than
	// once, and after the worker's death.
	Kill(reason string)
}

// Lane drives the scheduler of one model version: any number of goroutines hand queries and completions in, and whoever
// finds nobody at work does the work for all.
type Lane struct {
	clock *Clock

	// Four inboxes. The one who finds an inbox empty sees to it that it is emptied.
	intake  atomic.Pointer[scheduler.Item] // chained by Item.Link.Next, newest first
	reports atomic.Pointer[report]         // chained by report.next, newest first
	due     atomic.Bool                    // the clock's
	turn    atomic.Int64                   // the device's: how long the turn is that has been granted, 0 when none has

	held atomic.Int64 // queries that are waiting or in flight, as of the last round

	mu       sync.Mutex
	machine  *scheduler.Machine
	replicas map[scheduler.ReplicaID]*attached // nil while there is none
	gone     []scheduler.ReplicaID             // reported gone in this round
	actions  scheduler.Actions
	wakeAt   api.Nanos // as the machine said last

	sleeper sleeper // for the clock

	device *Device // shared with other lanes, or nil
	tenant scheduler.TenantID

	// For the planner.
	stirred   atomic.Bool // has had queries since the planner looked last
	epoch     atomic.Pointer[Epoch]
	nextAwake *Lane

	measurements atomic.Pointer[measurements] // nil until there is something to measure
}

// attached is a replica at this lane.
type attached struct {
	Replica
	drained []func() // to be called when it holds nothing any more
	empty   bool     // drained: it holds nothing and gets nothing
}

// NewLane makes a lane without functions and replicas. It needs no end of its own: a lane that holds nothing costs no
// goroutine and no time.
func NewLane(cfg scheduler.Config, clock *Clock) *Lane {
	l := &Lane{
		clock:   clock,
		machine: scheduler.New(cfg),
		wakeAt:  api.Never,
	}
	l.sleeper.init(l.advance)
	return l
}

// Share makes the lane a tenant of a device that it uses in turns with others: its configuration has Shared set. Leave ends
// that. Both are called at most once, Share before anything else.
func (l *Lane) Share(d *Device) { l.device, l.tenant = d, d.attach(l) }

// Leave gives up the lane's place at its device, if it has one: when it holds no query and gets none any more.
func (l *Lane) Leave() {
	if l.device != nil {
		l.device.detach(l)
	}
}

// Submit hands a query over. The item is the lane's until its owner's Released is called, which may be before Submit
// returns and on any goroutine. Arrived, Deadline and Expires are readings of the lane's clock.
func (l *Lane) Submit(it *scheduler.Item) { l.push(it, it) }

// SubmitAll hands several queries over at once, so that they are likely to travel together. The slice stays the caller's.
func (l *Lane) SubmitAll(items []*scheduler.Item) {
	if len(items) == 0 {
		return
	}
	for i := 1; i < len(items); i++ {
		items[i].Link.Next = items[i-1]
	}
	l.push(items[0], items[len(items)-1])
}

// push puts a chain into the intake, from its newest item to its oldest.
func (l *Lane) push(oldest, newest *scheduler.Item) {
	if !l.stirred.Load() {
		l.stir()
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
		return // whoever pushed head sees to it
	}
	// Others who are about to submit get the chance to do so before the intake is emptied: waking and sending in bulk is
	// what keeps the cost of a query low. A caller who is alone would only lose time.
	if l.held.Load() > 0 {
		runtime.Gosched()
	}
	l.work()
}

// Held is how many queries are waiting or in flight, as of a moment ago. It takes no lock.
func (l *Lane) Held() int64 { return l.held.Load() }

// Cancel says that the query's caller has gone: if it still waits, it ends as Cancelled; if it is in flight, it ends
// with its batch. Cancel takes the lane's lock for a moment. The owner must not submit the item again, for another query,
// before Cancel has returned; that the item has been released meanwhile does no harm.
func (l *Lane) Cancel(it *scheduler.Item) {
	l.mu.Lock()
	l.round(func(now api.Nanos) { l.machine.Cancel(now, it) })
}

// AddFunction attaches a function with the given weight and returns its index, for Query.Function. See
// [scheduler.Machine.AddFunction].
func (l *Lane) AddFunction(weight float64) (index int32) {
	l.mu.Lock()
	l.round(func(api.Nanos) { index = l.machine.AddFunction(weight) })
	return index
}

// Weigh changes the weight that a function was attached with.
func (l *Lane) Weigh(index int32, weight float64) {
	l.mu.Lock()
	l.round(func(api.Nanos) { l.machine.Weigh(index, weight) })
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

// AddReplica attaches a replica that is ready; depth 0 is the configured one. The id must never have been used at this
// lane. The replica may get its first batch before AddReplica returns.
func (l *Lane) AddReplica(id scheduler.ReplicaID, r Replica, depth int) {
	l.mu.Lock()
	l.round(func(now api.Nanos) {
		if l.replicas[id] == nil {
			if l.replicas == nil {
				l.replicas = make(map[scheduler.ReplicaID]*attached)
			}
			l.replicas[id] = &attached{Replica: r}
			l.machine.ReplicaReady(now, id, depth)
		}
	})
}

// DrainReplica sends the replica no further batches. done (which may be nil) is called once, on any goroutine and not
// under the lock, when the replica holds nothing any more or is gone. The replica stays attached until ReplicaGone.
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

// Close ends everything that waits with code (ShuttingDown or ModelRemoved), and every query that comes later. Batches
// in flight end by themselves: wait for Snapshot's Held to become 0, or for DrainReplica.
func (l *Lane) Close(code api.Code) {
	l.mu.Lock()
	l.round(func(now api.Nanos) { l.machine.Close(now, code) })
}

// Snapshot writes the lane's state into s, reusing its lists. It takes the lane's lock for a moment.
func (l *Lane) Snapshot(s *scheduler.Snapshot) {
	l.mu.Lock()
	l.round(func(api.Nanos) { l.machine.Snapshot(s) })
}

// measurements are a lane's histograms, 5 KiB: of ten thousand lanes most never see a query.
type measurements struct{ queueNanos, evalNanos, batchSize, lateNanos Histogram }

// nothingMeasured is what is read of a lane without any.
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

// QueueNanos is how long queries waited from Arrived to the sending of their batch, in nanoseconds; a query that is sent
// twice counts twice.
func (l *Lane) QueueNanos() *Histogram { return &l.measuredSoFar().queueNanos }

// EvalNanos is how long batches took to be evaluated, without their time behind other batches, in nanoseconds.
func (l *Lane) EvalNanos() *Histogram { return &l.measuredSoFar().evalNanos }

// LateNanos is how long after their deadlines queries were answered because those had come, in nanoseconds: the clock's
// tick, and how long a machine under load takes to get to the answers.
func (l *Lane) LateNanos() *Histogram { return &l.measuredSoFar().lateNanos }

// BatchSize is how many queries the batches had that came back.
func (l *Lane) BatchSize() *Histogram { return &l.measuredSoFar().batchSize }
