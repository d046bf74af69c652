package planner

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Topology is what there is to plan for. It changes with declarations, not from epoch to epoch.
type Topology struct {
	Functions []FunctionInfo
	Models    []ModelInfo
	Devices   []string
}

// FunctionInfo is a declared function.
type FunctionInfo struct {
	Key      uint64
	Name     string
	Weight   float64
	SLONanos int64
	Budget   float64
	Mode     Mode
	// Background is as in [Function].
	Background bool
	Candidates []CandidateInfo
}

// CandidateInfo is a model version that a function may ask. Model is an index of Topology.Models, and Queue is the
// function's sub-queue there.
type CandidateInfo struct {
	Model, Queue int32
	// Gain is what its answers are worth unless the policy states another gain.
	Gain float64
}

// PolicySource returns what machines do not know about the topology's functions. The Collector asks it in each epoch, for the
// functions that are awake.
type PolicySource interface {
	// Counted returns a count since the start: with the modes One and Shares the function's queries that were refused
	// before they reached a machine, with mode All the queries that arrived.
	Counted(function int) uint64
	// Gain returns what the policy says an answer of the candidate is worth. If ok is false, the policy does not say,
	// and the declared gain applies.
	Gain(function, candidate int) (gain float64, ok bool)
	// Wished returns, with mode Shares, how many queries the policy would have given the candidate since the start.
	Wished(function, candidate int) uint64
}

// ModelInfo is a declared model version.
type ModelInfo struct {
	Key       uint64
	ID        api.ModelID
	Cost      float64
	Device    int32 // index of Topology.Devices; -1: none
	HoldNanos int64
	MaxBatch  int
	Pinned    bool
	// FixedObjective is as in [Model].
	FixedObjective bool
}

// Collector converts snapshots of machines into the planner's input, epoch by epoch. It computes rates, leaves out what
// is asleep, and numbers the rest. It reuses its memory. In each epoch call Begin, then Model for every model version
// that is awake, then Input.
type Collector struct {
	topology *Topology
	in       Input
	// functionAt and modelAt map the topology's functions and models to indices of this epoch's input, -1 if left out.
	functionAt, modelAt []int32
	// Functions and Models map this epoch's input to indices of the topology.
	Functions, Models []int32

	owners  [][]int32    // of each model's sub-queues: the topology's function, or directQueue
	meters  [][]Meter    // of each model's sub-queues
	counted []Meter      // of each function: PolicySource.Counted
	shares  []shareMeter // of each function; used with mode Shares
	wishes  PolicySource
}

// NewCollector makes a collector. The topology must not change afterwards.
func NewCollector(t *Topology, wishes PolicySource) *Collector {
	c := &Collector{
		topology: t, functionAt: make([]int32, len(t.Functions)), modelAt: make([]int32, len(t.Models)),
		owners: make([][]int32, len(t.Models)), meters: make([][]Meter, len(t.Models)),
		counted: make([]Meter, len(t.Functions)), shares: make([]shareMeter, len(t.Functions)), wishes: wishes,
	}
	for i, f := range t.Functions {
		if f.Mode == Shares {
			c.shares[i].init(len(f.Candidates))
		}
		for _, cand := range f.Candidates {
			own := c.owners[cand.Model]
			for len(own) <= int(cand.Queue) {
				own = append(own, directQueue)
			}
			own[cand.Queue] = int32(i)
			c.owners[cand.Model] = own
		}
	}
	for _, d := range t.Devices {
		c.in.Devices = append(c.in.Devices, Device{Name: d})
	}
	return c
}

// directQueue marks a sub-queue of requests that address the model directly.
const directQueue = -1

// Begin starts an epoch.
func (c *Collector) Begin(now api.Nanos, epochNanos int64) {
	c.in.Now, c.in.EpochNanos = now, epochNanos
	c.in.Functions, c.in.Models = c.in.Functions[:0], c.in.Models[:0]
	c.Functions, c.Models = c.Functions[:0], c.Models[:0]
	for i := range c.functionAt {
		c.functionAt[i] = -1
	}
	for i := range c.modelAt {
		c.modelAt[i] = -1
	}
}

