package sim

import (
	"fmt"
	"math"

	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// defaultEpochNanos is the time between plans.
const defaultEpochNanos = int64(10e6)

// planning does what an epoch of the driver does in the gateway, with the same collector and planner.
type planning struct {
	w          *world
	epochNanos int64
	collector  *planner.Collector
	planner    *planner.Planner
	out        planner.Output
	snapshot   scheduler.Snapshot
	wild       gen
}

func newPlanning(w *world) *planning {
	p := &planning{w: w, epochNanos: w.spec.EpochNanos, planner: planner.New(), wild: gen{stream(w.spec.Seed, 11)}}
	if p.epochNanos <= 0 {
		p.epochNanos = defaultEpochNanos
	}
	t := &planner.Topology{}
	for i, f := range w.functions {
		info := planner.FunctionInfo{
			Key: uint64(i + 1), Name: f.spec.Name, Weight: f.spec.Weight, SLONanos: f.spec.SLONanos, Budget: f.spec.Budget, Mode: f.spec.Mode,
			Background: f.spec.Background,
		}
		for j, c := range f.spec.Candidates {
			info.Candidates = append(info.Candidates, planner.CandidateInfo{Model: int32(c.Model), Queue: f.queues[j], Gain: c.Gain})
		}
		t.Functions = append(t.Functions, info)
	}
	for i, m := range w.models {
		b := m.ledger.cfg.Batching
		t.Models = append(t.Models, planner.ModelInfo{
			Key: uint64(i + 1), Cost: m.spec.Cost, Device: int32(m.spec.Device), HoldNanos: b.HoldNanos, MaxBatch: b.MaxBatch,
			Pinned: b.Pad || b.Policy != scheduler.AIMD,
		})
	}
	for i := range w.devices {
		t.Devices = append(t.Devices, fmt.Sprintf("d%d", i))
	}
	p.collector = planner.NewCollector(t, policies{w})
	return p
}

// policies gives the planner the counts that the gateway and its policies would.
type policies struct{ *world }

func (p policies) Counted(function int) uint64 {
	if f := p.functions[function]; f.spec.Mode != planner.All {
		return f.refused
	}
	return p.functions[function].counter
}

// Gain is the declared one, because nothing is learned here.
func (policies) Gain(int, int) (float64, bool) { return 0, false }

func (p policies) Wished(function, candidate int) uint64 {
	return p.functions[function].wished[candidate]
}

// epoch makes a plan from the engines' snapshots and puts it in force.
func (p *planning) epoch() {
	w := p.w
	if w.spec.Policy == RandomPlans {
		for _, m := range w.models {
			w.setPlan(m, p.wild.plan(m))
		}
		return
	}
	p.collector.Begin(w.now, p.epochNanos)
	for i, m := range w.models {
		m.engine.Snapshot(&p.snapshot)
		p.snapshot.Now = w.now
		p.collector.Model(i, &p.snapshot)
	}
	in := p.collector.Input()
	p.planner.Plan(in, &p.out)
	w.checkPlan(in, &p.out)
	if w.failed != nil {
		return
	}
	for i := range p.out.Functions {
		f := w.functions[p.collector.Functions[i]]
		plan := &p.out.Functions[i]
		f.parts, f.refuse = append(f.parts[:0], plan.Evaluate...), plan.Refused
		if f.limits = nil; plan.Limits != nil {
			f.limits = append([]float64(nil), plan.Limits...)
		}
	}
	for i := range p.out.Models {
		w.setPlan(w.models[p.collector.Models[i]], &p.out.Models[i].Plan)
	}
	for i := range p.out.Devices {
		for _, t := range p.out.Devices[i].Turns {
			m := w.models[p.collector.Models[t.Model]]
			w.devices[i].arbiter.SetTurn(m.tenant, t.Nanos)
		}
	}
}

// setPlan puts a plan in force if it differs from the previous one.
func (w *world) setPlan(m *model, p *scheduler.Plan) {
	if !m.ledger.samePlan(p) {
		m.ledger.setPlan(p)
		if w.now >= w.spec.Warm && w.now < w.spec.Duration {
			w.result.PlanChanges++
		}
		w.step(m, &Input{Kind: SetPlan, Plan: p})
	}
}

// checkPlan checks a plan against what every plan promises.
func (w *world) checkPlan(in *planner.Input, out *planner.Output) {
	if len(out.Functions) != len(in.Functions) || len(out.Models) != len(in.Models) || len(out.Devices) != len(in.Devices) {
		w.fail("a plan for %d functions, %d models and %d devices has %d, %d and %d",
			len(in.Functions), len(in.Models), len(in.Devices), len(out.Functions), len(out.Models), len(out.Devices))
		return
	}
	for i := range out.Functions {
		f, p := &in.Functions[i], &out.Functions[i]
		if len(p.Evaluate) != len(f.Candidates) {
			w.fail("plan: function %d has %d candidates and %d parts", i, len(f.Candidates), len(p.Evaluate))
			return
		}
		sum, cost := 0.0, 0.0
		for j, part := range p.Evaluate {
			if !(part >= 0 && part <= 1+1e-9) {
				w.fail("plan: function %d asks candidate %d for the part %v", i, j, part)
			}
			sum += part
			if at := f.Candidates[j].Model; at >= 0 {
				cost += part * f.Rate * in.Models[at].Cost
			}
		}
		if f.Mode != planner.All && sum > 1+1e-6 {
			w.fail("plan: function %d asks for %v of its queries, parts %v", i, sum, p.Evaluate)
		}
		for _, limit := range p.Limits {
			if !(limit >= 0 && limit <= 1) || f.Mode != planner.Shares || len(p.Limits) != len(f.Candidates) {
				w.fail("plan: function %d has the limits %v, for %d candidates", i, p.Limits, len(f.Candidates))
			}
		}
		if f.Budget > 0 && cost > f.Budget*(1+1e-6) {
			w.fail("plan: function %d would cost %v a second, its budget is %v", i, cost, f.Budget)
		}
	}
	for i := range out.Models {
		for j, fp := range out.Models[i].Plan.Functions {
			if math.IsNaN(fp.Weight) || !(fp.Shed >= 0 && fp.Shed <= 1) {
				w.fail("plan: model %d, sub-queue %d: %+v", i, j, fp)
			}
		}
	}
}
