package api

import "time"

// SchedulerStatus is the plan in force, and the numbers that it follows from: what GET /v1/describe/scheduler answers.
//
// Parts are from 0 to 1, rates are per second, costs in the operator's own unit ([ModelSpec.Cost]). No number is infinite
// or NaN: what is not known is 0. Reasons are sentences for people.
type SchedulerStatus struct {
	State SchedulerState `json:"state"`
	// EpochMicros is how often a plan is made; 0: never.
	EpochMicros int64 `json:"epoch_micros"`
	// Epochs counts the plans since the gateway started.
	Epochs uint64 `json:"epochs"`
	// PlannedAt is when the last plan was made, PlanMicros how long that took (rounded up), PlanP99Micros the 99th percentile
	// of all plans.
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
	// SchedulerOff: planning was turned off; nothing is restricted.
	SchedulerOff SchedulerState = "off"
	// SchedulerAsleep: there is no traffic to plan for; the next query wakes it.
	SchedulerAsleep SchedulerState = "asleep"
	// SchedulerAwake: a plan is made every epoch.
	SchedulerAwake SchedulerState = "awake"
)

// FunctionPlanStatus is what the plan decides for one function: which candidates evaluate its queries.
type FunctionPlanStatus struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	// QueriesPerSecond is how many arrive, before anything is refused.
	QueriesPerSecond float64 `json:"queries_per_second"`
	SLOMicros        int64   `json:"slo_micros"`
	// BudgetPerSecond is what the evaluations may cost, 0 for no bound; CostPerSecond what they are planned to cost.
	BudgetPerSecond float64           `json:"budget_per_second,omitempty"`
	CostPerSecond   float64           `json:"cost_per_second"`
	Candidates      []CandidateStatus `json:"candidates"`
	// Refused is the part of the queries that nobody evaluates, RefusedWhy what bounds the others.
	Refused    float64 `json:"refused"`
	RefusedWhy string  `json:"refused_why,omitempty"`
}

// CandidateStatus is one model version that a function may ask.
type CandidateStatus struct {
	// Model is "name@version".
	Model string `json:"model"`
	// Evaluated is the part of the function's queries that it is asked for, Why what that is bounded by.
	Evaluated float64 `json:"evaluated"`
	// Gain is how much its answer is worth, from 0 to 1; Cost what one evaluation costs.
	Gain float64 `json:"gain"`
	Cost float64 `json:"cost"`
	Why  string  `json:"why,omitempty"`
}

// ModelPlanStatus is what the plan decides for one model version: how its batches are made, and which replicas serve whom.
type ModelPlanStatus struct {
	// Model is "name@version".
	Model string `json:"model"`
	// Known says that enough has been seen of its replicas to plan with; otherwise nothing is restricted.
	Known bool `json:"known"`
	// CapacityPerSecond is how many queries its replicas can evaluate, 0 while that is not known. DemandPerSecond is what
	// would be asked of it if every function had its wish, PlannedPerSecond what is.
	CapacityPerSecond float64 `json:"capacity_per_second"`
	DemandPerSecond   float64 `json:"demand_per_second"`
	PlannedPerSecond  float64 `json:"planned_per_second"`
	// Utilisation is the planned part of the capacity, 0 while that is not known.
	Utilisation float64 `json:"utilisation"`
	// DirectShed is the part of the queries that address the model itself which is refused.
	DirectShed float64 `json:"direct_shed,omitempty"`
	// Execution is "whole", "split" or "stream".
	Execution    string `json:"execution"`
	ExecutionWhy string `json:"execution_why,omitempty"`
	// HoldMicros is how long a batch that is not full waits for more queries.
	HoldMicros int64  `json:"hold_micros"`
	HoldWhy    string `json:"hold_why,omitempty"`
	// Device is the device that it shares, empty for none.
	Device   string              `json:"device,omitempty"`
	Replicas []ReplicaPlanStatus `json:"replicas"`
}

// ReplicaPlanStatus is what the plan decides for one replica.
type ReplicaPlanStatus struct {
	ID uint64 `json:"id"`
	// CapLearned is the largest batch that its controller allows, CapPlanned the one that the plan does: 0 for no further
	// bound, and CapWhy says why.
	CapLearned int    `json:"cap_learned"`
	CapPlanned int    `json:"cap_planned"`
	CapWhy     string `json:"cap_why,omitempty"`
	// Shares are the functions that it serves and their weights against each other; of those with 0 it takes only what is
	// left. Empty: all functions of the model, by their own weights.
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
	// TurnMicros is how long its turn is, Share its part of a round of turns.
	TurnMicros int64   `json:"turn_micros"`
	Share      float64 `json:"share"`
}
