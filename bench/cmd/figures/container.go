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
	// readyWithin covers the import of scikit-learn on a busy machine.
	readyWithin = 60 * time.Second
	// batchHint is what the gateway gives: segments grow with the first larger batches.
	batchHint = 256
	// stopWithin is how long a container may take to end.
	stopWithin = 10 * time.Second
)

// rig is what containers share: a hub, a runtime and a clock, put together as gateway/server does, without HTTP.
type rig struct {
	dir     string
	clock   *driver.Clock
	hub     *local.Hub
	runtime *process.Runtime
	last    uint64 // replica number
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
	if r.runtime, err = process.New(); err != nil {
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

// container is one running replica that several lanes use in turn: every batching strategy meets the same process, with its
// memory as the one before has left it. Batches are numbered anew, since lanes count each for themselves.
type container struct {
	model    model
	clock    *driver.Clock
	id       scheduler.ReplicaID
	instance containers.Instance
	replica  worker.Replica
	output   server.Tail
	ready    chan worker.Replica
	gone     chan struct{} // closed when it is lost; why says how
	why      string

	mu      sync.Mutex
	last    uint64
	pending map[uint64]pending
	record  []batchRecord
	fault   error // the first batch that failed, or answer that was wrong
}

// pending is a batch that the container has, by the container's own number.
type pending struct {
	queries int
	lane    *driver.Lane // nil: sent by evaluate
	theirs  uint64       // the lane's number of it
	done    chan<- int64 // evaluate's: takes the evaluation time
}

// batchRecord is one batch that came back.
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

// stop lets the container go; nothing is outstanding.
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

// lane makes a lane that sends to the container. Lanes take turns: one is empty before the next gets a query.
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
	err := c.replica.Send(own) // copies the inputs: not under a lock that the poller may want
	if err != nil {
		c.mu.Lock()
		delete(c.pending, own.ID)
		c.mu.Unlock()
	}
	return err
}

// Ready, Done, Leaving and Gone are what the replica tells.
func (c *container) Ready(r worker.Replica) { c.ready <- r }

// Done records the batch and passes it on to whoever sent it.
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

// Leaving: the container asks to go. Nobody has told it to, so it is as good as lost; Gone follows.
func (c *container) Leaving(r worker.Replica, _ string) { r.Drain() }

// Gone ends whatever is being measured.
func (c *container) Gone(_ worker.Replica, end worker.End) {
	c.why = end.Reason
	close(c.gone)
}

// failure is why the container is of no use any more, or nil.
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

// records takes what has come back since the last call.
func (c *container) records() []batchRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.record
	c.record = nil
	return r
}

// recorded is how many have.
func (c *container) recorded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.record)
}

// evaluate sends one batch, with nothing else outstanding, and returns its evaluation time as the transport measured it: from
// the descriptor written to the answer seen. The copy of the inputs into shared memory is not in it.
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

// words are the last that the container wrote, for the end of an error message; empty when it was silent.
func (c *container) words() string {
	words := strings.TrimSpace(c.output.String())
	if words == "" {
		return ""
	}
	return "; it said:\n" + words
}
