package local_test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// load sends batches to one worker that copies fixed tensors. It allocates nothing while it runs.
type load struct {
	tb      testing.TB
	r       worker.Replica
	ready   chan worker.Replica
	done    chan struct{}
	gone    chan struct{}
	ended   func()
	batches []*api.Batch // one for each that may be outstanding, used in turn
	last    uint64
	failed  api.BatchResult
}

func (l *load) Ready(r worker.Replica) { l.ready <- r }
func (l *load) Done(_ worker.Replica, res *api.BatchResult) {
	if res.Code != api.OK {
		l.failed = *res
	}
	l.done <- struct{}{}
}
func (l *load) FirstOutput(worker.Replica, uint64, int64) {}
func (l *load) Leaving(worker.Replica, string)            {}
func (l *load) Gone(worker.Replica, worker.End)           { close(l.gone) }

// launcher starts a copying worker and returns a function that waits for its end after it was drained.
type launcher func(tb testing.TB, socket, token string, env []string) (ended func())

// inThisProcess launches a worker of the Go binding as a goroutine.
func inThisProcess(ring bool, more ...xebec.Option) launcher {
	return func(tb testing.TB, socket, token string, _ []string) func() {
		options := append([]xebec.Option{xebec.WithLaunch(xebec.Launch{Socket: socket, Token: token, Model: workertest.Model.Name, Version: workertest.Model.Version})}, more...)
		if !ring {
			options = append(options, xebec.WithSocketDescriptors())
		}
		served := make(chan error, 1)
		go func() { served <- xebec.Serve(copying, options...) }()
		return func() {
			if err := <-served; err != nil {
				tb.Errorf("the worker: %v", err)
			}
		}
	}
}

func copying(_ context.Context, b *xebec.Batch) error {
	copy(b.OutputRaw("out"), b.InputRaw("in"))
	return nil
}

// inItsOwn launches the same worker in a process.
func inItsOwn(tb testing.TB, _, _ string, env []string) func() {
	cmd := exec.Command("/proc/self/exe")
	p := workertest.StartProcess(tb, cmd, append(env, envRole+"="+roleCopying))
	return func() {
		if err := p.Wait(); err != nil {
			tb.Errorf("the worker: %v", err)
		}
	}
}

func startLoad(tb testing.TB, poller local.Poller, launch launcher, queries, itemBytes, depth int) *load {
	tb.Helper()
	g := workertest.NewHub(tb, poller, 0)
	shape := []int64{int64(itemBytes)}
	sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("in", api.Uint8, shape...)}, Outputs: []api.TensorSpec{workertest.Spec("out", api.Uint8, shape...)}}
	l := &load{tb: tb, ready: make(chan worker.Replica, 1), done: make(chan struct{}, depth), gone: make(chan struct{})}
	env, _, err := g.Transport.Expect(worker.Expectation{Replica: 1, Model: workertest.Model, Signature: sig, Depth: depth, BatchHint: queries, Events: l})
	if err != nil {
		tb.Fatal(err)
	}
	l.ended = launch(tb, g.Socket, lookup(env, "XEBEC_TOKEN"), env)
	l.r = <-l.ready
	for range depth {
		b := &api.Batch{}
		for range queries {
			b.Queries = append(b.Queries, &api.Query{Inputs: []api.Value{{Data: make([]byte, itemBytes)}}, Deadline: api.Never})
		}
		l.batches = append(l.batches, b)
	}
	return l
}

func (l *load) send() {
	b := l.batches[l.last%uint64(len(l.batches))]
	l.last++
	b.ID = l.last
	if err := l.r.Send(b); err != nil {
		l.tb.Fatal(err)
	}
}

func (l *load) wait() {
	<-l.done
	if l.failed.Code != api.OK {
		l.tb.Fatalf("%+v", l.failed)
	}
}

func (l *load) one() {
	l.send()
	l.wait()
}

func (l *load) stop() {
	l.r.Drain()
	<-l.gone
	l.ended()
}

// BenchmarkBatches measures round trips of batches of one query, with two outstanding.
func BenchmarkBatches(b *testing.B) {
	const depth = 2
	for _, poller := range workertest.Pollers {
		for _, where := range []struct {
			name   string
			launch launcher
		}{{"goroutine", inThisProcess(true)}, {"process", inItsOwn}} {
			for _, n := range []int{64, 8 << 10, 600 << 10} {
				b.Run(fmt.Sprintf("%s/%s/%dB", poller, where.name, n), func(b *testing.B) {
					l := startLoad(b, poller, where.launch, 1, n, depth)
					b.SetBytes(int64(2 * n))
					b.ReportAllocs()
					for b.Loop() {
						if l.last >= depth {
							l.wait()
						}
						l.send()
					}
					for range min(l.last, depth) {
						l.wait()
					}
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
					l.stop()
				})
			}
		}
	}
}
