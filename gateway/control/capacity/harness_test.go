package capacity

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/containerstest"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

// bench is a Capacity whose goroutine does not run: tests call what it would.
type bench struct {
	*Capacity
	t     *testing.T
	clock *driver.Clock
	ahead api.Nanos // of the clock, for decisions that depend on how long the gateway has run
	keys  uint64
}

// newBench makes a Capacity for a node with 4 cores and this much memory.
func newBench(t *testing.T, memoryBytes int64) *bench {
	t.Helper()
	b := &bench{t: t, clock: driver.NewClock()}
	t.Cleanup(b.clock.Close)
	b.Capacity = New(Config{
		CPU: 4, MemoryBytes: memoryBytes, Now: func() api.Nanos { return b.clock.Now() + b.ahead }, Life: context.Background(), Changed: func(string) {}, Log: zap.NewNop(),
	})
	return b
}

// fake is a version whose replicas are in this process. Their workers connect when the test says so.
type fake struct {
	Member
	b        *bench
	spec     api.ModelSpec
	crashing bool
	lane     *driver.Lane
	direct   int32 // the lane's sub-queue
	set      *containers.Set
	model    *query.Model
}

func (f *fake) Spec() *api.ModelSpec { return &f.spec }
func (f *fake) Crashing() bool       { return f.crashing }

func (f *fake) StartsFail() (last string, fail bool) { return "exited with code 3", f.crashing }

func (f *fake) Processes() []Process { return nil }
func (f *fake) CountChanged()        {}

// join makes a member, with more lines of its declaration.
func (b *bench) join(name, more string) *fake {
	b.t.Helper()
	set, err := manifest.Decode("test.yaml", []byte("kind: Model\nname: "+name+"\nversion: \"1\"\ninputs: [{name: input, dtype: float32, shape: [4]}]\n"+
		"outputs: [{name: output, dtype: int32, shape: []}]\nrun: {command: [python, model.py]}\n"+more))
	if err != nil {
		b.t.Fatal(err)
	}
	f := &fake{b: b, spec: set.Models[0], lane: driver.NewLane(scheduler.DefaultConfig(), b.clock)}
	f.direct = f.lane.AddFunction(1)
	f.model = query.NewModel(f.spec.ID(), f.spec.Signature(), f.lane, f.direct, new(obs.Endpoint))
	if f.set, err = containers.NewSet(containers.Config{Model: f.spec.ID(), Runtime: containerstest.Idle{}, Command: f.spec.Run.Command, Dir: "/"}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		f.lane.Close(api.ShuttingDown)
		if err := f.set.Close(context.Background()); err != nil {
			b.t.Error(err)
		}
		f.lane.DetachDevice()
	})
	b.keys++
	b.Join(&f.Member, f, Joining{ID: f.spec.ID(), Key: b.keys, Lane: f.lane, Set: f.set, Model: f.model})
	return f
}

// seat is what the Capacity knows of the version.
func (f *fake) seat() *seat {
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	return f.b.seats[&f.Member]
}

// connect makes a worker ready that answers at once.
func (f *fake) connect(id scheduler.ReplicaID) {
	f.ReplicaReady()
	f.lane.AddReplica(id, answering{f.lane, id}, scheduler.DefaultDepth)
	f.model.Ready.Add(1)
}

// submit queues a query at a sub-queue of the lane, and returns what is closed when it has its answer.
func (f *fake) submit(queue int32) <-chan struct{} {
	now := f.b.clock.Now()
	q := &question{answered: make(chan struct{})}
	q.Query = api.Query{Function: queue, Arrived: now, Deadline: now + api.Nanos(time.Hour), Expires: now + api.Nanos(time.Hour)}
	q.Owner = q
	f.lane.Submit(&q.Item)
	return q.answered
}

// until polls a condition until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	late := time.After(time.Minute)
	for !holds() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

type question struct {
	scheduler.Item
	answered chan struct{}
}

func (q *question) Answered(*scheduler.Item, api.Code) { close(q.answered) }
func (q *question) Released(*scheduler.Item, api.Code) {}

type answering struct {
	lane *driver.Lane
	id   scheduler.ReplicaID
}

func (r answering) Send(b *api.Batch) error {
	go r.lane.BatchDone(r.id, &api.BatchResult{ID: b.ID, EvalNanos: 1000})
	return nil
}

func (answering) Kill(string) {}

// woken reports whether the version has been called and not looked at yet.
func (f *fake) woken() bool {
	f.b.calls.Lock()
	defer f.b.calls.Unlock()
	return slices.Contains(f.b.calls.woken, &f.Member)
}
