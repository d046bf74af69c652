package server

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker/local"
	"go.uber.org/zap"
)

// deployment is one model version with everything that serves it. Its worker events come from pollers and must not block, so
// its lock is held for moments only.
type deployment struct {
	s       *Server
	id      api.ModelID
	current atomic.Pointer[api.ModelSpec] // replaced when bounds and batching change
	created time.Time
	key     uint64
	lane    *driver.Lane
	set     *containers.Set
	logs    *containers.Logs
	model   *query.Model
	queues  map[string]int32 // sub-queue by function; guarded by Server.mu

	objectiveNanos atomic.Int64                     // what batches are to take at most
	sloNanos       atomic.Int64                     // the smallest objective of its functions; 0: it has none
	weightBits     atomic.Uint64                    // of its functions, the largest
	choices        atomic.Pointer[[]*driver.Choice] // of the functions whose first candidate it is

	// Of capacity: scaled versions have as many replicas as their queries need, asked is how many that is now, waking that it has been
	// called, full that it wants one, there is no room, and every tick looks whether there is; scaler, lastUsage and profile are
	// capacity's own.
	scaled, waking, full atomic.Bool
	asked                atomic.Int32
	scaler               *autoscale.Scaler
	lastUsage            usage
	profile              *api.KnownProfile // nil: no replica has been known yet
	away, awaySeen       uint64            // of turnedAway: so far, and what the choices said last
	cold                 coldStarts
	preloads             string       // which zygote its replicas fork from; empty: none
	lastReady            atomic.Int64 // api.Nanos of when a replica became ready last

	quiet atomic.Bool // its replicas start at the lowest priority: others serve
	life  life
	rate  rate // of its queries, as it is shown

	mu       sync.Mutex
	launches map[uint64]*launch
	// connected has the workers that the lane has. It is apart from launches, for the news of a process's end and that of its
	// connection's come in either order.
	connected map[*local.Replica]bool // whether it is leaving: it counts as ready no more
	failed    bool                    // no replica ever became ready and one has failed since
	failures  int                     // launches that ended by themselves since a replica was ready last
	lastExit  string                  // how the last of them ended, and what it said last

	lessons lessons
}

// launch is one start of a worker, from its token to its end.
type launch struct {
	token       string
	began       time.Time
	worker      *local.Replica // once it is connected and ready
	ready       time.Time
	lastError   string
	lastErrorAt time.Time
}

// deployLocked makes the deployment of a spec that is valid. Nothing runs before start.
func (s *Server) deployLocked(spec api.ModelSpec) (*deployment, error) {
	spec = s.compactLocked(spec)
	d := &deployment{s: s, id: spec.ID(), created: time.Now(), key: s.keys.Add(1), logs: containers.NewLogs()}
	d.current.Store(&spec)
	d.preloads = s.preloadKind(&spec)
	d.lane = driver.NewLane(laneConfig(spec, 0), s.clock)
	if spec.Device != "" {
		d.lane.Share(s.devices[spec.Device])
	}
	direct := d.lane.AddFunction(1)
	d.model = query.NewModel(spec.ID(), spec.Signature(), d.lane, direct, new(obs.Endpoint))
	d.model.ColdStart = directColdStart
	d.model.Cache = s.cache.Model()
	d.model.CacheOn.Store(spec.Cache == api.CacheOn)
	d.model.Teach = d.teach
	d.model.Closed.Store(true) // nothing runs
	d.model.Wake = d.wake
	set, err := containers.NewSet(containers.Config{
		Model: spec.ID(), Runtime: s.runtime, Dir: d.dir(), Command: s.command(spec), Image: spec.Run.Image, Preload: spec.Preload, Env: environment(spec),
		Limits:  limits(&spec),
		Prepare: d.prepare, Event: d.event, NextReplica: s.nextReplica, Logs: d.logs, Grace: s.cfg.DrainTimeout, Quiet: d.quiet.Load,
	})
	if err != nil {
		d.lane.Close(api.ModelRemoved)
		d.lane.Leave()
		return nil, err
	}
	d.set = set
	return d, nil
}

// directColdStart is how long requests that address a model may wait for its first replica.
const directColdStart = 30 * time.Second

