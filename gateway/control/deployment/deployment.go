package deployment

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker"
)

// Deployment is one model version with everything that serves it: its queue, its supervised replicas, its connected workers,
// and its face on the query path. Events come from pollers and must not block, so its lock is held only for moments.
type Deployment struct {
	// Member decides how many replicas it has.
	capacity.Member

	h       *Host
	id      api.ModelID
	current atomic.Pointer[api.ModelSpec] // replaced when bounds and batching change
	created time.Time
	key     uint64
	lane    *driver.Lane
	set     *containers.Set
	logs    *containers.Logs
	model   *query.Model

	preloads       string       // the kind of zygote that its replicas fork from; empty: none
	objectiveNanos atomic.Int64 // what a batch's evaluation should take at most
	quiet          atomic.Bool  // its replicas start at the lowest priority: others serve
	everReady      atomic.Bool  // it has had a ready replica since it was made

	streams *streams // nil unless the model answers in streams

	rate obs.Rate // of its queries, as it is shown
	left sync.Once

	mu       sync.Mutex
	queues   map[string]int32 // sub-queue by function
	launches map[uint64]*launch
	// connected has the workers that the lane has; the value says whether one is leaving, and counts as ready no more. It is
	// separate from launches because the end of a process and the end of its connection are reported in either order.
	connected map[worker.Replica]bool
	passing   map[uint64]*passing // by replica: those of connected, and those whose process has not ended yet
	// reservers are those of connected that can receive inputs in their own memory, and stay.
	reservers atomic.Pointer[[]worker.Reserver]
	turn      atomic.Uint32 // of the reservers
	failed    bool          // a replica has failed since one was last ready
	failures  int           // launches that ended by themselves since a replica was last ready
	lastExit  string        // how the last of them ended, with the last line of its stderr

	adopting sync.Mutex       // held by the launch that takes the digest
	adopted  string           // the digest of a version that was declared without one; guarded by mu
	pinned   containers.Image // of the first replica that was ready, of a version without an image's digest; guarded by mu
	pinnedAt time.Time        // when that was

	lessons lessons
}

// launch is one start of a worker, from its announcement to its end.
type launch struct {
	withdraw    func() (unused bool) // the transport expects its worker no more
	began       time.Time
	worker      worker.Replica // once it is connected and ready
	ready       time.Time
	image       containers.Image // once it has started
	served      bool             // it is no longer connected, and had answered a batch
	lastError   string
	lastErrorAt time.Time
}

// ID is the version's name.
func (d *Deployment) ID() api.ModelID { return d.id }

// Key is its number among all functions and versions of the gateway.
func (d *Deployment) Key() uint64 { return d.key }

// Spec is its current declaration. It is not to be changed.
func (d *Deployment) Spec() *api.ModelSpec { return d.current.Load() }

// SetSpec replaces its declaration by one that differs in nothing that is fixed.
func (d *Deployment) SetSpec(spec api.ModelSpec) {
	d.current.Store(&spec)
	d.set.SetReadyWithin(spec.StartTimeout)
	d.model.CacheOn.Store(spec.Cache == api.CacheOn)
	d.model.Sticky.Store(spec.Affinity == api.AffinityContext)
}

// Lane is its queue.
func (d *Deployment) Lane() *driver.Lane { return d.lane }

// Model is its face on the query path.
func (d *Deployment) Model() *query.Model { return d.model }

// Logs are what its replicas wrote.
func (d *Deployment) Logs() *containers.Logs { return d.logs }

// SetQuiet says whether replicas that start from now on do so at the lowest priority. If not, those that are ready leave it, too.
func (d *Deployment) SetQuiet(quiet bool) {
	d.quiet.Store(quiet)
	if !quiet {
		d.set.Raise()
	}
}

// Raise ends the low priority of the replicas that are ready, and waits for that until ctx ends.
func (d *Deployment) Raise(ctx context.Context) {
	d.quiet.Store(false)
	d.set.Raise()(ctx)
}

// Ready is how many replicas are ready.
func (d *Deployment) Ready() int { return int(d.model.Ready.Load()) }

// EverReady reports whether it has had a ready replica since it was made.
func (d *Deployment) EverReady() bool { return d.everReady.Load() }

// Configure gives its lane what follows from its declaration and from the functions that use it: their smallest objective, 0
// when there is none, and their largest weight.
func (d *Deployment) Configure(slo time.Duration, weight float64) {
	c := laneConfig(d.Spec(), slo)
	d.SetDemand(slo, weight)
	d.objectiveNanos.Store(c.Batching.ObjectiveNanos)
	d.lane.Configure(c)
}

