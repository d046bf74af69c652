package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// Random makes a short world from a seed: all kinds of models, replicas, functions, traffic and faults. All checks are
// on.
func Random(seed uint64) *Spec {
	g := gen{stream(seed, 7)}
	s := &Spec{
		Seed: seed, Policy: one(g, Planned, Planned, Unplanned, RandomPlans), Check: true,
		Duration:   api.Nanos(g.between(100e6, 500e6)),
		EpochNanos: one(g, int64(0), 0, 1e6, 30e6),
		LateNanos:  one(g, int64(0), 1, 5e6),
		JumpNanos:  one(g, int64(0), 0, 0, 3e9),
		Devices:    one(g, 0, 0, 1, 2),
		CancelPart: one(g, 0.0, 0, 0.02, 0.2),
		FailPart:   one(g, 0.0, 0, 0.01, 0.3),
		RefusePart: one(g, 0.0, 0, 0, 0.01),
	}
	for i := range 1 + g.IntN(4) {
		s.Models = append(s.Models, g.model(s, i))
	}
	for i := range 1 + g.IntN(5) {
		s.Functions = append(s.Functions, g.function(s, i))
	}
	g.streams(s, gen{stream(seed, 8)})
	return s
}

// streams makes some models of a part of the worlds answer in streams. It draws from a stream of its own, so that the
// other worlds do not depend on it.
func (gen) streams(s *Spec, g gen) {
	if g.IntN(3) > 0 {
		return
	}
	for i := range s.Models {
		m := &s.Models[i]
		if g.IntN(2) > 0 {
			continue
		}
		m.Config.Streams, m.Config.Batching.Pad = true, false
		m.Stream = StreamSpec{
			Places: one(g, 1, 2, 3, 8), LengthNanos: one(g, 0, g.between(0, 10e6), g.between(0, 300e6)), Sigma: one(g, 0, 0.5, 1.5),
			SinglePart: one(g, 0.0, 0, 0.2), LeavePart: one(g, 0.0, 0, 0.1, 0.6), SilenceNanos: g.between(1e6, 200e6),
		}
	}
}

// gen draws the parts of a world.
type gen struct{ *rand.Rand }

func one[T any](g gen, from ...T) T { return from[g.IntN(len(from))] }

func (g gen) between(least, most int64) int64 { return least + g.Int64N(most-least+1) }

func (g gen) model(s *Spec, i int) ModelSpec {
	m := ModelSpec{
		Name: fmt.Sprintf("m%d", i), Cost: one(g, 0.0, 1, 5), Device: -1,
		Config: scheduler.Config{
			Depth: one(g, 0, 0, 1, 3), MaxQueue: one(g, 0, 5, 50, 1000), MaxQueueBytes: one(g, 0, 0, 5000),
			Retry: g.IntN(3) > 0, Hedge: true, TimeoutNanos: one(g, int64(0), 0, 1500e6),
			Batching: scheduler.Batching{
				Policy: one(g, scheduler.AIMD, scheduler.AIMD, scheduler.AIMD, scheduler.Fixed, scheduler.None), MaxBatch: one(g, 0, 1, 7, 64),
				MaxBatchBytes: one(g, 0, 0, 0, 300), HoldNanos: one(g, int64(0), 0, 0, 1e6, 3e6),
				ObjectiveNanos: one(g, int64(0), 2e6, 10e6, 50e6), Pad: g.IntN(12) == 0,
			},
		},
	}
	if m.Config.Batching.Pad {
		m.Config.Batching.MaxBatch = 8
	}
	if s.Devices > 0 && g.IntN(3) > 0 {
		m.Device = g.IntN(s.Devices)
		m.Config.Shared = true
	}
	fixed, each := g.between(0, 3e6), g.between(1e3, 500e3)
	if g.IntN(3) == 0 {
		m.Scale = g.scale(s, i, g.replica(s, fixed, each))
		return m
	}
	for range 1 + g.IntN(4) {
		m.Replicas = append(m.Replicas, g.replica(s, fixed, each))
	}
	if g.IntN(3) == 0 {
		g.lateModel(s, &m)
	}
	return m
}

// lateModel makes a model of several steady replicas, whose profiles are exact, until one of them is unusually late.
func (g gen) lateModel(s *Spec, m *ModelSpec) {
	steady := m.Replicas[0]
	steady.Sigma, steady.AtNanos, steady.StallEvery, steady.Faults = one(g, 0, 0.05), 0, 0, nil
	m.Replicas = append(m.Replicas[:0], steady, steady, steady)
	for range 1 + g.IntN(3) {
		r := &m.Replicas[g.IntN(len(m.Replicas))]
		r.Faults = append(r.Faults[:len(r.Faults):len(r.Faults)], Fault{
			Kind: one(g, Slow, Slow, Hang), AtNanos: g.between(int64(s.Duration)/3, int64(s.Duration)), ForNanos: g.between(1e6, 50e6), Factor: 30,
		})
	}
}

