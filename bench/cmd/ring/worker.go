package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
)

// The whole transport: a hub, a replica and the Go binding. Each call is a batch of one query. As in the gateway, a large request is written
// straight to where the worker reads it, and a small one is copied there when it is sent.

const (
	roleVariable = "XEBEC_BENCH_ROLE"
	loadVariable = "XEBEC_BENCH_LOAD"
	// launchTimeout is enough for a process start on a busy machine.
	launchTimeout = 20 * time.Second
	// inPlace is the size from which the gateway receives requests where their worker reads them.
	inPlace = 64 << 10
	// pendingIDs bounds the distance between the oldest outstanding batch and the newest. Each caller has one batch.
	pendingIDs = 4096
)

type workerLink struct {
	dir     string
	hub     *local.Hub
	child   *exec.Cmd
	replica worker.Replica
	ready   chan worker.Replica
	gone    chan string

	mu      sync.Mutex // guards Send and what follows
	last    uint64
	slotOf  [pendingIDs]int
	batches []api.Batch
	queries []api.Query
	request [][]byte
	done    []chan api.Code
}

func openWorker(load Load) (l link, err error) {
	w := &workerLink{ready: make(chan worker.Replica, 1), gone: make(chan string, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "xebec-ring-"); err != nil {
		return nil, err
	}
	start := time.Now()
	if w.hub, err = local.Listen(local.Config{Socket: filepath.Join(w.dir, "workers"), Now: func() api.Nanos { return api.Nanos(time.Since(start)) }}); err != nil {
		return nil, err
	}
	w.batches, w.queries = make([]api.Batch, load.InFlight), make([]api.Query, load.InFlight)
	for slot := range load.InFlight {
		w.request = append(w.request, request(load, slot))
		w.queries[slot] = api.Query{Inputs: []api.Value{{}}, Deadline: api.Never, Expires: api.Never, Outputs: []api.Value{{}}}
		w.batches[slot].Queries = []*api.Query{&w.queries[slot]}
		w.done = append(w.done, make(chan api.Code, 1))
	}
	env, _, err := w.hub.Expect(worker.Expectation{
		Replica: 1, Model: api.ModelID{Name: "bench", Version: "1"}, Depth: load.InFlight, BatchHint: 1, Events: w,
		Signature: api.Signature{
			Inputs:  []api.TensorSpec{{Name: "input", DType: api.Uint8, Shape: []int64{int64(load.RequestBytes)}}},
			Outputs: []api.TensorSpec{{Name: "output", DType: api.Uint8, Shape: []int64{int64(load.AnswerBytes)}}},
		},
	})
	if err != nil {
		return nil, err
	}
	child, err := childCommand("worker", load)
	if err != nil {
		return nil, err
	}
	child.Env = append(child.Env, env...)
	if err := child.Start(); err != nil {
		return nil, err
	}
	w.child = child
	timer := time.NewTimer(launchTimeout)
	defer timer.Stop()
	select {
	case w.replica = <-w.ready:
		return w, nil
	case why := <-w.gone:
		return nil, fmt.Errorf("the worker ended: %s", why)
	case <-timer.C:
		return nil, fmt.Errorf("the worker was not ready after %s", launchTimeout)
	}
}

// Ready, Done, Leaving and Gone implement worker.Events.
func (w *workerLink) Ready(r worker.Replica) { w.ready <- r }

// Done wakes the caller of a batch.
func (w *workerLink) Done(_ worker.Replica, res *api.BatchResult) {
	w.done[w.slotOf[res.ID%pendingIDs]] <- res.Code
}

// FirstOutput implements worker.Events.
func (w *workerLink) FirstOutput(worker.Replica, uint64, int64) {}

// Leaving does not happen: this worker is never told to stop.
func (w *workerLink) Leaving(worker.Replica, string) {}

// Gone wakes all callers.
func (w *workerLink) Gone(_ worker.Replica, end worker.End) {
	w.gone <- end.Reason
	for _, c := range w.done {
		select {
		case c <- api.ReplicaLost:
		default:
		}
	}
}

func (w *workerLink) call(slot int) error {
	data := w.request[slot]
	if len(data) >= inPlace {
		if s, _ := w.replica.(worker.Reserver).Reserve(len(data), nil); s != nil {
			defer s.Free()
			data = s.Bytes()
			copy(data, w.request[slot])
		}
	}
	w.queries[slot].Inputs[0].Data = data
	w.mu.Lock()
	w.last++
	w.batches[slot].ID = w.last
	w.slotOf[w.last%pendingIDs] = slot
	err := w.replica.Send(&w.batches[slot])
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if code := <-w.done[slot]; code != api.OK {
		return fmt.Errorf("the batch ended with %s: %s", code, w.replica.Stats().LastError)
	}
	return nil
}

func (w *workerLink) answer(slot int) []byte { return w.queries[slot].Outputs[0].Data }

func (w *workerLink) close() error {
	var err error
	if w.replica != nil {
		w.replica.Drain()
	} else if w.child != nil {
		err = w.child.Process.Kill()
	}
	if w.child != nil {
		if e := w.child.Wait(); w.replica != nil {
			err = errors.Join(err, e)
		}
	}
	if w.hub != nil {
		err = errors.Join(err, w.hub.Close())
	}
	if w.dir != "" {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

// childCommand returns a command that runs this program in another role. The child ends when its socket does.
func childCommand(role string, load Load) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), roleVariable+"="+role, fmt.Sprintf("%s=%d %d %d", loadVariable, load.RequestBytes, load.AnswerBytes, load.InFlight))
	c.Stderr = os.Stderr
	return c, nil
}

// serveAsWorker is the main function of the child.
func serveAsWorker() error {
	var load Load
	if _, err := fmt.Sscan(os.Getenv(loadVariable), &load.RequestBytes, &load.AnswerBytes, &load.InFlight); err != nil {
		return fmt.Errorf("%s=%q: %w", loadVariable, os.Getenv(loadVariable), err)
	}
	switch role := os.Getenv(roleVariable); role {
	case "socket":
		return socketWorker(load)
	case "ring":
		return ringWorker(load)
	case "worker":
		return xebec.Serve(func(_ context.Context, b *xebec.Batch) error {
			from, to := b.InputRaw("input"), b.OutputRaw("output")
			for i := range b.Len() {
				copy(to[i*load.AnswerBytes:(i+1)*load.AnswerBytes], from[i*load.RequestBytes:])
			}
			return nil
		})
	default:
		return fmt.Errorf("%s=%q: expected socket, ring or worker", roleVariable, role)
	}
}
