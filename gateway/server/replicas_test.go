package server

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/worker"
)

// idleRuntime runs replicas that never connect.
type idleRuntime struct {
	launched chan containers.Launch
}

func newIdle() *idleRuntime { return &idleRuntime{launched: make(chan containers.Launch, 16)} }

func (r *idleRuntime) Start(_ context.Context, l containers.Launch) (containers.Instance, error) {
	r.launched <- l
	return &idleInstance{gone: make(chan struct{})}, nil
}

func (r *idleRuntime) Close() error { return nil }

type idleInstance struct {
	once sync.Once
	gone chan struct{}
}

func (i *idleInstance) PID() int                { return 1 }
func (i *idleInstance) Exited() <-chan struct{} { return i.gone }
func (i *idleInstance) Exit() containers.Exit   { return containers.Exit{At: time.Now()} }
func (i *idleInstance) Signal(bool) error {
	i.once.Do(func() { close(i.gone) })
	return nil
}

// liveRuntime is a runtime and a transport whose replicas are in this process. A test says how they behave, by version.
type liveRuntime struct {
	mu    sync.Mutex
	dumb  map[api.ModelID]bool          // processes run and do not connect, until connects
	exits map[api.ModelID]bool          // processes end at once
	fail  map[api.ModelID]bool          // every batch fails
	hang  map[api.ModelID]chan struct{} // answers are kept back until it is closed
	slow  map[api.ModelID]chan struct{} // processes do not end until it is closed
	takes map[api.ModelID]time.Duration // of each batch; a replica evaluates one at a time

	expected map[uint64]worker.Expectation // launches that have not connected
	replicas []*liveReplica                // in the order of their launch
	peak     int                           // see most
}

// set changes how replicas behave while the gateway runs.
func (r *liveRuntime) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *liveRuntime) Expect(e worker.Expectation) (env []string, withdraw func() (unused bool), err error) {
	r.set(func() { r.expected[e.Replica] = e })
	return nil, func() bool { return r.claim(e.Replica) }, nil
}

// claim ends the announcement of a launch, and reports whether there was one.
func (r *liveRuntime) claim(replica uint64) (expected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, expected = r.expected[replica]
	delete(r.expected, replica)
	return expected
}

func (r *liveRuntime) Start(_ context.Context, l containers.Launch) (containers.Instance, error) {
	r.mu.Lock()
	i := &liveReplica{r: r, launch: r.expected[l.Replica], gone: make(chan struct{})}
	r.replicas = append(r.replicas, i)
	r.peak = max(r.peak, len(r.processesLocked(nil)))
	dumb, exits := r.dumb[l.Model], r.exits[l.Model]
	r.mu.Unlock()
	switch {
	case exits:
		i.exit.Code = 1
		close(i.gone)
	case !dumb:
		i.connect()
	}
	return i, nil
}

// Close is that of the runtime and of the transport: both have nothing to wait for once their replicas' sets are closed.
func (r *liveRuntime) Close() error { return nil }

// processesLocked are the replicas of a version, or of all, whose processes have not ended.
func (r *liveRuntime) processesLocked(of *api.ModelID) (all []*liveReplica) {
	for _, i := range r.replicas {
		if of != nil && i.launch.Model != *of {
			continue
		}
		select {
		case <-i.gone:
		default:
			all = append(all, i)
		}
	}
	return all
}

// processes are the replicas of a version whose processes have not ended.
func (r *liveRuntime) processes(name, version string) []*liveReplica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.processesLocked(&api.ModelID{Name: name, Version: version})
}

// alive is how many processes there are.
func (r *liveRuntime) alive() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.processesLocked(nil))
}

// most is how many processes there have been at a time.
func (r *liveRuntime) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak
}

// launches is how many processes have been started so far.
func (r *liveRuntime) launches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.replicas)
}

// connects lets the oldest process of a version that has not connected do so.
func (r *liveRuntime) connects(t *testing.T, name, version string) {
	t.Helper()
	var next *liveReplica
	until(t, "a process of "+name+"@"+version+" that has not connected", func() bool {
		for _, i := range r.processes(name, version) {
			if !i.everConnected() {
				next = i
				return true
			}
		}
		return false
	})
	next.connect()
}

// lose cuts the connections of a version's replicas. Their processes stay for a while, and those that replace them do not connect.
func (r *liveRuntime) lose(name, version string) {
	r.set(func() { r.dumb[api.ModelID{Name: name, Version: version}] = true })
	for _, i := range r.processes(name, version) {
		i.disconnect("the worker closed its connection")
	}
}