// Queue is the function's sub-queue, made with the weight when it is first asked for.
func (d *Deployment) Queue(function string, weight float64) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	q, ok := d.queues[function]
	if !ok {
		q = d.lane.AddFunction(weight)
		if d.queues == nil {
			d.queues = map[string]int32{}
		}
		d.queues[function] = q
	}
	return q
}

// Weigh gives the function's sub-queue another weight, if it has one.
func (d *Deployment) Weigh(function string, weight float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q, ok := d.queues[function]; ok {
		d.lane.SetWeight(q, weight)
	}
}

// Orphan is a sub-queue whose function is gone. It is removed once no published table has it.
type Orphan struct {
	lane  *driver.Lane
	queue int32
}

// Remove removes the sub-queue.
func (o Orphan) Remove() { o.lane.RemoveFunction(o.queue) }

// DetachQueue forgets the function's sub-queue. ok is false where it has none.
func (d *Deployment) DetachQueue(function string) (o Orphan, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q, ok := d.queues[function]
	delete(d.queues, function)
	return Orphan{d.lane, q}, ok
}

// crashLoop is how many launches in a row may fail before queries stop waiting for the next one.
const crashLoop = 3 //xebec:limit failed starts in a row after which no query waits for the next start

// Crashing reports whether it has no replica and its launches keep failing.
func (d *Deployment) Crashing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model.Ready.Load() == 0 && d.failures >= crashLoop
}

// StartsFail reports whether launches keep failing, although there may be replicas, and how the last one ended.
func (d *Deployment) StartsFail() (last string, fail bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastExit, d.failures >= crashLoop
}

// Failing reports whether a launch has failed since a replica was last ready.
func (d *Deployment) Failing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failures > 0
}

// Failed reports whether a replica has failed since one was last ready, or since Retry.
func (d *Deployment) Failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Retry forgets earlier failures: it is loaded again.
func (d *Deployment) Retry() {
	d.mu.Lock()
	d.failed, d.failures = false, 0
	d.mu.Unlock()
}

// Empty reports whether none of its processes is left.
func (d *Deployment) Empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.launches) == 0
}

// Answers reports whether it answers a query, provided that it is available: it has a replica, or sleeps and gets one then.
func (d *Deployment) Answers() bool {
	return d.Ready() > 0 || (d.Spec().Replicas.Min == 0 || d.Spare()) && !d.Crashing()
}

// Settle waits until its replicas have answered what it had accepted, or ctx is done.
func (d *Deployment) Settle(ctx context.Context) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var snap scheduler.Snapshot
	for {
		// A query that already has its answer is not waited for where no replica evaluates it.
		if d.lane.Snapshot(&snap); snap.Held == 0 || snap.Held == snap.Late && len(snap.Replicas) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the deployment: queued queries are answered with code, those in flight come back first.
func (d *Deployment) Close(ctx context.Context, code api.Code) error {
	d.lane.Close(code)
	d.Release()
	err := d.set.Close(ctx)
	d.left.Do(func() { d.h.tally.leave(d.id) })
	d.lane.DetachDevice()
	d.logs.Close()
	d.model.Cache.Drop()
	return err
}

func (d *Deployment) dir() string {
	if d.Spec().Dir != "" || d.Spec().Run.Image != "" { // a container sees nothing of the gateway's own directory
		return d.Spec().Dir
	}
	return d.h.WorkDir
}

// laneConfig is a spec in the scheduler's terms. slo is the smallest objective among the model's functions, 0 when it has none.
func laneConfig(spec *api.ModelSpec, slo time.Duration) scheduler.Config {
	c := scheduler.ConfigOf(spec)
	c.Shared = spec.Device != ""
	c.TimeoutNanos = int64(spec.Timeout)
	if len(spec.Calls) > 0 && spec.Timeout == 0 { // it may wait for a callee that starts, which its own speed says nothing about
		c.TimeoutNanos = int64(api.DefaultModelTimeout)
	}
	b := &c.Batching
	b.MaxBatch = min(b.MaxBatch, maxFixedBatch(spec))
	if b.ObjectiveNanos == 0 {
		b.ObjectiveNanos = int64(slo * 2 / 5)
	}
	return c
}

// maxFixedBatch is how many queries a batch may have for its inputs and outputs of fixed size to fit every transport.
func maxFixedBatch(spec *api.ModelSpec) int {
	largest := int64(1)
	for _, tensors := range [][]api.TensorSpec{spec.Inputs, spec.Outputs} {
		per := int64(0)
		for _, t := range tensors {
			per += int64(t.ItemBytes())
		}
		largest = max(largest, per)
	}
	return int(max(worker.MaxBatchBytes/largest, 1))
}

// joined is a sorted copy of names with commas.
func joined(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), ", ") }
