package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/machine"
	"github.com/xebec-serving/xebec/bench/internal/server"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/process"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
)

const (
	// readyWithin is enough to import scikit-learn on a busy machine.
	readyWithin = 60 * time.Second
	// batchHint is the gateway's value. Segments grow with the first larger batches.
	batchHint = 256
	// stopWithin is how long a container may take to end.
	stopWithin = 10 * time.Second
)

// rig is what the containers share: a hub, a runtime and a clock, assembled as in gateway/server but without HTTP.
type rig struct {
	dir     string
	clock   *driver.Clock
	hub     *local.Hub
	runtime *process.Runtime
	last    uint64 // number of the last replica
}

func openRig() (*rig, error) {
	dir, err := os.MkdirTemp("", "xebec-figures-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, clock: driver.NewClock()}
	if r.hub, err = local.Listen(local.Config{Socket: filepath.Join(dir, "workers"), Now: r.clock.Now}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if r.runtime, err = process.New(process.Config{}); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) close() error {
	var errs []error
	if r.runtime != nil {
		errs = append(errs, r.runtime.Close())
	}
	if r.hub != nil {
		errs = append(errs, r.hub.Close())
	}
	r.clock.Close()
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// container is one running replica that several lanes use in turn, so that every batching strategy meets the same process. The container
// numbers batches itself, because each lane has its own numbering.
type container struct {
	model    model
	clock    *driver.Clock
	id       scheduler.ReplicaID
	instance containers.Instance
	replica  worker.Replica
	output   server.Tail
	ready    chan worker.Replica
	gone     chan struct{} // closed when the replica is lost; why says how
	why      string

	mu      sync.Mutex
	last    uint64
	pending map[uint64]pending
	record  []batchRecord
	fault   error // the first failed batch or wrong answer
}

// pending is a batch in the container.
type pending struct {
	queries int
	lane    *driver.Lane // nil: sent by evaluate
	theirs  uint64       // the lane's number of the batch
	done    chan<- int64 // of evaluate; receives the evaluation time
}

// batchRecord is one returned batch.
type batchRecord struct {
	queries   int
	at        api.Nanos
	evalNanos int64
}

// start launches the model's container and waits until it takes batches.
func (r *rig) start(ctx context.Context, python string, m model) (*container, error) {
	r.last++
	c := &container{model: m, clock: r.clock, id: scheduler.ReplicaID(r.last), ready: make(chan worker.Replica, 1), gone: make(chan struct{}), pending: map[uint64]pending{}}
	env, withdraw, err := r.hub.Expect(worker.Expectation{
		Replica: r.last, Model: api.ModelID{Name: m.name, Version: "1"}, Signature: signature,
		Depth: scheduler.DefaultDepth, BatchHint: batchHint, Events: c,
	})
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", m.name, err)
	}
	env = append(env, "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	instance, err := r.runtime.Start(ctx, containers.Launch{Replica: r.last, Dir: m.dir, Command: []string{python, "model.py"}, Env: env, Stdout: &c.output, Stderr: &c.output})
	if err != nil {
		withdraw()
		return nil, fmt.Errorf("container %s: %w", m.name, err)
	}
	c.instance = instance
	timer := time.NewTimer(readyWithin)
	defer timer.Stop()
	select {
	case c.replica = <-c.ready:
		return c, nil
	case <-c.gone:
		err = c.failure()
	case <-instance.Exited():
		err = fmt.Errorf("container %s: %s before it was ready%s", m.name, instance.Exit(), c.words())
	case <-timer.C:
		err = fmt.Errorf("container %s: not ready after %s%s", m.name, readyWithin, c.words())
	case <-ctx.Done():
		err = ctx.Err()
	}
	withdraw()
	return nil, errors.Join(err, c.end(false))
}

// stop ends the container, which must have no outstanding batch.
func (c *container) stop() error {
	c.replica.Drain()
	return c.end(true)
}

func (c *container) end(asked bool) error {
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	if !asked {
		if err := c.instance.Signal(false); err != nil {
			return err
		}
	}
	select {
	case <-c.instance.Exited():
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("container %s: did not end within %s%s", c.model.name, stopWithin, c.words()), c.instance.Signal(false))
	}
}

func (c *container) cpu() (time.Duration, error) { return machine.CPUTime(c.instance.PID()) }

// lane makes a lane that sends to the container. Lanes take turns: one must be empty before the next gets a query.
func (c *container) lane(cfg scheduler.Config) *driver.Lane {
	l := driver.NewLane(cfg, c.clock)
	l.AddFunction(1)
	l.AddReplica(c.id, port{c, l}, scheduler.DefaultDepth)
	return l
}

// port is a lane's way to the container.
type port struct {
	c    *container
	lane *driver.Lane
}

func (p port) Send(b *api.Batch) error {
	return p.c.send(b, pending{queries: len(b.Queries), lane: p.lane, theirs: b.ID})
}

func (p port) Kill(reason string) { p.c.replica.Kill(reason) }

func (c *container) send(b *api.Batch, p pending) error {
	c.mu.Lock()
	c.last++
	own := &api.Batch{ID: c.last, Queries: b.Queries, Pad: b.Pad}
	c.pending[own.ID] = p
	c.mu.Unlock()
	err := c.replica.Send(own) // copies the inputs, so it must not hold the lock, which the poller takes
	if err != nil {
		c.mu.Lock()
		delete(c.pending, own.ID)
		c.mu.Unlock()
	}
	return err
}

// Ready, Done, Leaving and Gone implement worker.Events.
func (c *container) Ready(r worker.Replica) { c.ready <- r }

// Done records the batch and passes the result to its sender.
func (c *container) Done(_ worker.Replica, res *api.BatchResult) {
	at := c.clock.Now()
	c.mu.Lock()
	p := c.pending[res.ID]
	delete(c.pending, res.ID)
	if res.Code == api.OK {
		c.record = append(c.record, batchRecord{p.queries, at, res.EvalNanos})
	} else if c.fault == nil {
		c.fault = fmt.Errorf("container %s: a batch of %d failed with %s: %s", c.model.name, p.queries, res.Code, res.Detail)
	}
	c.mu.Unlock()
	if p.lane == nil {
		p.done <- res.EvalNanos
		return
	}
	theirs := *res
	theirs.ID = p.theirs
	p.lane.BatchDone(c.id, &theirs)
}

// FirstOutput implements worker.Events.
func (c *container) FirstOutput(worker.Replica, uint64, int64) {}

// Leaving means that the container wants to exit although it was not told to. It is as good as lost, and Gone follows.
func (c *container) Leaving(r worker.Replica, _ string) { r.Drain() }

// Gone ends the current measurement.
func (c *container) Gone(_ worker.Replica, end worker.End) {
	c.why = end.Reason
	close(c.gone)
}

// failure returns why the container is unusable, or nil.
func (c *container) failure() error {
	c.mu.Lock()
	fault := c.fault
	c.mu.Unlock()
	select {
	case <-c.gone:
		return errors.Join(fault, fmt.Errorf("container %s is gone: %s%s", c.model.name, c.why, c.words()))
	default:
		return fault
	}
}

func (c *container) blame(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == nil {
		c.fault = fmt.Errorf("container %s: %w", c.model.name, err)
	}
}

// records returns the batches that returned since the last call, and forgets them.
func (c *container) records() []batchRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record
	c.record = nil
	return r
}

// recorded returns the number of batches that returned since the last call of records.
func (c *container) recorded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.record)
}

// evaluate sends one batch, with nothing else outstanding, and returns its evaluation time as measured by the transport: from the write of the
// descriptor until the answer is seen, without the copy of the inputs into shared memory.
func (c *container) evaluate(ctx context.Context, queries []*api.Query) (evalNanos int64, err error) {
	done := make(chan int64, 1)
	if err := c.send(&api.Batch{Queries: queries}, pending{queries: len(queries), done: done}); err != nil {
		return 0, err
	}
	select {
	case evalNanos = <-done:
		return evalNanos, c.failure()
	case <-c.gone:
		return 0, c.failure()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// words returns the container's last output for the end of an error message, or "" if there was none.
func (c *container) words() string {
	words := strings.TrimSpace(c.output.String())
	if words == "" {
		return ""
	}
	return "; it said:\n" + words
}
