package planner

import (
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// wishes is a stub of PolicySource.
type wishes struct {
	counted uint64
	gains   map[int]float64 // by candidate
	wished  []uint64        // by candidate
}

func (w *wishes) Counted(int) uint64 { return w.counted }

func (w *wishes) Gain(_, candidate int) (float64, bool) {
	gain, ok := w.gains[candidate]
	return gain, ok
}

func (w *wishes) Wished(_, candidate int) uint64 { return w.wished[candidate] }

// TestCollector checks that sleeping models are left out, that a candidate without a replica is skipped while another
// has one, and that rates are derived from counts.
func TestCollector(t *testing.T) {
	top := &Topology{
		Functions: []FunctionInfo{
			{Key: 1, Name: "asleep", Candidates: []CandidateInfo{{Model: 0, Queue: 1, Gain: 1}}},
			{Key: 2, Name: "f", Weight: 2, SLONanos: 20e6, Candidates: []CandidateInfo{{Model: 1, Queue: 1, Gain: 1}, {Model: 2, Queue: 1, Gain: 0.9}}},
		},
		Models: []ModelInfo{{Key: 10, Device: -1}, {Key: 11, Device: -1, Cost: 3}, {Key: 12, Device: 0}}, Devices: []string{"gpu0"},
	}
	policy := wishes{gains: map[int]float64{}}
	c := NewCollector(top, &policy)
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
		policy.counted += 20
		in = c.Input()
	}
	if len(in.Models) != 2 || len(in.Functions) != 1 || c.Functions[0] != 1 || c.Models[0] != 1 || c.Models[1] != 2 {
		t.Fatalf("functions %v and models %v are awake, want [1] and [1 2]", c.Functions, c.Models)
	}
	f := in.Functions[0]
	if f.Key != 2 || f.Rate < 5900 || f.Rate > 6100 {
		t.Errorf("function %+v, want rate 6,000: 1,000 and 3,000 queries/s at its models, 2,000 refused before", f)
	}
	if f.Candidates[0].Model != -1 || f.Candidates[1].Model != 1 {
		t.Errorf("candidates %+v, want models -1 (no replica) and 1", f.Candidates)
	}
	m := in.Models[1]
	if m.Device != 0 || m.InputBytes != 100 || len(m.Replicas) != 1 || m.Replicas[0].Cap != 8 {
		t.Errorf("model %+v, want one serving replica on device 0", m)
	}
	if q := m.Queues; q[0].Function != -1 || q[1].Function != 0 || q[1].SLONanos != 20e6 || q[1].Queued != 7 || !q[2].Free {
		t.Errorf("wrong sub-queues %+v", q)
	}
}

// TestCollectorFollowsPolicy checks that gains are the declared ones until the policy states others, and that shares
// follow the policy's recent wishes. The number of queries depends on the mode: with Shares it counts the queries that
// reached a machine or were refused, so cache hits do not count; with All it counts the queries that arrived.
func TestCollectorFollowsPolicy(t *testing.T) {
	for _, mode := range []Mode{Shares, All} {
		top := &Topology{
			Functions: []FunctionInfo{{Key: 1, Mode: mode, Background: true, Candidates: []CandidateInfo{{Model: 0, Gain: 0.6}, {Model: 1, Gain: 0.2}}}},
			Models:    []ModelInfo{{Key: 10, Device: -1}, {Key: 11, Device: -1}},
		}
		policy := &wishes{gains: map[int]float64{}, wished: make([]uint64, 2)}
		c := NewCollector(top, policy)
		epochs := uint64(0)
		run := func(times int, first, second, counted uint64) Function {
			var in *Input
			for range times {
				epochs++
				now := api.Nanos(epochs) * 10e6
				c.Begin(now, 10e6)
				for m := range 2 {
					c.Model(m, &scheduler.Snapshot{Now: now, Functions: []scheduler.FunctionSnapshot{{Index: 0, Arrived: 3 * epochs}}})
				}
				in = c.Input()
				policy.wished[0] += first
				policy.wished[1] += second
				policy.counted += counted
			}
			return in.Functions[0]
		}
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 0.05*want {
				t.Errorf("mode %d, %s: %v, want %v", mode, what, got, want)
			}
		}
		f := run(1, 40, 10, 5)
		near("the declared gain", f.Candidates[0].Gain, 0.6)
		if !f.Background || f.Mode != mode {
			t.Errorf("function %+v, want background and the declared mode", f)
		}
		if mode == Shares {
			near("the share before any wish", f.Candidates[0].Share, 0.75)
		}
		f = run(100, 40, 10, 5)
		near("the rate", f.Rate, map[Mode]float64{Shares: 600 + 500, All: 500}[mode])
		if mode == All {
			policy.gains[1] = 0.9
			f = run(1, 0, 0, 0)
			near("the gain that the policy does not state", f.Candidates[0].Gain, 0.6)
			near("the gain that the policy states", f.Candidates[1].Gain, 0.9)
			continue
		}
		near("the first share", f.Candidates[0].Share, 0.8)
		near("the second share", f.Candidates[1].Share, 0.2)
		f = run(500, 5, 45, 5)
		near("the first share after the policy changed", f.Candidates[0].Share, 0.1)
		policy.wished[0], policy.wished[1] = 0, 0 // the counters restarted
		f = run(500, 25, 25, 5)
		near("the first share after the counters restarted", f.Candidates[0].Share, 0.5)
	}
}
