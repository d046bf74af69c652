package api

import "time"

// SchedulerStatus is the current plan and the numbers behind it, as GET /v1/describe/scheduler returns them.
//
// Parts are from 0 to 1, rates are per second, and costs are in the operator's unit ([ModelSpec.Cost]). No number is
// infinite or NaN; unknown ones are 0. Reasons are sentences for people.
type SchedulerStatus struct {
	State SchedulerState `json:"state"`
	// EpochMicros is the interval between plans; 0 means that none are made.
	EpochMicros int64 `json:"epoch_micros"`
	// Epochs counts the plans since the gateway started.
	Epochs uint64 `json:"epochs"`
	// PlannedAt is when the last plan was made. PlanMicros is how long that took (rounded up), PlanP99Micros the 99th
	// percentile over all plans.
	PlannedAt     time.Time            `json:"planned_at,omitzero"`
	PlanMicros    int64                `json:"plan_micros"`
	PlanP99Micros int64                `json:"plan_p99_micros"`
	Functions     []FunctionPlanStatus `json:"functions"`
	Models        []ModelPlanStatus    `json:"models"`
	Devices       []DevicePlanStatus   `json:"devices"`
}

// SchedulerState says whether plans are being made.
type SchedulerState string

// The states of the epoch planner.
const (
	// SchedulerOff: planning was turned off. Nothing is restricted.
	SchedulerOff SchedulerState = "off"
	// SchedulerAsleep: there is no traffic to plan for. The next query resumes planning.
	SchedulerAsleep SchedulerState = "asleep"
	// SchedulerAwake: a plan is made every epoch.
	SchedulerAwake SchedulerState = "awake"
)

// FunctionPlanStatus is the plan for one function: which candidates evaluate its queries.
type FunctionPlanStatus struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	// QueriesPerSecond is the arrival rate, before any query is refused.
	QueriesPerSecond float64 `json:"queries_per_second"`
	SLOMicros        int64   `json:"slo_micros"`
	// BudgetPerSecond bounds the cost of the evaluations, 0 for no bound. CostPerSecond is their planned cost.
	BudgetPerSecond float64           `json:"budget_per_second,omitempty"`
	CostPerSecond   float64           `json:"cost_per_second"`
	Candidates      []CandidateStatus `json:"candidates"`
	// Refused is the part of the queries that no candidate evaluates. RefusedWhy says what bounds the others.
	Refused    float64 `json:"refused"`
	RefusedWhy string  `json:"refused_why,omitempty"`
}

// CandidateStatus is one model version that a function may ask.
type CandidateStatus struct {
	// Model is "name@version".
	Model string `json:"model"`
	// Evaluated is the part of the function's queries that it evaluates. Why says what bounds it.
	Evaluated float64 `json:"evaluated"`
	// Gain is the value of its answer, from 0 to 1. Cost is the cost of one evaluation.
	Gain float64 `json:"gain"`
	Cost float64 `json:"cost"`
	Why  string  `json:"why,omitempty"`
	// Accuracy is what Gain follows from under the policy prefer, once it is known of every candidate. Labels is how many labels it is of, faded
	// with time; 0: the model reports it itself.
	Accuracy *float64 `json:"accuracy,omitempty"`
	Labels   float64  `json:"labels,omitempty"`
}

// ModelPlanStatus is the plan for one model version: how its batches are made, and which replicas serve which
// functions.
type ModelPlanStatus struct {
	// Model is "name@version".
	Model string `json:"model"`
	// Known says that there are enough measurements of its replicas to plan with. Otherwise nothing is restricted.
	Known bool `json:"known"`
	// CapacityPerSecond is the number of queries that its replicas can evaluate, 0 while it is not known.
	// DemandPerSecond is the load if every function got what it wants, PlannedPerSecond the planned load.
	CapacityPerSecond float64 `json:"capacity_per_second"`
	DemandPerSecond   float64 `json:"demand_per_second"`
	PlannedPerSecond  float64 `json:"planned_per_second"`
	// Utilisation is the planned part of the capacity, 0 while that is not known.
	Utilisation float64 `json:"utilisation"`
	// DirectShed is the refused part of the queries that address the model directly.
	DirectShed float64 `json:"direct_shed,omitempty"`
	// Execution is "whole", "split" or "stream".
	Execution    string `json:"execution"`
	ExecutionWhy string `json:"execution_why,omitempty"`
	// HoldMicros is how long a batch that is not full waits for more queries.
	HoldMicros int64  `json:"hold_micros"`
	HoldWhy    string `json:"hold_why,omitempty"`
	// Device is the device that it shares; empty for none.
	Device   string              `json:"device,omitempty"`
	Replicas []ReplicaPlanStatus `json:"replicas"`
}

// ReplicaPlanStatus is the plan for one replica.
type ReplicaPlanStatus struct {
	ID uint64 `json:"id"`
	// CapLearned is the largest batch that its controller allows. CapPlanned is the plan's bound, 0 for none, and
	// CapWhy its reason.
	CapLearned int    `json:"cap_learned"`
	CapPlanned int    `json:"cap_planned"`
	CapWhy     string `json:"cap_why,omitempty"`
	// Shares are the functions that it serves and their relative weights. A function with 0 gets only spare capacity.
	// If it is empty, the replica serves all functions of the model by their own weights.
	Shares []ShareStatus `json:"shares,omitempty"`
}

// ShareStatus is a function's share of a replica.
type ShareStatus struct {
	// Function is empty for the queries that address the model itself.
	Function string  `json:"function,omitempty"`
	Share    float64 `json:"share"`
}

// DevicePlanStatus is how the models that share a device take turns.
type DevicePlanStatus struct {
	Name string `json:"name"`
	// Busy is the planned part of the device's time.
	Busy    float64        `json:"busy"`
	Tenants []TenantStatus `json:"tenants"`
}

// TenantStatus is one model's share of a device.
type TenantStatus struct {
	// Model is "name@version".
	Model string `json:"model"`
	// TurnMicros is the length of its turn. Share is its part of a round of turns.
	TurnMicros int64   `json:"turn_micros"`
	Share      float64 `json:"share"`
}
