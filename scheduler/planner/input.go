package planner

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Input is everything that a plan is made from: who asks, who answers, what is known of them. It is written anew for each
// epoch into the same memory; indices in it are good for this epoch only.
type Input struct {
	Now api.Nanos
	// EpochNanos is how long the plan will be in force, about.
	EpochNanos int64
	Functions  []Function
	Models     []Model
	Devices    []Device
}

// Mode says what a function wants of its candidates.
type Mode uint8

const (
	// One: each query is answered by one of the candidates, the one with the largest gain that can be afforded.
	One Mode = iota
	// All: each query is evaluated by as many candidates as can be afforded, for an ensemble.
	All
	// Shares: each query is answered by one of the candidates, as a policy divides them (a bandit, or a split between
	// versions): Candidate.Share is what it wishes, and the plan departs from that only where there is not enough.
	Shares
)

// one reports whether a query is evaluated by one candidate only.
func (m Mode) one() bool { return m != All }

// Function is one function with its candidate models.
type Function struct {
	// Key stays the same from epoch to epoch, while indices do not: what the planner remembers, it remembers by it. 0: it
	// remembers nothing, and choices near a threshold may alternate.
	Key uint64
	// Weight is its share against other functions where capacity is short; 0 means 1.
	Weight float64
	// Rate is how many queries arrive, per second, counted before anything is refused.
	Rate float64
	// SLONanos is its latency objective; 0: none.
	SLONanos int64
	// Budget is what its evaluations may cost per second, in the unit of Model.Cost; 0: no bound.
	Budget float64
	Mode   Mode
	// Background functions get what all others leave over, and nobody else's plan is another one because of them: they are
	// for the shadow of a model, whose answers nobody waits for. Weight divides what is left between several of them.
	Background bool
	Candidates []Candidate
}

// Candidate is one model version that a function may ask.
type Candidate struct {
	// Model is an index of Input.Models, Queue an index of that model's Queues.
	Model, Queue int32
	// Gain is how much an answer of this model is worth, from 0 to 1: the selection policy's weight.
	Gain float64
	// Share is the part of the function's queries that the policy would have this model answer, for the mode Shares. What
	// the shares of the candidates that are there add up to is taken for all queries; where they are all 0, the gains stand
	// in for them.
	Share float64
}

// Model is one model version.
type Model struct {
	// Key stays the same from epoch to epoch; 0: nothing is remembered. See Function.Key.
	Key uint64
	// Cost is what one evaluation costs, in the operator's unit; 0: nothing.
	Cost float64
	// Device is an index of Input.Devices, or -1: it shares none.
	Device int32
	// HoldNanos is how long a batch may be held at most, as configured.
	HoldNanos int64
	MaxBatch  int
	// InputBytes is the mean size of a query's inputs; 0: unknown.
	InputBytes int64
	// FixedObjective: what a batch is to take at most was configured, and does not follow from the functions'.
	FixedObjective bool
	// Pinned models (padded or of a fixed size, or sent one by one) keep their caps and execution whatever would pay.
	Pinned   bool
	Queues   []Queue
	Replicas []Replica
}

// Queue is one sub-queue of a model version, by the machine's function index. Where a removed function has left its index
// free, Free is set.
type Queue struct {
	Free bool
	// Function is an index of Input.Functions; -1 for queries that address the model itself, which no function's plan
	// speaks of.
	Function int32
	// Weight is what it was attached with.
	Weight float64
	// Rate is how many queries arrive here, per second, counted before the machine refuses any.
	Rate     float64
	SLONanos int64
	// Queued is what waits here.
	Queued int
}

// Replica is one replica of a model version that takes batches.
type Replica struct {
	ID scheduler.ReplicaID
	// Cap is what its controller allows. Settled: the cap has met its limit.
	Cap     int
	Settled bool
	// Samples is how many batches the profile stands on: a batch of n is expected to take InterceptNanos + n × SlopeNanos.
	Samples                    uint64
	InterceptNanos, SlopeNanos float64
	// Outstanding is how many queries it holds.
	Outstanding int
}

// Device is something that several model versions share and use in turns.
type Device struct {
	Name string
}
