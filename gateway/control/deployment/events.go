package deployment

import (
	"cmp"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/worker"
	"go.uber.org/zap"
)

// This file is the life of a replica, event by event: prepare, Started, Ready, Done …, Leaving, Gone, Exited. The supervisor
// and the transport report independently, so Gone and Exited come in either order.

// prepare announces a launch to the transport and gives it its GPUs, as environment variables.
func (d *Deployment) prepare(replica uint64) ([]string, error) {
	spec := d.Spec()
	busyPoll, _ := d.h.busyPoll(spec)
	var lines func(worker.Line)
	if calls := spec.Calls; len(calls) > 0 && d.h.Lines != nil {
		lines = func(l worker.Line) { d.h.Lines(d.id.Name, calls, l) }
	}
	var streamed func(int)
	if d.streams != nil {
		streamed = d.streams.more
	}
	env, withdraw, err := d.h.Transport.Expect(worker.Expectation{
		Replica: replica, Model: d.id, Signature: spec.Signature(), Isolated: apart(spec),
		Depth: scheduler.DefaultDepth, BatchHint: min(spec.Batching.Max, 256), Events: events{d}, FeedbackTimeout: cmp.Or(spec.Timeout, api.DefaultModelTimeout),
		Streams: spec.Stream, StreamIdle: cmp.Or(spec.StreamIdle, api.DefaultStreamIdle), Streamed: streamed, BusyPoll: busyPoll, Lines: lines,
	})
	if err != nil {
		return nil, err
	}
	env = append(env, "XEBEC_SCRATCH="+scratch(spec))
	if n := spec.Resources.GPU; n > 0 {
		gpus, err := d.h.Capacity.TakeGPUs(replica, n)
		if err != nil {
			withdraw()
			return nil, err
		}
		env = append(env, gpus...)
	}
	d.mu.Lock()
	if d.launches == nil {
		d.launches = map[uint64]*launch{}
	}
	d.launches[replica] = &launch{withdraw: withdraw, began: time.Now()}
	d.updateDown()
	d.mu.Unlock()
	return env, nil
}

// updateDown notes whether waiting for a replica makes sense: one is starting, or would start for the next query, and launches
// have not failed again and again. Its caller holds d.mu.
func (d *Deployment) updateDown() {
	d.model.Down.Store(d.failures >= crashLoop || d.failures > 0 && len(d.launches) == 0 && d.Asked() > 0)
}

// CountChanged is called by the capacity when the version is to have no replica.
func (d *Deployment) CountChanged() {
	d.mu.Lock()
	failing := d.failures >= crashLoop
	d.updateDown()
	d.mu.Unlock()
	if failing {
		d.h.Changed(d.id.Name) // it is woken again later
	}
}

// Processes are the replicas that are ready.
func (d *Deployment) Processes() (all []capacity.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.launches {
		if l.worker == nil {
			continue
		}
		if pid := l.worker.Info().PID; pid > 0 {
			all = append(all, capacity.Process{PID: pid, Ready: l.ready, Batches: l.worker.Stats().Batches})
		}
	}
	return all
}

// event is called by the supervisor.
func (d *Deployment) event(e containers.Event) {
	model, replica := zap.Stringer("model", d.id), zap.Uint64("replica", e.Replica)
	switch e.Kind {
	case containers.Started:
		d.h.Log.Info("replica started", model, replica, zap.Int("pid", e.PID))
		d.mu.Lock()
		if l := d.launches[e.Replica]; l != nil {
			l.image = e.Image
		}
		d.mu.Unlock()
		d.pinImage(e.Replica)                                                         // it may be ready already
		if spec := d.Spec(); ownPython(spec) && containers.HasRequirements(d.dir()) { // an environment may have been built first
			d.mu.Lock()
			if l := d.launches[e.Replica]; l != nil {
				l.began = time.Now()
			}
			d.mu.Unlock()
		}
	case containers.NotRaised:
		d.h.Log.Warn("a replica that was loaded quietly has kept the lowest priority: restart it", model, replica, zap.String("reason", e.Reason))
	case containers.Exited:
		how := ""
		if !e.Asked {
			how = exitText(e.Reason, d.lastStderr(e.Replica))
		}
		d.mu.Lock()
		l := d.launches[e.Replica]
		delete(d.launches, e.Replica)
		if !e.Asked && e.Exit.Cause != containers.Lost { // what was lost says nothing about the model
			d.failed = true
			d.failures++
		}
		if !e.Asked {
			d.lastExit = how
		}
		d.updateDown()
		d.mu.Unlock()
		d.settle(e.Replica, !e.Asked && e.Exit.Own())
		if l != nil {
			l.withdraw()
		}
		if l != nil && l.worker != nil && e.PID == 0 {
			l.worker.Kill("its launch has failed") // it connected before its launch failed, and its supervisor does not know it
		}
		d.h.Capacity.FreeGPUs(e.Replica)
		d.ReplicaLost()
		if e.Asked {
			d.h.Log.Info("replica ended", model, replica, zap.String("how", e.Reason))
		} else {
			d.h.Log.Warn("replica ended by itself", model, replica, zap.String("how", e.Reason), zap.Time("next_attempt", e.Next))
		}
		d.h.Changed(d.id.Name)
	}
}

