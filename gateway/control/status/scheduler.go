package status

import (
	"context"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// Scheduler describes the last plan and the numbers that it follows from.
func (r *Reader) Scheduler(context.Context) (api.SchedulerStatus, error) {
	st := api.SchedulerStatus{
		State: api.SchedulerOff, Functions: []api.FunctionPlanStatus{}, Models: []api.ModelPlanStatus{}, Devices: []api.DevicePlanStatus{},
	}
	if r.cfg.Epoch == nil {
		return st, nil
	}
	r.cfg.Epoch.Report(func(es driver.EpochStatus, t *driver.Topology, functions, models []int32, in *planner.Input, out *planner.Output) {
		st.State = api.SchedulerAsleep
		st.EpochMicros, st.Epochs = es.Nanos/1000, es.Epochs
		st.PlanMicros = (es.LastNanos + 999) / 1000
		if es.Epochs > 0 {
			st.PlannedAt = time.Now().Add(-time.Duration(r.cfg.Clock.Now() - es.LastAt))
		}
		if in == nil {
			return
		}
		st.State = api.SchedulerAwake
		p := planReport{t: t, functions: functions, models: models, in: in, out: out}
		for i := range out.Functions {
			st.Functions = append(st.Functions, p.function(i))
		}
		for i := range out.Models {
			st.Models = append(st.Models, p.model(i))
		}
		for i := range out.Devices {
			st.Devices = append(st.Devices, p.device(i))
		}
	})
	for i := range st.Functions {
		r.cfg.Functions.ShowWorth(&st.Functions[i])
	}
	st.PlanP99Micros = (r.cfg.Epoch.PlanNanos.Quantile(0.99) + 999) / 1000
	return st, nil
}

// planReport describes a plan in words.
type planReport struct {
	t                 *driver.Topology
	functions, models []int32
	in                *planner.Input
	out               *planner.Output
}

func (p *planReport) modelName(i int32) string {
	if i < 0 {
		return ""
	}
	return p.t.Models[p.models[i]].ID.String()
}

func (p *planReport) function(i int) api.FunctionPlanStatus {
	in, out, info := &p.in.Functions[i], &p.out.Functions[i], &p.t.Functions[p.functions[i]]
	st := api.FunctionPlanStatus{
		Name: info.Name, Weight: in.Weight, QueriesPerSecond: in.Rate, SLOMicros: in.SLONanos / 1000, BudgetPerSecond: in.Budget,
		CostPerSecond: out.CostPerSecond, Candidates: []api.CandidateStatus{}, Refused: out.Refused,
	}
	if out.Refused > 0 {
		st.RefusedWhy = out.RefusedWhy.String()
	}
	for c, cand := range in.Candidates {
		cs := api.CandidateStatus{
			Model: p.t.Models[info.Candidates[c].Model].ID.String(), Evaluated: out.Evaluate[c], Gain: cand.Gain,
			Cost: p.t.Models[info.Candidates[c].Model].Cost, Why: out.Why[c].String(),
		}
		st.Candidates = append(st.Candidates, cs)
	}
	return st
}

func (p *planReport) model(i int) api.ModelPlanStatus {
	in, out := &p.in.Models[i], &p.out.Models[i]
	st := api.ModelPlanStatus{
		Model: p.modelName(int32(i)), Known: out.Known, CapacityPerSecond: out.Capacity, DemandPerSecond: out.Demand, PlannedPerSecond: out.Planned,
		Execution: out.Plan.Execution.String(), ExecutionWhy: out.ExecutionWhy.String(), HoldMicros: in.HoldNanos / 1000, HoldWhy: out.HoldWhy.String(),
		Replicas: []api.ReplicaPlanStatus{},
	}
	if out.Capacity > 0 {
		st.Utilisation = out.Planned / out.Capacity
	}
	if in.Device >= 0 {
		st.Device = p.t.Topology.Devices[in.Device]
	}
	for q, f := range out.Plan.Functions {
		if q < len(in.Queues) && in.Queues[q].Function < 0 {
			st.DirectShed = max(st.DirectShed, f.Shed)
		}
	}
	for _, r := range in.Replicas {
		rs := api.ReplicaPlanStatus{ID: uint64(r.ID), CapLearned: r.Cap}
		for _, rp := range out.Plan.Replicas {
			if rp.ID != r.ID {
				continue
			}
			if rs.CapPlanned = rp.Cap; rp.Cap > 0 {
				rs.CapWhy = out.CapWhy.String()
			}
			switch {
			case rp.HoldNanos > 0:
				st.HoldMicros = rp.HoldNanos / 1000
			case rp.HoldNanos < 0:
				st.HoldMicros = 0
			}
			for q, share := range rp.Shares {
				if in.Queues[q].Free {
					continue
				}
				ss := api.ShareStatus{Share: share}
				if f := in.Queues[q].Function; f >= 0 {
					ss.Function = p.t.Functions[p.functions[f]].Name
				}
				rs.Shares = append(rs.Shares, ss)
			}
		}
		st.Replicas = append(st.Replicas, rs)
	}
	return st
}

func (p *planReport) device(i int) api.DevicePlanStatus {
	out := &p.out.Devices[i]
	st := api.DevicePlanStatus{Name: p.t.Topology.Devices[i], Busy: out.Busy, Tenants: []api.TenantStatus{}}
	sum := int64(0)
	for _, turn := range out.Turns {
		sum += turn.Nanos
	}
	for _, turn := range out.Turns {
		st.Tenants = append(st.Tenants, api.TenantStatus{
			Model: p.modelName(turn.Model), TurnMicros: turn.Nanos / 1000, Share: float64(turn.Nanos) / float64(max(sum, 1)),
		})
	}
	return st
}