// weight is the version's share where there is not enough room for all: that of the weightiest of its functions.
func (d *deployment) weight() float64 { return math.Float64frombits(d.weightBits.Load()) }

func (d *deployment) readyAt() api.Nanos { return api.Nanos(d.lastReady.Load()) }

// turnedAway counts the queries that no lane has seen, for the plan had no place for them. It only grows, although choices begin anew with 0.
// Its caller holds capacity.mu.
func (d *deployment) turnedAway() uint64 {
	now := uint64(0)
	if choices := d.choices.Load(); choices != nil {
		for _, c := range *choices {
			now += c.Refused()
		}
	}
	if now > d.awaySeen {
		d.away += now - d.awaySeen
	}
	d.awaySeen = now
	return d.away
}

func (d *deployment) spec() *api.ModelSpec { return d.current.Load() }

// close ends the deployment: queries that wait are answered, those in flight come back first.
func (d *deployment) close(ctx context.Context, code api.Code) error {
	d.lane.Close(code)
	d.s.capacity.release(d)
	err := d.set.Close(ctx)
	d.lane.Leave()
	d.logs.Close()
	d.model.Cache.Drop()
	return err
}

// laneConfig turns a spec into the scheduler's terms. slo is the smallest among the model's functions, 0 when it has none.
func laneConfig(spec api.ModelSpec, slo time.Duration) scheduler.Config {
	c := scheduler.DefaultConfig()
	c.MaxQueue = spec.Queue.Max
	c.Retry = spec.Retries()
	c.Shared = spec.Device != ""
	c.TimeoutNanos = int64(spec.Timeout)
	b := &c.Batching
	b.MaxBatch, b.MaxBatchBytes = min(spec.Batching.Max, fits(spec)), int(spec.Batching.MaxBytes)
	b.HoldNanos, b.Pad = int64(spec.Batching.Hold), spec.Batching.Pad
	b.ObjectiveNanos = int64(spec.Batching.Objective)
	if b.ObjectiveNanos == 0 {
		b.ObjectiveNanos = int64(slo * 2 / 5)
	}
	switch spec.Batching.Policy {
	case api.BatchFixed:
		b.Policy = scheduler.Fixed
	case api.BatchNone:
		b.Policy = scheduler.None
	case api.BatchQuantile:
		b.Policy = scheduler.Quantile
	default:
		b.Policy = scheduler.AIMD
	}
	return c
}

// maxBlockBytes bounds one batch's fixed inputs, and its fixed outputs: a quarter of the largest segment, so that a pipeline of two
// fits whatever size classes round up to.
const maxBlockBytes = local.DefaultMaxSegmentBytes / 4

// fits is how many queries of the model a batch may have for its fixed inputs and outputs to fit the segments.
func fits(spec api.ModelSpec) int {
	largest := int64(1)
	for _, tensors := range [][]api.TensorSpec{spec.Inputs, spec.Outputs} {
		per := int64(0)
		for _, t := range tensors {
			per += int64(t.ItemBytes())
		}
		largest = max(largest, per)
	}
	return int(max(maxBlockBytes/largest, 1))
}

func (d *deployment) dir() string {
	if d.spec().Dir != "" || d.spec().Run.Image != "" { // a container sees nothing of the gateway's own directory
		return d.spec().Dir
	}
	return d.s.workDir
}

// command resolves "python" to the interpreter of the environment that the spec names, else to the gateway's own.
func (s *Server) command(spec api.ModelSpec) []string {
	cmd := append([]string(nil), spec.Run.Command...)
	if spec.Run.Image != "" || cmd[0] != "python" && cmd[0] != "python3" {
		return cmd
	}
	switch {
	case spec.Python != "":
		env := spec.Python
		if !filepath.IsAbs(env) {
			env = filepath.Join(spec.Dir, env)
		}
		cmd[0] = filepath.Join(env, "bin", "python")
	case s.cfg.Python != "":
		cmd[0] = s.cfg.Python
	default:
		cmd[0] = "python3"
	}
	return cmd
}