// served is asked by the supervisor when a replica has ended. Whether its connection's end was noticed before is chance.
func (d *Deployment) served(replica uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.launches[replica]
	return l != nil && (l.served || l.worker != nil && l.worker.Stats().Batches > 0)
}

// exitText is how a process ended, with the last line that it wrote to stderr.
func exitText(how string, lines []string) string {
	if n := len(lines); n > 0 {
		how += ": " + lines[n-1]
	}
	return how
}

// LogLines is how many log lines a description of a model shows.
const LogLines = 20

// lastStderr are the last lines that a replica wrote to stderr.
func (d *Deployment) lastStderr(replica uint64) (lines []string) {
	for _, l := range d.logs.TailOf(replica, LogLines) {
		if l.Stream == containers.Stderr {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

// link is a worker as the scheduler sees it.
type link struct {
	d *Deployment
	r worker.Replica
}

func (l link) Send(b *api.Batch) error { return l.r.Send(b) }

// Concurrency implements [driver.Concurrent].
func (l link) Concurrency() int { return l.r.Info().Concurrency }

// Kill ends both the connection and the process: a worker that hangs does not notice that its connection ended.
func (l link) Kill(reason string) {
	l.r.Kill(reason)
	go l.d.set.Kill(l.r.Info().ID, containers.Hung, reason) // the caller holds a lane; the supervisor has locks of its own
}

// events receives what the transport reports of the deployment's workers.
type events struct{ d *Deployment }

// Ready makes a worker a replica.
func (e events) Ready(r worker.Replica) {
	d, is := e.d, r.Info()
	d.mu.Lock()
	if l := d.launches[is.ID]; l != nil {
		l.worker, l.ready = r, time.Now()
		d.Cold.Started(l.ready.Sub(l.began), d.quiet.Load())
		d.model.StartNanos.Store(int64(d.Cold.StartTime()))
	}
	if d.connected == nil {
		d.connected, d.passing = map[worker.Replica]bool{}, map[uint64]*passing{}
	}
	d.connected[r], d.passing[is.ID] = false, &passing{}
	d.noteReservers()
	d.ReplicaReady()
	d.failed, d.failures = false, 0
	d.updateDown()
	d.mu.Unlock()
	d.model.Contextual.Store(is.Capabilities.Contexts)
	d.model.Teachable.Store(is.Capabilities.Feedback)
	d.model.CapabilitiesKnown.Store(true)
	if is.Capabilities.Feedback {
		go d.teachNext() // what was gathered while there was no replica
	}
	if d.lane.Held() == 0 {
		d.Cold.Forget()
	}
	d.everReady.Store(true)
	d.lane.AddReplica(scheduler.ReplicaID(is.ID), link{d, r}, scheduler.DefaultDepth)
	d.model.Ready.Add(1)
	d.set.MarkReady(is.ID)
	d.pinImage(is.ID)
	d.h.Log.Info("replica ready", zap.Stringer("model", d.id), zap.Uint64("replica", is.ID), zap.Int("pid", is.PID), zap.String("binding", is.Binding), zap.Bool("ring", hasRing(r)))
	d.h.Changed(d.id.Name)
}

// noteReservers follows connected. The lock is held.
func (d *Deployment) noteReservers() {
	var list []worker.Reserver
	for r, leaving := range d.connected {
		if to, ok := r.(worker.Reserver); ok && !leaving {
			list = append(list, to)
		}
	}
	d.reservers.Store(&list)
}

// reserve returns memory of a replica for an input, or has it wait for that. If another one gets its batch, that one's Send copies it.
func (d *Deployment) reserve(n int, give func(api.Slot) bool) (_ api.Slot, waits bool) {
	list := d.reservers.Load()
	if list == nil || len(*list) == 0 {
		return nil, false
	}
	return (*list)[d.turn.Add(1)%uint32(len(*list))].Reserve(n, give)
}

// hasRing reports whether batches reach the worker through a ring in shared memory. Other transports have none.
func hasRing(r worker.Replica) bool {
	local, ok := r.(interface{ Ring() bool })
	return ok && local.Ring()
}

// Done passes a batch's result to the lane.
func (e events) Done(r worker.Replica, res *api.BatchResult) {
	d, id := e.d, r.Info().ID
	if d.streams != nil {
		d.streams.closed(id, res)
	}
	if res.Code == api.Cancelled {
		// A caller has left a stream before its first output, which says nothing about the model.
	} else if res.Code != api.OK {
		d.noteError(id, res.Code, res.Detail)
	} else {
		if res.Detail != "" {
			d.noteError(id, api.ModelError, res.Detail)
		}
		if d.Cold.Pending() {
			d.Cold.Answered(d.h.Clock.Now())
		}
	}
	d.lane.BatchDone(scheduler.ReplicaID(id), res)
}

// FirstOutput passes the first output of a stream to the lane.
func (e events) FirstOutput(r worker.Replica, batch uint64, evalNanos int64) {
	if d := e.d; d.Cold.Pending() {
		d.Cold.Answered(d.h.Clock.Now())
	}
	if s := e.d.streams; s != nil {
		s.opened(r.Info().ID, batch)
	}
	e.d.lane.FirstOutput(scheduler.ReplicaID(r.Info().ID), batch, evalNanos)
}

// streamsOf is how many streams a replica holds. One that is ending gets no more.
func (d *Deployment) streamsOf(replica uint64, ending bool) int {
	if ending {
		d.lane.DrainReplica(scheduler.ReplicaID(replica), nil)
	}
	var snap scheduler.Snapshot
	d.lane.Snapshot(&snap)
	for i := range snap.Replicas {
		if r := &snap.Replicas[i]; uint64(r.ID) == replica {
			return r.Batches
		}
	}
	return 0
}

// noteError keeps the worker's text for operators. A model that always fails must not fill the log: at most one line a second
// is written for each replica.
func (d *Deployment) noteError(replica uint64, code api.Code, text string) {
	now := time.Now()
	quiet := true
	d.mu.Lock()
	if l := d.launches[replica]; l != nil {
		quiet = now.Sub(l.lastErrorAt) < time.Second
		if !quiet {
			l.lastErrorAt = now
		}
		l.lastError = fmt.Sprintf("%s: %s", code, text)
	}
	d.mu.Unlock()
	if !quiet {
		d.h.Log.Warn("batch failed", zap.Stringer("model", d.id), zap.Uint64("replica", replica), zap.Stringer("code", code), zap.String("worker_says", text))
	}
}

// ForgetErrors drops the errors of inputs that no caller has sent.
func (d *Deployment) ForgetErrors() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.launches {
		l.lastError, l.lastErrorAt = "", time.Time{}
	}
}

// Explain is a code for people, with the last error that a replica reported.
func (d *Deployment) Explain(code api.Code) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	said, at := "", time.Time{}
	for _, l := range d.launches {
		if l.lastErrorAt.After(at) {
			said, at = l.lastError, l.lastErrorAt
		}
	}
	if said != "" {
		return code.Reason() + " (" + said + ")"
	}
	return code.Reason()
}

// Leaving lets a worker go when it has nothing outstanding, and ends it when it does not leave then.
func (e events) Leaving(r worker.Replica, reason string) {
	d, id := e.d, r.Info().ID
	d.mu.Lock()
	leaving, known := d.connected[r]
	if known {
		d.connected[r] = true
		d.noteReservers()
	}
	d.mu.Unlock()
	if !known || leaving {
		return
	}
	d.model.Ready.Add(-1)
	d.h.Log.Info("replica leaving", zap.Stringer("model", d.id), zap.Uint64("replica", id), zap.String("reason", reason))
	d.lane.DrainReplica(scheduler.ReplicaID(id), func() {
		r.Drain()
		time.AfterFunc(d.h.Drain, func() { d.set.Kill(id, containers.Stayed, "it asked to leave and stayed") })
	})
	d.h.Changed(d.id.Name)
}

// Gone gives the worker's queries back to the lane and makes sure that its process ends too.
func (e events) Gone(r worker.Replica, end worker.End) {
	d, id := e.d, r.Info().ID
	d.mu.Lock()
	leaving, connected := d.connected[r]
	delete(d.connected, r)
	d.noteReservers()
	if l := d.launches[id]; l != nil {
		l.worker, l.served = nil, r.Stats().Batches > 0
	}
	d.mu.Unlock()
	if d.streams != nil {
		d.streams.lost(id)
	}
	if connected {
		if !leaving {
			d.model.Ready.Add(-1)
		}
		d.disconnected(id, end.Begun)
	}
	level := zap.InfoLevel
	if end.Violation {
		level = zap.ErrorLevel
	}
	d.h.Log.Log(level, "replica disconnected", zap.Stringer("model", d.id), zap.Uint64("replica", id), zap.String("reason", end.Reason))
	switch {
	case end.Violation:
		go d.set.Kill(id, containers.Violation, end.Reason)
	case end.Silent:
		go d.set.Kill(id, containers.Hung, end.Reason)
	default:
		// It is most likely ending, and its exit status says more than the gateway could. A process that stays is ended later.
		d.set.Lower(id)
		linger := lingerTime
		if leaving {
			linger = max(linger, d.h.Drain)
		}
		time.AfterFunc(linger, func() { d.set.Kill(id, containers.Stayed, end.Reason+", but its process went on") })
	}
	d.h.Changed(d.id.Name)
}

// passing is a ready replica until its connection and its process have ended, in either order.
type passing struct {
	begun  func(batch uint64) bool // once its connection has ended
	ended  bool                    // its process has
	itself bool                    // and has ended itself
}

// exitWait is how long a query that was alone in a replica whose connection has ended waits for the end of its process to be
// known, which is usually within milliseconds. Without it, the end is taken for one from outside.
const exitWait = time.Second //xebec:limit wait of a lone query for how its replica's process has ended

// disconnected gives a replica's batches back to the lane: at once, unless it matters how its process has ended.
func (d *Deployment) disconnected(replica uint64, begun func(batch uint64) bool) {
	if begun == nil {
		begun = func(uint64) bool { return true }
	}
	matters := d.lane.HasCulprit(scheduler.ReplicaID(replica), begun)
	d.mu.Lock()
	p := d.passing[replica]
	p.begun = begun
	known := p.ended
	d.mu.Unlock()
	if known || !matters {
		d.giveBack(replica)
		return
	}
	time.AfterFunc(exitWait, func() { d.giveBack(replica) })
}

// settle notes how a replica's process has ended.
func (d *Deployment) settle(replica uint64, itself bool) {
	d.mu.Lock()
	p := d.passing[replica]
	gone := p != nil && p.begun != nil
	if p != nil {
		p.ended, p.itself = true, itself
	}
	d.mu.Unlock()
	if gone {
		d.giveBack(replica)
	}
}

// giveBack gives a dead replica's batches back to the lane, once.
func (d *Deployment) giveBack(replica uint64) {
	d.mu.Lock()
	p := d.passing[replica]
	delete(d.passing, replica)
	d.mu.Unlock()
	switch {
	case p == nil:
		return
	case p.itself:
		d.lane.ReplicaCrashed(scheduler.ReplicaID(replica), p.begun)
	default:
		d.lane.ReplicaGone(scheduler.ReplicaID(replica), p.begun)
	}
	d.ReplicaLost()
}

// lingerTime is how long a process may outlive its connection. One that was drained has the time to drain.
const lingerTime = 5 * time.Second //xebec:limit time that a process may outlive its connection
