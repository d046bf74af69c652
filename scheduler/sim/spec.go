package sim

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// Spec describes a world. The same Spec always leads to the same run.
type Spec struct {
	Seed uint64
	// Duration is how long queries come; the run goes on until the last of them has ended.
	Duration api.Nanos
	// Warm is the time at the start in which nothing is counted, while profiles and caps are learned.
	Warm api.Nanos
	// Policy selects the engine. Engine, if not nil, makes engines instead.
	Policy Policy
	Engine func(m *ModelSpec) Engine
	// EpochNanos is the time between plans; 0: 10 ms. Only the policy Planned makes plans.
	EpochNanos int64
	// LateNanos is how late the clock wakes an engine at most; 0: 1 ms, as the real one. One wake in a hundred is up to
	// JumpNanos late.
	LateNanos, JumpNanos int64
	Functions            []FunctionSpec
	Models               []ModelSpec
	Devices              int
	// CancelPart is the part of the callers that leave before their answer, FailPart that of batches that fail as a
	// whole, RefusePart that of batches that the transport does not take.
	CancelPart, FailPart, RefusePart float64
	// Check turns on the checks that cost time: they check each engine's state after each event.
	Check bool
}

// FunctionSpec is a function and its traffic.
type FunctionSpec struct {
	Name     string
	Weight   float64
	SLONanos int64
	// ColdStartNanos is how long a query may wait, at least, when no model that it asks has a replica.
	ColdStartNanos int64
	// TTLNanos is how long, from arrival, an answer is worth computing for the cache; less than the SLO means the SLO.
	TTLNanos int64
	Budget   float64
	Mode     planner.Mode
	// Background: no caller waits for it, see planner.Function.
	Background bool
	Candidates []CandidateSpec
	Traffic    []Traffic
	// Bytes is the size of a query's input.
	Bytes int
	// LateBy moves deadlines into the past in one query in fifty, as a client or a slow front end may.
	LateBy int64
}

// CandidateSpec names a model by its index.
type CandidateSpec struct {
	Model int
	Gain  float64
	// Share is how often the policy of a function with mode Shares would ask it, relative to the others; all 0: equally
	// often.
	Share float64
}

// ModelSpec is a model version with its replicas.
type ModelSpec struct {
	Name     string
	Config   scheduler.Config
	Stream   StreamSpec // if Config.Streams
	Cost     float64
	Device   int // -1: none
	Replicas []ReplicaSpec
	// Scale makes the replicas follow the queries; Replicas must then be empty.
	Scale *ScaleSpec
	// SLONanos is the smallest objective of its functions, for baselines that use it.
	SLONanos int64
}

// ReplicaSpec describes a replica: a batch of n takes FixedNanos + n × EachNanos, times a lognormal jitter of mean 1,
// plus its pauses and faults.
type ReplicaSpec struct {
	FixedNanos, EachNanos int64
	// Sigma is the standard deviation of the jitter's logarithm: 0.1 is 10 % around the mean.
	Sigma float64
	// StallEvery is the mean time between pauses (as of a garbage collector), StallNanos their length; 0: none.
	StallEvery, StallNanos int64
	// StartNanos is how long a replacement takes to start after a death, AtNanos when the first one is ready.
	StartNanos, AtNanos int64
	Depth               int // 0: as configured
	Faults              []Fault
}

// FaultKind is a kind of fault of a replica.
type FaultKind uint8

const (
	// Slow: everything takes Factor times as long for ForNanos, as on a throttled core.
	Slow FaultKind = iota
	// Crash: it dies, and a replacement starts.
	Crash
	// Hang: it answers nothing from now on, until it is killed.
	Hang
	// Drain: it drains and is stopped when it is empty; a replacement starts.
	Drain
)

// Fault happens to the replica that is there at AtNanos.
type Fault struct {
	Kind     FaultKind
	AtNanos  int64
	ForNanos int64
	Factor   float64
}

// Policy is a way to schedule.
type Policy uint8

const (
	// Planned is our scheduler: machines, devices in turns and a plan each epoch.
	Planned Policy = iota
	// Unplanned is our scheduler without the planner.
	Unplanned
	// Clipper has one batcher per replica, as the paper describes it: see baseline.
	Clipper
	// ClipperDrops is Clipper with a queue that drops late queries instead of evaluating them for the cache.
	ClipperDrops
	// Tick forms batches every 10 ms.
	Tick
	// Single sends queries one by one.
	Single
	// RandomPlans is our scheduler under random plans, for tests: a machine keeps its promises whatever the plan.
	RandomPlans
)

// Policies lists the policies in the order of a report.
var Policies = []Policy{Planned, Unplanned, Clipper, ClipperDrops, Tick, Single}

var policyNames = [...]string{"planned", "unplanned", "clipper", "clipper-drops", "tick-10ms", "single", "wild"}

// String is the policy's name in reports.
func (p Policy) String() string {
	if int(p) >= len(policyNames) {
		return "unknown"
	}
	return policyNames[p]
}

// MarshalText writes the policy's name in JSON.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Capacity is how many queries per second the model's replicas evaluate, by their specification, in the largest batches
// that take no longer than nanos. A batch of one is always permitted.
func (m *ModelSpec) Capacity(nanos int64) float64 {
	sum := 0.0
	for i := range m.Replicas {
		r := &m.Replicas[i]
		n := int64(1)
		if r.EachNanos > 0 {
			n = (nanos - r.FixedNanos) / r.EachNanos
		}
		if most := int64(m.Config.Batching.MaxBatch); most > 0 {
			n = min(n, most)
		}
		n = max(n, 1)
		sum += float64(n) * 1e9 / float64(r.FixedNanos+n*r.EachNanos)
	}
	return sum
}