// scale makes a model's replicas scale.
func (g gen) scale(s *Spec, model int, r ReplicaSpec) *ScaleSpec {
	most := 1 + g.IntN(5)
	c := &ScaleSpec{
		Bounds: autoscale.Config{
			Min: min(most, g.IntN(3)), Max: most, IdleNanos: g.between(0, 100e6), WindowNanos: int64(api.MinScaleWindow), DelayNanos: g.between(0, 200e6),
			Utilization: one(g, 0.1, 0.7, 1), Up: one(g, 1.0, 2, 100), Down: one(g, 1.0, 2, 100),
		},
		TickNanos: g.between(1e6, 60e6), Replica: r, StartSigma: one(g, 0, 0.5), Initial: g.IntN(most + 1),
		UnknownPart: one(g, 0.0, 0, 0.3), FailPart: one(g, 0.0, 0, 0.3),
	}
	c.Scaler = func() Scaler { return autoscale.New() }
	if g.IntN(2) == 0 {
		c.Scaler = func() Scaler { return randomScaler{gen{stream(s.Seed, uint64(400_000+model))}} }
	}
	return c
}

// randomScaler is a scaler that wants random permitted numbers.
type randomScaler struct{ gen }

func (r randomScaler) Decide(s *autoscale.Sample) autoscale.Decision {
	least := s.Config.Min
	if inUse(s) {
		least = max(least, 1)
	}
	n := least + r.IntN(s.Config.Max-least+1)
	if s.Unknown {
		n = max(s.Wanted, s.Config.Min)
	}
	return autoscale.Decision{Replicas: n}
}

func (g gen) replica(s *Spec, fixed, each int64) ReplicaSpec {
	r := ReplicaSpec{
		FixedNanos: fixed, EachNanos: each, Sigma: one(g, 0, 0.05, 0.5), StartNanos: g.between(1e6, 300e6),
		AtNanos: one(g, 0, 0, g.between(0, int64(s.Duration))), Depth: one(g, 0, 0, 0, 1, 4),
	}
	if g.IntN(4) == 0 { // a different one
		r.FixedNanos, r.EachNanos = 2*fixed, 3*each
	}
	if g.IntN(4) == 0 {
		r.StallEvery, r.StallNanos = 100e6, g.between(1e6, 50e6)
	}
	for g.IntN(3) == 0 && len(r.Faults) < 4 {
		r.Faults = append(r.Faults, Fault{
			Kind: one(g, Slow, Crash, Crash, Hang, Drain), AtNanos: g.between(0, int64(s.Duration)), ForNanos: g.between(1e6, 200e6), Factor: 3,
		})
	}
	return r
}

func (g gen) function(s *Spec, i int) FunctionSpec {
	f := FunctionSpec{
		Name: fmt.Sprintf("f%d", i), Weight: one(g, 0, 1, 1, 0.1, 5, 100), SLONanos: one(g, int64(0), 2e6, 20e6, 20e6, 100e6, 1e9),
		TTLNanos: one(g, int64(0), 0, 50e6, 1e9), Budget: one(g, 0.0, 0, 0, 500), Mode: one(g, planner.One, planner.All, planner.Shares), Background: g.IntN(6) == 0,
		ColdStartNanos: one(g, int64(0), 0, 50e6, 500e6), Bytes: int(one(g, 0, 8, g.between(0, 400))), LateBy: one(g, int64(0), 0, 100e6),
	}
	from := g.IntN(len(s.Models))
	for j := range 1 + g.IntN(len(s.Models)) {
		f.Candidates = append(f.Candidates, CandidateSpec{Model: (from + j) % len(s.Models), Gain: g.Float64(), Share: one(g, 0, g.Float64())})
	}
	for range 1 + g.IntN(2) {
		f.Traffic = append(f.Traffic, g.traffic())
	}
	return f
}

func (g gen) traffic() Traffic {
	t := Traffic{
		Shape: one(g, Steady, Square, Switching, Daily, Closed, Recorded, Ramp), Rate: float64(g.between(0, 1500)), Peak: float64(g.between(0, 8000)),
		Period: api.Nanos(g.between(5e6, 300e6)), Duty: 0.1 + 0.8*g.Float64(),
		Clients: 1 + g.IntN(40), ThinkNanos: one(g, int64(0), 1e6, 10e6),
	}
	if t.Shape == Recorded {
		at := api.Nanos(0)
		for range g.IntN(300) {
			at += api.Nanos(one(g, 0, 0, g.between(0, 5e6)))
			t.Times = append(t.Times, at)
		}
	}
	return t
}

// plan is a random plan that no planner would make.
func (g gen) plan(m *model) *scheduler.Plan {
	p := &scheduler.Plan{Execution: one(g, scheduler.Whole, scheduler.Whole, scheduler.Split, scheduler.Stream)}
	for range g.IntN(len(m.ledger.subs) + 2) {
		p.Functions = append(p.Functions, scheduler.FunctionPlan{Weight: one(g, 0.0, 0, 0.5, 20, 1000), Shed: one(g, 0.0, 0, 0, 0.3, 1)})
	}
	for _, place := range m.places {
		if place.current == nil || g.IntN(3) == 0 {
			continue
		}
		r := scheduler.ReplicaPlan{ID: place.current.id, Cap: one(g, 0, 0, 1, 3, 20), HoldNanos: one(g, int64(0), 0, -1, 2e6), ObjectiveNanos: one(g, int64(0), 0, 5e6, 100e6)}
		for range one(g, 0, g.IntN(len(m.ledger.subs)+2)) {
			r.Shares = append(r.Shares, one(g, 0.0, 0, 1, 1, 30))
		}
		p.Replicas = append(p.Replicas, r)
	}
	return p
}
