package sim

import (
	"testing"

	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// members are models of different cost and gain on one device; the last has the most gain for its time. In batches of
// 10 ms large does 2,000 queries/s, medium 9,000, small 23,750 and tiny 98,000.
func members(sloNanos int64) *Spec {
	s := &Spec{Seed: 1, Policy: Planned, Warm: 2e9, Duration: 5e9, Devices: 1}
	for _, m := range []ReplicaSpec{
		{FixedNanos: 2e6, EachNanos: 400e3}, {FixedNanos: 1e6, EachNanos: 100e3}, {FixedNanos: 500e3, EachNanos: 40e3}, {FixedNanos: 200e3, EachNanos: 10e3},
	} {
		m.Sigma = 0.05
		s.Models = append(s.Models, ModelSpec{
			SLONanos: sloNanos, Replicas: []ReplicaSpec{m},
			Config: scheduler.Config{Shared: true, Batching: scheduler.Batching{Policy: scheduler.AIMD, ObjectiveNanos: 10e6}},
		})
	}
	return s
}

// ensemble adds an ensemble of all of them. Full answers use all of the device's time at 1,507/s.
func (s *Spec) ensemble(load float64) *Spec {
	f := FunctionSpec{Name: "ensemble", SLONanos: 100e6, Mode: planner.All, Bytes: 8, Traffic: []Traffic{{Shape: Steady, Rate: load * 1507}}}
	for i, gain := range []float64{0.8, 0.75, 0.7, 0.6} {
		f.Candidates = append(f.Candidates, CandidateSpec{Model: i, Gain: gain})
	}
	s.Functions = append(s.Functions, f)
	return s
}

// TestEnsemblesDegradeGracefully: under any load every query is answered in time, and hardly later than with room for
// everything. What falls is the number of members per answer, and those with the least gain for their time go first.
func TestEnsemblesDegradeGracefully(t *testing.T) {
	worthBefore := 1.0
	var before [4]float64 // the part of the answers that each member contributed to
	for i := range before {
		before[i] = 1
	}
	for _, load := range []float64{0.5, 1, 1.5, 2, 3, 6} {
		s := members(100e6).ensemble(load)
		r, err := Run(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &r.Functions[0]
		if good := float64(f.Good) / float64(f.Offered); good < 0.999 {
			t.Errorf("load %v: %.4f of the queries are answered in time: %d refused, %d dropped, %d missed", load, good, f.Refused, f.Dropped, f.Missed)
		}
		if p99 := f.Quantile(0.99); p99 > 40e6 {
			t.Errorf("load %v: P99 %.1f ms, of an objective of 100", load, float64(p99)/1e6)
		}
		if partial := float64(f.Partial) / float64(f.Good); partial > 0.01 {
			t.Errorf("load %v: %.3f of the answers lack a member that was asked", load, partial)
		}
		worth := f.Gain / float64(f.Good)
		if worth > worthBefore+1e-3 || worth < 0.88 {
			t.Errorf("load %v: an answer is worth %.4f, and with less load %.4f", load, worth, worthBefore)
		}
		worthBefore = worth
		staying := false              // once a member contributes to some answers, more useful members must contribute to all
		for i, n := range f.Answers { // from the least gain for its time on
			part := float64(n) / float64(f.Good)
			if part > before[i]+0.01 {
				t.Errorf("load %v: member %d contributes to %.3f of the answers, with less load to %.3f", load, i, part, before[i])
			}
			if staying && part < 0.98 || i == 3 && part < 0.999 {
				t.Errorf("load %v: the members contribute to %v of %d answers: want the least useful to go first", load, f.Answers, f.Good)
			}
			staying = staying || part > 0.05
			before[i] = part
		}
	}
}

// TestEnsemblesWithOwnReplicas lose those members first that have the least to give, and none that have room.
func TestEnsemblesWithOwnReplicas(t *testing.T) {
	for _, load := range []float64{1, 2, 8} {
		s := members(100e6).ensemble(load)
		s.Devices = 0
		for i := range s.Models {
			s.Models[i].Device, s.Models[i].Config.Shared = -1, false
		}
		r, err := Run(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &r.Functions[0]
		if f.Good < f.Offered || f.Quantile(0.99) > 40e6 {
			t.Errorf("load %v: %d of %d in time, P99 %.1f ms", load, f.Good, f.Offered, float64(f.Quantile(0.99))/1e6)
		}
		seconds := float64(s.Duration-s.Warm) / 1e9
		for i := range s.Models {
			offered, capacity := float64(f.Offered)/seconds, s.Models[i].Capacity(10e6)
			if got, want := float64(f.Answers[i])/seconds, min(offered, 0.9*capacity); got < 0.93*want || got > 1.07*want {
				t.Errorf("load %v: member %d answers %.0f/s, want about %.0f of %.0f/s", load, i, got, want, offered)
			}
		}
	}
}

// TestShadowLeavesLiveUnaffected: a function that shares a device or a model with a background function answers as much
// as without it, at any load, and hardly later.
func TestShadowLeavesLiveUnaffected(t *testing.T) {
	for _, load := range []float64{0.5, 0.9, 3} {
		for _, model := range []int{0, 1} { // the same model, and another one on the same device
			run := func(shadowed float64) (live, shadow *FunctionResult) {
				s := members(100e6)
				s.Models = s.Models[:2]
				rate := load * s.Models[0].Capacity(10e6)
				s.Functions = []FunctionSpec{
					{Name: "live", Weight: 1, SLONanos: 100e6, Bytes: 8, Candidates: []CandidateSpec{{Gain: 1}}, Traffic: []Traffic{{Shape: Steady, Rate: rate}}},
					{Name: "shadow", Weight: 0.01, SLONanos: 100e6, Bytes: 8, Mode: planner.All, Background: true, Candidates: []CandidateSpec{{Model: model, Gain: 1}},
						Traffic: []Traffic{{Shape: Steady, Rate: shadowed * rate}}},
				}
				r, err := Run(s, nil)
				if err != nil {
					t.Fatal(err)
				}
				return &r.Functions[0], &r.Functions[1]
			}
			alone, _ := run(0)
			live, shadow := run(0.3)
			if float64(live.Good) < 0.995*float64(alone.Good) {
				t.Errorf("load %v, model %d: %d of %d in time beside a shadow, %d of %d alone", load, model, live.Good, live.Offered, alone.Good, alone.Offered)
			}
			if a, b := alone.Quantile(0.99), live.Quantile(0.99); b > a+20e6 {
				t.Errorf("load %v, model %d: P99 %.1f ms beside a shadow, %.1f alone", load, model, float64(b)/1e6, float64(a)/1e6)
			}
			part := float64(shadow.Good) / float64(shadow.Offered)
			if load == 0.5 && part < 0.95 || load > 0.5 && part > 0.05 {
				t.Errorf("load %v, model %d: the shadow evaluates %.3f of its queries", load, model, part)
			}
		}
	}
}

// TestSharesGoWhereThereIsRoom: if a policy wishes nearly everything for one model, beyond its capacity, the others
// answer too, in time.
func TestSharesGoWhereThereIsRoom(t *testing.T) {
	for _, policy := range []Policy{Planned, Unplanned} {
		s := members(100e6)
		s.Devices, s.Policy = 0, policy
		for i := range s.Models {
			s.Models[i].Device, s.Models[i].Config.Shared = -1, false
		}
		s.Functions = []FunctionSpec{{
			Name: "bandit", SLONanos: 100e6, Bytes: 8, Mode: planner.Shares, Traffic: []Traffic{{Shape: Steady, Rate: 6000}},
			Candidates: []CandidateSpec{{Model: 0, Gain: 0.9, Share: 0.9}, {Model: 1, Gain: 0.7, Share: 0.07}, {Model: 2, Gain: 0.6, Share: 0.03}},
		}}
		r, err := Run(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &r.Functions[0]
		good := float64(f.Good) / float64(f.Offered)
		if policy == Unplanned {
			if good > 0.6 {
				t.Errorf("without a plan %.3f are answered in time: this world is too easy", good)
			}
			continue
		}
		if good < 0.99 || f.Quantile(0.99) > 60e6 {
			t.Errorf("%.3f are answered in time, P99 %.1f ms; by model %v of %d", good, float64(f.Quantile(0.99))/1e6, f.Answers, f.Offered)
		}
		if first := float64(f.Answers[0]) / 3; first < 0.8*0.9*2000 {
			t.Errorf("the policy's favourite answers %.0f/s of the 1,800 that are planned", first)
		}
	}
}