// crash ends a version's processes. Those that replace them do not connect by themselves.
func (r *liveRuntime) crash(name, version string) {
	r.lose(name, version)
	for _, i := range r.processes(name, version) {
		i.end(1)
	}
}

// liveReplica is a process and the worker that it is.
type liveReplica struct {
	r      *liveRuntime
	launch worker.Expectation
	ended  sync.Once
	gone   chan struct{}   // closed when the process has ended
	exit   containers.Exit // set before gone is closed
	busy   sync.Mutex      // held while a batch is evaluated

	events                   sync.Mutex // held while an event is delivered
	connected, leaving, dead bool
	counts                   worker.Stats // guarded by r.mu
}

func (i *liveReplica) PID() int                { return 1 }
func (i *liveReplica) Exited() <-chan struct{} { return i.gone }
func (i *liveReplica) Exit() containers.Exit {
	exit := i.exit
	exit.At = time.Now()
	return exit
}

// connect makes the worker ready, unless it is not expected any more.
func (i *liveReplica) connect() {
	i.events.Lock()
	defer i.events.Unlock()
	if i.r.claim(i.launch.Replica) {
		i.connected = true
		i.launch.Events.Ready(i)
	}
}

func (i *liveReplica) everConnected() bool {
	i.events.Lock()
	defer i.events.Unlock()
	return i.connected
}

// disconnect reports that the worker is gone.
func (i *liveReplica) disconnect(reason string) {
	i.events.Lock()
	defer i.events.Unlock()
	if i.connected && !i.dead {
		i.dead = true
		i.launch.Events.Gone(i, worker.End{Reason: reason})
	}
}

// Signal ends the process; with term after the batches that it has.
func (i *liveReplica) Signal(term bool) error {
	i.events.Lock()
	defer i.events.Unlock()
	switch {
	case !term || !i.connected || i.dead:
		i.end(0)
	case !i.leaving:
		i.leaving = true
		i.launch.Events.Leaving(i, "it was told to stop")
	}
	return nil
}

// end ends the worker, and then its process.
func (i *liveReplica) end(exitCode int) {
	i.ended.Do(func() {
		i.r.mu.Lock()
		slow := i.r.slow[i.launch.Model]
		i.r.mu.Unlock()
		go func() {
			i.disconnect("the worker closed its connection")
			if slow != nil {
				<-slow
			}
			i.exit.Code = exitCode
			close(i.gone)
		}()
	})
}

func (i *liveReplica) Info() worker.Info { return worker.Info{ID: i.launch.Replica, Binding: "test"} }

func (i *liveReplica) Stats() worker.Stats {
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	return i.counts
}

// Drain is called when no more batches come.
func (i *liveReplica) Drain() { i.end(0) }

// Kill ends the connection, but not the process.
func (i *liveReplica) Kill(reason string) { go i.disconnect(reason) }

// Send answers each query with the version's number.
func (i *liveReplica) Send(b *api.Batch) error {
	i.r.mu.Lock()
	of := i.launch.Model
	hang, fail, takes := i.r.hang[of], i.r.fail[of], i.r.takes[of]
	i.r.mu.Unlock()
	go func() {
		if hang != nil {
			<-hang
		}
		if takes > 0 {
			i.busy.Lock()
			defer i.busy.Unlock()
			<-time.After(takes)
		}
		i.answer(b, fail)
	}()
	return nil
}

// answer ends a batch, unless the replica is gone: then the batch is not its own any more.
func (i *liveReplica) answer(b *api.Batch, fail bool) {
	i.events.Lock()
	defer i.events.Unlock()
	if i.dead {
		return
	}
	for _, q := range b.Queries {
		i.evaluate(q)
	}
	res := &api.BatchResult{ID: b.ID, EvalNanos: 1000}
	if fail {
		res.Code = api.ModelError
	}
	i.r.set(func() {
		i.counts.Batches, i.counts.Queries = i.counts.Batches+1, i.counts.Queries+uint64(len(b.Queries))
	})
	i.launch.Events.Done(i, res)
}

func (i *liveReplica) evaluate(q *api.Query) {
	outputs := i.launch.Signature.Outputs
	for len(q.Outputs) < len(outputs) {
		q.Outputs = append(q.Outputs, api.Value{})
	}
	q.Outputs, q.Confidence = q.Outputs[:len(outputs)], math.NaN()
	for k, o := range outputs {
		data := make([]byte, o.ItemBytes())
		binary.LittleEndian.PutUint32(data, uint32(i.launch.Model.Version[0]-'0'))
		q.Outputs[k] = api.Value{Data: data}
	}
}