func environment(spec api.ModelSpec) []string {
	var env []string
	for name, value := range spec.Run.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// prepare gives a launch its token.
func (d *deployment) prepare(replica uint64) ([]string, error) {
	token, env, err := d.expect(local.Expectation{
		Replica: replica, Model: d.id, Signature: d.spec().Signature(),
		Depth: scheduler.DefaultDepth, BatchHint: min(d.spec().Batching.Max, 256), Events: d, FeedbackTimeout: d.spec().Timeout,
	})
	if err != nil {
		return nil, err
	}
	if n := d.spec().Resources.GPU; n > 0 {
		gpus, err := d.s.capacity.takeGPUs(replica, n)
		if err != nil {
			d.s.hub.Forget(token)
			return nil, err
		}
		env = append(env, gpus...)
	}
	d.mu.Lock()
	if d.launches == nil {
		d.launches = map[uint64]*launch{}
	}
	d.launches[replica] = &launch{token: token, began: time.Now()}
	d.seeDownLocked()
	d.mu.Unlock()
	return env, nil
}

// crashLoop is how many launches in a row may fail until nobody is told to wait for the next one.
const crashLoop = 3

// seeDownLocked says whether waiting for a replica makes sense: one is starting, or would for whoever asks, and has not failed to again and
// again.
func (d *deployment) seeDownLocked() {
	d.model.Down.Store(d.failures >= crashLoop || d.failures > 0 && len(d.launches) == 0 && d.asked.Load() > 0)
}

func (d *deployment) seeDown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seeDownLocked()
}

// event hears from the supervisor.
func (d *deployment) event(e containers.Event) {
	switch e.Kind {
	case containers.Started:
		d.s.log.Info("replica started", zap.Stringer("model", d.id), zap.Uint64("replica", e.Replica), zap.Int("pid", e.PID))
	case containers.NotRaised:
		d.s.log.Warn("a replica that was loaded quietly has kept the lowest priority: restart it", zap.Stringer("model", d.id), zap.Uint64("replica", e.Replica), zap.String("reason", e.Reason))
	case containers.Exited:
		how := ""
		if !e.Asked {
			how = exitText(e.Reason, d.lastWords(e.Replica))
		}
		d.mu.Lock()
		l := d.launches[e.Replica]
		delete(d.launches, e.Replica)
		if !e.Asked {
			d.failed = true
			d.failures++
			d.lastExit = how
		}
		d.seeDownLocked()
		d.mu.Unlock()
		if l != nil {
			d.s.hub.Forget(l.token)
		}
		if l != nil && l.worker != nil && e.PID == 0 {
			l.worker.Kill("its launch has failed") // it was faster than the news of its start, and its supervisor knows nothing of it
		}
		d.s.capacity.freeGPUs(e.Replica)
		d.s.capacity.left(d)
		if e.Asked {
			d.s.log.Info("replica ended", zap.Stringer("model", d.id), zap.Uint64("replica", e.Replica), zap.String("how", e.Reason))
		} else {
			d.s.log.Warn("replica ended by itself", zap.Stringer("model", d.id), zap.Uint64("replica", e.Replica), zap.String("how", e.Reason), zap.Time("next_attempt", e.Next))
		}
		d.s.noted(d.id.Name)
	}
}

// link is what the scheduler sees of a worker.
type link struct {
	d *deployment
	r *local.Replica
}

func (l link) Send(b *api.Batch) error { return l.r.Send(b) }

// Kill ends both the connection and the process: a worker that hangs does not notice the first.
func (l link) Kill(reason string) {
	l.r.Kill(reason)
	go l.d.set.Kill(l.r.ID(), reason) // the caller holds a lane; the supervisor has locks of its own
}

