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
	"github.com/xebec-serving/xebec/scheduler"
	"go.uber.org/zap"
)

// liveRuntime runs replicas in this process: each joins its lane as a connected worker would, and answers what speak says.
type liveRuntime struct {
	s *Server // set before anything is declared

	mu   sync.Mutex
	dumb map[api.ModelID]bool // never connect
	// hang keeps a version's answers back until it is closed.
	hang map[api.ModelID]chan struct{}
	fail map[api.ModelID]bool // every batch
	// slow keeps a version's processes from ending until it is closed.
	slow map[api.ModelID]chan struct{}
	// takes is how long a version takes for a batch; it takes one at a time.
	takes map[api.ModelID]time.Duration
	// replicas are those that have connected, by their number.
	replicas map[uint64]*liveReplica
}

func (r *liveRuntime) Start(_ context.Context, l containers.Launch) (containers.Instance, error) {
	i := &liveReplica{r: r, id: l.Model, replica: scheduler.ReplicaID(l.Replica), gone: make(chan struct{})}
	r.mu.Lock()
	dumb := r.dumb[l.Model]
	r.mu.Unlock()
	if !dumb {
		i.connect(l.Replica)
	}
	return i, nil
}

func (r *liveRuntime) Close() error { return nil }

// deploymentOf is whose launch a replica is.
func (r *liveRuntime) deploymentOf(replica uint64) *deployment {
	var all []*deployment
	r.s.capacity.mu.Lock()
	for d := range r.s.capacity.seats { // deleted ones, too
		all = append(all, d)
	}
	r.s.capacity.mu.Unlock()
	for _, d := range all {
		d.mu.Lock()
		l := d.launches[replica]
		d.mu.Unlock()
		if l != nil {
			return d
		}
	}
	return nil
}

type liveReplica struct {
	r       *liveRuntime
	id      api.ModelID
	replica scheduler.ReplicaID
	d       *deployment // nil: it has not connected
	once    sync.Once
	gone    chan struct{}
	busy    sync.Mutex // one batch at a time
	writing sync.Mutex
	dead    bool // its lane has been told that it is gone; guarded by writing
}

func (i *liveReplica) connect(replica uint64) {
	d := i.r.deploymentOf(replica)
	if d == nil {
		return
	}
	i.d = d
	d.mu.Lock()
	d.failed, d.failures = false, 0
	d.seeDownLocked()
	d.mu.Unlock()
	d.model.Told.Store(true)
	i.r.mu.Lock()
	i.r.replicas[replica] = i
	i.r.mu.Unlock()
	d.lane.AddReplica(i.replica, i, scheduler.DefaultDepth)
	d.model.Ready.Add(1)
	d.set.MarkReady(replica)
	d.s.noted(d.id.Name)
}

// Send answers each query with the version's number.
func (i *liveReplica) Send(b *api.Batch) error {
	i.r.mu.Lock()
	hang, fail, takes := i.r.hang[i.id], i.r.fail[i.id], i.r.takes[i.id]
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

// answer ends a batch, unless the replica is gone: then its queries are not its own any more.
func (i *liveReplica) answer(b *api.Batch, fail bool) {
	i.writing.Lock()
	if i.dead {
		i.writing.Unlock()
		return
	}
	res := &api.BatchResult{ID: b.ID, EvalNanos: 1000}
	for _, q := range b.Queries {
		i.speak(q)
	}
	i.writing.Unlock()
	if fail {
		res.Code = api.ModelError
	}
	i.d.lane.BatchDone(i.replica, res)
}

// leave tells the lane that it is gone.
func (i *liveReplica) leave() {
	i.writing.Lock()
	i.dead = true
	i.writing.Unlock()
	i.d.lane.ReplicaGone(i.replica, func(uint64) bool { return true })
}

func (i *liveReplica) speak(q *api.Query) {
	outputs := i.d.model.Signature.Outputs
	for len(q.Outputs) < len(outputs) {
		q.Outputs = append(q.Outputs, api.Value{})
	}
	q.Outputs, q.Confidence = q.Outputs[:len(outputs)], math.NaN()
	for k, o := range outputs {
		data := make([]byte, o.ItemBytes())
		binary.LittleEndian.PutUint32(data, uint32(i.id.Version[0]-'0'))
		q.Outputs[k] = api.Value{Data: data}
	}
}

func (i *liveReplica) Kill(string) {}

func (i *liveReplica) PID() int                { return 1 }
func (i *liveReplica) Exited() <-chan struct{} { return i.gone }
func (i *liveReplica) Exit() containers.Exit   { return containers.Exit{At: time.Now()} }

// Signal ends it: asked nicely, when its batches are done.
func (i *liveReplica) Signal(bool) error {
	i.once.Do(func() {
		d := i.d
		i.writing.Lock()
		dead := i.dead
		i.writing.Unlock()
		if d == nil || dead {
			close(i.gone)
			return
		}
		d.model.Ready.Add(-1)
		d.lane.DrainReplica(i.replica, func() {
			go func() {
				i.leave()
				d.s.noted(d.id.Name)
				i.r.mu.Lock()
				slow := i.r.slow[i.id]
				i.r.mu.Unlock()
				if slow != nil {
					<-slow
				}
				close(i.gone)
			}()
		})
	})
	return nil
}

// lose takes a version's replicas: their processes are still there, and answer nobody.
func (r *liveRuntime) lose(d *deployment) {
	d.mu.Lock()
	var all []uint64
	for replica := range d.launches {
		all = append(all, replica)
	}
	d.mu.Unlock()
	for _, replica := range all {
		r.mu.Lock()
		i := r.replicas[replica]
		r.mu.Unlock()
		i.leave()
		d.model.Ready.Add(-1)
	}
	d.s.noted(d.id.Name)
}

// alive is a gateway over replicas in this process.
func alive(t *testing.T, cfg Config) (*Server, *liveRuntime, string) {
	t.Helper()
	s, rt, addr, stop := aliveUntil(t, cfg)
	t.Cleanup(stop)
	return s, rt, addr
}

func aliveUntil(t *testing.T, cfg Config) (*Server, *liveRuntime, string, func()) {
	t.Helper()
	rt := &liveRuntime{
		dumb: map[api.ModelID]bool{}, hang: map[api.ModelID]chan struct{}{}, fail: map[api.ModelID]bool{}, slow: map[api.ModelID]chan struct{}{},
		takes: map[api.ModelID]time.Duration{}, replicas: map[uint64]*liveReplica{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	addr := make(chan string, 1)
	done := make(chan error, 1)
	cfg.Listen, cfg.Admin, cfg.Runtime, cfg.Logger = "127.0.0.1:0", "127.0.0.1:0", rt, zap.NewNop()
	cfg.Started = func(listen, _ string) { addr <- listen }
	s := newServer(cfg.withDefaults(), cfg.Logger)
	rt.s = s
	go func() { done <- s.run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	select {
	case a := <-addr:
		return s, rt, a, stop
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	return nil, nil, "", nil
}

// patienceOfTests is how long a condition may take to come true on a busy machine.
const patienceOfTests = time.Minute

// until looks at a condition with the lock held until it holds.
func until(t *testing.T, s *Server, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	late := time.After(patienceOfTests)
	for {
		s.mu.Lock()
		ok := holds()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