// Model adds the snapshot of a model version that is awake. It keeps no reference to s.
func (c *Collector) Model(model int, s *scheduler.Snapshot) {
	info := &c.topology.Models[model]
	c.modelAt[model] = int32(len(c.in.Models))
	c.Models = append(c.Models, int32(model))
	m := extend(&c.in.Models)
	*m = Model{
		Key: info.Key, Cost: info.Cost, Device: info.Device, HoldNanos: info.HoldNanos, MaxBatch: info.MaxBatch,
		Pinned: info.Pinned, FixedObjective: info.FixedObjective,
		Queues: m.Queues[:0], Replicas: m.Replicas[:0],
	}
	var bytes, arrived float64
	meters := c.meters[model]
	for len(meters) < len(s.Functions) {
		meters = append(meters, Meter{})
	}
	c.meters[model] = meters
	for i := range s.Functions {
		f := &s.Functions[i]
		q := Queue{Free: f.Index < 0, Function: directQueue}
		if !q.Free {
			q.Weight, q.Queued = f.Attached, f.Queued
			q.Rate = meters[i].Observe(s.Now, f.Arrived)
			if own := c.owners[model]; i < len(own) {
				q.Function = own[i]
			}
			bytes += float64(f.ArrivedBytes)
			arrived += float64(f.Arrived)
		}
		m.Queues = append(m.Queues, q)
	}
	if arrived > 0 {
		m.InputBytes = int64(bytes / arrived)
	}
	for i := range s.Replicas {
		r := &s.Replicas[i]
		if r.State != scheduler.Serving {
			continue
		}
		samples := r.Samples
		if r.Presumed { // what earlier replicas measured is planned with until this one is known
			samples = max(samples, knownSamples)
		}
		m.Replicas = append(m.Replicas, Replica{
			ID: r.ID, Concurrency: r.Concurrency, Cap: r.Learned, Settled: r.Settled, Samples: samples,
			InterceptNanos: r.InterceptNanos, SlopeNanos: r.SlopeNanos, Outstanding: r.Queries,
		})
	}
}

// Input returns the input of the epoch's plan: the models added since Begin and the functions that may ask any of them.
// It is valid until the next Begin.
func (c *Collector) Input() *Input {
	for i := range c.in.Models {
		for q := range c.in.Models[i].Queues {
			queue := &c.in.Models[i].Queues[q]
			if f := queue.Function; f >= 0 {
				queue.Function = c.function(f)
				queue.SLONanos = c.topology.Functions[f].SLONanos
				if fn := &c.in.Functions[queue.Function]; fn.Mode.picksOne() {
					fn.Rate += queue.Rate
				}
			}
		}
	}
	for i := range c.in.Functions {
		c.leaveOut(&c.in.Functions[i])
	}
	return &c.in
}

// leaveOut marks candidates without a replica as missing if another candidate has one.
func (c *Collector) leaveOut(f *Function) {
	serving := func(cand *Candidate) bool { return cand.Model >= 0 && len(c.in.Models[cand.Model].Replicas) > 0 }
	anyServing := false
	for i := range f.Candidates {
		anyServing = anyServing || serving(&f.Candidates[i])
	}
	for i := range f.Candidates {
		if anyServing && !serving(&f.Candidates[i]) {
			f.Candidates[i].Model = -1
		}
	}
}

// function returns the input index of a function of the topology and adds the function if it is new.
func (c *Collector) function(f int32) int32 {
	if at := c.functionAt[f]; at >= 0 {
		return at
	}
	at := int32(len(c.in.Functions))
	c.functionAt[f] = at
	c.Functions = append(c.Functions, f)
	info := &c.topology.Functions[f]
	fn := extend(&c.in.Functions)
	*fn = Function{
		Key: info.Key, Weight: info.Weight, Rate: c.counted[f].Observe(c.in.Now, c.wishes.Counted(int(f))), SLONanos: info.SLONanos, Budget: info.Budget,
		Mode: info.Mode, Background: info.Background, Candidates: fn.Candidates[:0],
	}
	for i, cand := range info.Candidates {
		if gain, ok := c.wishes.Gain(int(f), i); ok {
			cand.Gain = gain
		}
		fn.Candidates = append(fn.Candidates, Candidate{Model: c.modelAt[cand.Model], Queue: cand.Queue, Gain: cand.Gain})
	}
	if fn.Mode == Shares {
		c.shares[f].observe(c.in.Now, c.wishes, int(f), fn.Candidates)
	}
	return at
}

// extend appends an element to list and reuses the memory of an earlier element if there is one.
func extend[T any](list *[]T) *T {
	if n := len(*list); n < cap(*list) {
		*list = (*list)[:n+1]
	} else {
		var zero T
		*list = append(*list, zero)
	}
	return &(*list)[len(*list)-1]
}