// Ready makes a worker a replica.
func (d *deployment) Ready(r *local.Replica) {
	d.mu.Lock()
	if l := d.launches[r.ID()]; l != nil {
		l.worker, l.ready = r, time.Now()
		d.cold.started(l.ready.Sub(l.began), d.quiet.Load())
	}
	if d.connected == nil {
		d.connected = map[*local.Replica]bool{}
	}
	d.connected[r] = false
	d.lastReady.Store(int64(d.s.clock.Now()))
	d.failed, d.failures = false, 0
	d.seeDownLocked()
	d.mu.Unlock()
	can := r.Capabilities()
	d.model.Contextual.Store(can.Contexts)
	d.model.Teachable.Store(can.Feedback)
	d.model.Told.Store(true)
	if can.Feedback {
		go d.teachNext() // what has gathered while there was none
	}
	if d.lane.Held() == 0 {
		d.cold.missedNobody()
	}
	d.lane.AddReplica(scheduler.ReplicaID(r.ID()), link{d, r}, scheduler.DefaultDepth)
	d.model.Ready.Add(1)
	d.set.MarkReady(r.ID())
	d.s.log.Info("replica ready", zap.Stringer("model", d.id), zap.Uint64("replica", r.ID()), zap.Int("pid", r.PID()), zap.String("binding", r.Binding()), zap.Bool("ring", r.Ring()))
	d.s.noted(d.id.Name)
}

// Done passes a batch's end on.
func (d *deployment) Done(r *local.Replica, res *api.BatchResult) {
	if res.Code != api.OK {
		d.noteError(r, res)
	} else if d.cold.calledAt.Load() != 0 { // as it is for hardly any batch
		d.cold.answered(d.s.clock.Now())
	}
	d.lane.BatchDone(scheduler.ReplicaID(r.ID()), res)
}

// noteError keeps the worker's text for operators. A model that fails all the time must not fill the log: what is written there
// is bounded by one line a second for each replica.
func (d *deployment) noteError(r *local.Replica, res *api.BatchResult) {
	now := time.Now()
	quiet := true
	d.mu.Lock()
	if l := d.launches[r.ID()]; l != nil {
		quiet = now.Sub(l.lastErrorAt) < time.Second
		if !quiet {
			l.lastErrorAt = now
		}
		l.lastError = fmt.Sprintf("%s: %s", res.Code, res.Detail)
	}
	d.mu.Unlock()
	if !quiet {
		d.s.log.Warn("batch failed", zap.Stringer("model", d.id), zap.Uint64("replica", r.ID()), zap.Stringer("code", res.Code), zap.String("worker_says", res.Detail))
	}
}

// Leaving lets the worker go when nothing is outstanding, and ends it when it does not go then.
func (d *deployment) Leaving(r *local.Replica, reason string) {
	d.mu.Lock()
	leaving, known := d.connected[r]
	if known {
		d.connected[r] = true
	}
	d.mu.Unlock()
	if !known || leaving {
		return
	}
	d.model.Ready.Add(-1)
	d.s.log.Info("replica leaving", zap.Stringer("model", d.id), zap.Uint64("replica", r.ID()), zap.String("reason", reason))
	d.lane.DrainReplica(scheduler.ReplicaID(r.ID()), func() {
		r.Drain()
		time.AfterFunc(d.s.cfg.DrainTimeout, func() { d.set.Kill(r.ID(), "it asked to leave and stayed") })
	})
	d.s.noted(d.id.Name)
}

// Gone gives the worker's queries back and sees to it that its process ends too.
func (d *deployment) Gone(r *local.Replica, reason string, violation bool) {
	d.mu.Lock()
	leaving, connected := d.connected[r]
	delete(d.connected, r)
	if l := d.launches[r.ID()]; l != nil {
		l.worker = nil
	}
	d.mu.Unlock()
	if connected {
		if !leaving {
			d.model.Ready.Add(-1)
		}
		d.lane.ReplicaGone(scheduler.ReplicaID(r.ID()), r.Begun)
		d.s.capacity.left(d)
	}
	level := zap.InfoLevel
	if violation {
		level = zap.ErrorLevel
	}
	d.s.log.Log(level, "replica disconnected", zap.Stringer("model", d.id), zap.Uint64("replica", r.ID()), zap.String("reason", reason))
	if violation {
		go d.set.Kill(r.ID(), reason)
	} else {
		// It is most likely ending, and its exit status says more than we could; what stays is ended all the same.
		linger := lingerTime
		if leaving {
			linger = max(linger, d.s.cfg.DrainTimeout)
		}
		time.AfterFunc(linger, func() { d.set.Kill(r.ID(), reason+", but its process went on") })
	}
	d.s.noted(d.id.Name)
}

// lingerTime is how long a process may outlive its connection; one that was drained has the time to drain.
const lingerTime = 5 * time.Second
