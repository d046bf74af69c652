package driver

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// tenantWorker evaluates batches on its own goroutine and checks that it is the only lane on the device.
type tenantWorker struct {
	lane    *Lane
	batches chan *api.Batch
	using   *atomic.Int32 // lanes with a batch on the device, one bit each
	bit     int32
	out     atomic.Int32
	t       *testing.T
}

func (w *tenantWorker) Send(b *api.Batch) error {
	if w.out.Add(1) == 1 {
		if others := w.using.Or(w.bit); others&^w.bit != 0 {
			w.t.Errorf("lanes %b use the device when %b begins to", others, w.bit)
		}
	}
	w.batches <- b
	return nil
}

func (w *tenantWorker) Kill(string) {}

func (w *tenantWorker) run() {
	for b := range w.batches {
		res := api.BatchResult{ID: b.ID, EvalNanos: 1000}
		if w.out.Add(-1) == 0 {
			w.using.And(^w.bit)
		}
		w.lane.BatchDone(1, &res)
	}
}

// TestLanesTakeTurns: lanes that share a device never use it at the same time, and each gets all its queries answered.
func TestLanesTakeTurns(t *testing.T) {
	const lanes, clients, each = 3, 4, 200
	c := NewClock()
	t.Cleanup(c.Close)
	dev := NewDevice()
	var using atomic.Int32
	var workers, asking sync.WaitGroup
	var all []*tenantWorker
	for i := range lanes {
		l := NewLane(scheduler.Config{Shared: true, Batching: scheduler.Batching{Policy: scheduler.Fixed, MaxBatch: 3}}, c)
		l.AttachDevice(dev)
		l.AddFunction(1)
		w := &tenantWorker{lane: l, batches: make(chan *api.Batch, 8), using: &using, bit: 1 << i, t: t}
		all = append(all, w)
		workers.Add(1)
		go func() { defer workers.Done(); w.run() }()
		l.AddReplica(1, w, 2)
		for range clients {
			asking.Add(1)
			go func() {
				defer asking.Done()
				for range each {
					k := newTicket(t, c, 0, hour, 0)
					l.Submit(&k.Item)
					k.want(api.OK, api.OK)
				}
			}()
		}
	}
	asking.Wait()
	for _, w := range all {
		w.lane.ReplicaGone(1, nil)
		w.lane.DetachDevice()
		close(w.batches)
	}
	workers.Wait()
	if _, _, ok := dev.device.Next(); ok {
		t.Error("a tenant still wants the device")
	}
}

// TestLeaveReleasesDevice: a lane that leaves during its turn passes the device on.
func TestLeaveReleasesDevice(t *testing.T) {
	c := NewClock()
	t.Cleanup(c.Close)
	dev := NewDevice()
	var lanes [2]*Lane
	var replicas [2]*manual
	var tickets [2]*ticket
	for i := range lanes {
		lanes[i] = NewLane(scheduler.Config{Shared: true}, c)
		lanes[i].AttachDevice(dev)
		lanes[i].AddFunction(1)
		replicas[i] = newManual()
		lanes[i].AddReplica(1, replicas[i], 0)
		tickets[i] = newTicket(t, c, 0, hour, 0)
		lanes[i].Submit(&tickets[i].Item)
	}
	b := <-replicas[0].batches
	select {
	case <-replicas[1].batches:
		t.Fatal("the second lane uses the device outside of its turn")
	default:
	}
	lanes[0].DetachDevice()
	other := <-replicas[1].batches
	lanes[1].BatchDone(1, &api.BatchResult{ID: other.ID})
	tickets[1].want(api.OK, api.OK)
	lanes[0].BatchDone(1, &api.BatchResult{ID: b.ID}) // it reports a turn that it no longer has, which is ignored
	tickets[0].want(api.OK, api.OK)
	for i := range lanes {
		lanes[i].ReplicaGone(1, nil)
	}
	lanes[1].DetachDevice()
}
