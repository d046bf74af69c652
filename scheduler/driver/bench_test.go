package driver

import (
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// loopback answers every batch before Send returns.
type loopback struct {
	l   *Lane
	id  scheduler.ReplicaID
	res api.BatchResult
}

func (r *loopback) Send(b *api.Batch) error {
	r.res = api.BatchResult{ID: b.ID, EvalNanos: 1000}
	r.l.BatchDone(r.id, &r.res)
	return nil
}

func (r *loopback) Kill(string) {}

// future is a pooled query with one waiter.
type future struct {
	scheduler.Item
	done  chan struct{}
	alone [1]*scheduler.Item
}

func newFuture() *future {
	f := &future{done: make(chan struct{}, 1)}
	f.Owner = f
	f.alone[0] = &f.Item
	return f
}

func (f *future) Answered(*scheduler.Item, api.Code) {}
func (f *future) Released(*scheduler.Item, api.Code) { f.done <- struct{}{} }

func (f *future) call(c *Clock, l *Lane) {
	now := c.Now()
	f.Query = api.Query{Arrived: now, Deadline: now + hour, Expires: now + hour}
	l.Submit(&f.Item)
	<-f.done
}

// callCorked is call as a poller of connections does it.
func (f *future) callCorked(c *Clock, l *Lane, cork *Cork) {
	now := c.Now()
	f.Query = api.Query{Arrived: now, Deadline: now + hour, Expires: now + hour}
	l.SubmitAll(f.alone[:], cork)
	cork.Release()
	<-f.done
}

func newLoopback(tb testing.TB) (*Clock, *Lane) {
	c := NewClock()
	tb.Cleanup(c.Close)
	l := NewLane(scheduler.DefaultConfig(), c)
	l.AddFunction(1)
	l.AddReplica(1, &loopback{l: l, id: 1}, 0)
	return c, l
}

// BenchmarkSubmit measures one query from Submit until its waiter runs again.
func BenchmarkSubmit(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		c, l := newLoopback(b)
		f := newFuture()
		b.ReportAllocs()
		for b.Loop() {
			f.call(c, l)
		}
	})
	b.Run("alone, corked", func(b *testing.B) {
		c, l := newLoopback(b)
		f := newFuture()
		var cork Cork
		b.ReportAllocs()
		for b.Loop() {
			f.callCorked(c, l, &cork)
		}
	})
	b.Run("64 at a time, a worker goroutine", func(b *testing.B) {
		c := NewClock()
		b.Cleanup(c.Close)
		l := NewLane(scheduler.DefaultConfig(), c)
		l.AddFunction(1)
		quit := make(chan struct{})
		var workers sync.WaitGroup
		w := &worker{l: l, id: 1, batches: make(chan *api.Batch, 2), quit: quit,
			pause: func() time.Duration { return 0 }, dies: func() bool { return false }}
		workers.Add(1)
		go func() {
			defer workers.Done()
			w.run()
		}()
		l.AddReplica(1, w, 0)
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for f := newFuture(); pb.Next(); {
				f.call(c, l)
			}
		})
		close(quit)
		workers.Wait()
		b.ReportMetric(float64(l.BatchSize().Sum())/float64(l.BatchSize().Count()), "queries/batch")
	})
}
