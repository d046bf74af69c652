package planner

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// TestCollector: what sleeps is left out, a candidate without a replica stands back while another has one, and rates come
// from counts.
func TestCollector(t *testing.T) {
	top := &Topology{
		Functions: []FunctionInfo{
			{Key: 1, Name: "asleep", Candidates: []CandidateInfo{{Model: 0, Queue: 1, Gain: 1}}},
			{Key: 2, Name: "f", Weight: 2, SLONanos: 20e6, Candidates: []CandidateInfo{{Model: 1, Queue: 1, Gain: 1}, {Model: 2, Queue: 1, Gain: 0.9}}},
		},
		Models: []ModelInfo{{Key: 10, Device: -1}, {Key: 11, Device: -1, Cost: 3}, {Key: 12, Device: 0}}, Devices: []string{"gpu0"},
	}
	refused := uint64(0)
	c := NewCollector(top, func(f int) uint64 { return refused })
	snapshot := func(now api.Nanos, arrived uint64, replicas ...scheduler.ReplicaSnapshot) *scheduler.Snapshot {
		return &scheduler.Snapshot{Now: now, Replicas: replicas, Functions: []scheduler.FunctionSnapshot{
			{Index: 0}, {Index: 1, Attached: 2, Queued: 7, Arrived: arrived, ArrivedBytes: 100 * arrived}, {Index: -1},
		}}
	}
	var in *Input
	for epoch := range uint64(3) {
		now := api.Nanos(epoch+1) * 10e6
		c.Begin(now, 10e6)
		c.Model(1, snapshot(now, 10*epoch))
		c.Model(2, snapshot(now, 30*epoch, scheduler.ReplicaSnapshot{ID: 5, Learned: 8, Settled: true}, scheduler.ReplicaSnapshot{ID: 6, State: scheduler.Draining}))
		refused += 20
		in = c.Input()
	}
	if len(in.Models) != 2 || len(in.Functions) != 1 || c.Functions[0] != 1 || c.Models[0] != 1 || c.Models[1] != 2 {
		t.Fatalf("functions %v and models %v are awake", c.Functions, c.Models)
	}
	f := in.Functions[0]
	if f.Key != 2 || f.Rate < 5900 || f.Rate > 6100 {
		t.Errorf("the function is %+v: 1,000 and 3,000 queries/s come to its models, and 2,000 are refused before", f)
	}
	if f.Candidates[0].Model != -1 || f.Candidates[1].Model != 1 {
		t.Errorf("candidates %+v: the first has no replica, and the second is model 1 of the input", f.Candidates)
	}
	m := in.Models[1]
	if m.Device != 0 || m.InputBytes != 100 || len(m.Replicas) != 1 || m.Replicas[0].Cap != 8 {
		t.Errorf("the model is %+v: one of its replicas serves", m)
	}
	if q := m.Queues; q[0].Function != -1 || q[1].Function != 0 || q[1].SLONanos != 20e6 || q[1].Queued != 7 || !q[2].Free {
		t.Errorf("its sub-queues are %+v", q)
	}
}
