package planner

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Input is everything that a plan is made from. It is rewritten for each epoch in the same memory. Indices in it are
// valid for one epoch.
type Input struct {
	Now api.Nanos
	// EpochNanos is about how long the plan will be in force.
	EpochNanos int64
	Functions  []Function
	Models     []Model
	Devices    []Device
}

// Mode says how a function uses its candidates.
type Mode uint8

const (
	// One: one candidate answers each query, the affordable one with the largest gain.
	One Mode = iota
	// All: as many candidates as the budget affords evaluate each query, for an ensemble.
	All
	// Shares: one candidate answers each query, as a policy divides the queries (a bandit, or a split between
	// versions). Candidate.Share is what the policy wishes. The plan departs from it only if capacity or budget does
	// not suffice.
	Shares
)

// picksOne reports whether a single candidate evaluates each query.
func (m Mode) picksOne() bool { return m != All }

// Function is one function with its candidate models.
type Function struct {
	// Key is stable from epoch to epoch, unlike indices. The planner remembers past choices by it. If it is 0, the
	// planner remembers nothing and choices near a threshold may alternate.
	Key uint64
	// Weight is the function's share against other functions where capacity is short; 0 means 1.
	Weight float64
	// Rate is the number of queries that arrive per second, counted before anything is refused.
	Rate float64
	// SLONanos is the latency objective; 0: none.
	SLONanos int64
	// Budget bounds the cost of evaluations per second, in the unit of Model.Cost; 0: no bound.
	Budget float64
	Mode   Mode
	// Background functions get what all other functions leave over and do not change the others' plans. They are for
	// shadows of a model, whose answers no client waits for. Weight divides what is left among several of them.
	Background bool
	Candidates []Candidate
}

// Candidate is one model version that a function may ask.
type Candidate struct {
	// Model is an index of Input.Models, Queue an index of that model's Queues.
	Model, Queue int32
	// Gain is the value of an answer by this model, from 0 to 1: the selection policy's weight.
	Gain float64
	// Share is the part of the function's queries that the policy would give this model, for mode Shares. The shares of
	// the present candidates are scaled to a sum of 1. If they are all 0, the gains are used instead.
	Share float64
}

// Model is one model version.
type Model struct {
	// Key is stable from epoch to epoch; 0: nothing is remembered. See Function.Key.
	Key uint64
	// Cost is the cost of one evaluation, in the operator's unit; 0: none.
	Cost float64
	// Device is an index of Input.Devices; -1: the model shares no device.
	Device int32
	// HoldNanos is the configured bound on how long a batch is held.
	HoldNanos int64
	MaxBatch  int
	// InputBytes is the mean size of a query's inputs; 0: unknown.
	InputBytes int64
	// FixedObjective: the bound on a batch's duration was configured and does not follow from the functions'
	// objectives.
	FixedObjective bool
	// Pinned models (padded or of a fixed size, or sent one by one) keep their caps and execution regardless of
	// benefit.
	Pinned   bool
	Queues   []Queue
	Replicas []Replica
}

// Queue is one sub-queue of a model version, by the machine's function index. Free is set where a removed function left
// its index free.
type Queue struct {
	Free bool
	// Function is an index of Input.Functions. It is -1 for queries that address the model directly, which no
	// function's plan covers.
	Function int32
	// Weight is the weight that it was attached with.
	Weight float64
	// Rate is the number of queries that arrive per second, counted before the machine refuses any.
	Rate     float64
	SLONanos int64
	// Queued is the number of waiting queries.
	Queued int
}

// Replica is one replica of a model version that takes batches.
type Replica struct {
	ID scheduler.ReplicaID
	// Cap is what its controller allows. Settled: the cap has reached its limit.
	Cap     int
	Settled bool
	// Concurrency is how many batches it evaluates at once; 0 means 1.
	Concurrency int
	// Samples is the number of batches behind the profile. A batch of n is expected to take InterceptNanos + n ×
	// SlopeNanos.
	Samples                    uint64
	InterceptNanos, SlopeNanos float64
	// Outstanding is the number of queries that it holds.
	Outstanding int
}

// Device is an accelerator that several model versions share and use in turns.
type Device struct {
	Name string
}
