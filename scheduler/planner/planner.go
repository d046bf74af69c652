package planner

import (
	"math"
)

// Planner makes plans. Between plans it keeps working memory and, for functions and models with keys, some of its
// choices, so that they do not alternate. The zero value is ready. It is not safe for concurrent use.
type Planner struct {
	in  *Input
	out *Output

	models  []model
	devices []device
	queues  []queue // of all contended models, contiguous

	candidates []candidate // of all functions, contiguous, as in Output.parts
	ladders    []bool      // by model, see readLadder
	tenants    []int32     // the models that share a device
	direct     []direct    // sub-queues, by model
	attached   []attached  // of all sub-queues, by model

	functionMemories memories[functionMemory]
	modelMemories    memories[modelMemory]

	since, kept float64 // see keep

	// State of the contention for full resources, rebuilt for each plan, and from claimants on for each group. See
	// contend.go.
	wishes        []wish     // by function
	hasBackground bool       // there are background functions
	overloaded    bool       // a resource is overloaded
	asked         []asked    // by resource
	loads         []resource // by resource, where any is short
	parent        []int32    // union-find over resources
	groups        []group    // by root
	following     []int32    // by function: the next one of its group; -1: none
	places        []int32    // the resources at which the claimants have entries
	claimants     []claimant
	edges         []edge
	entries       []entry
	active        []int32 // claimants with unanswered queries and candidates left
	unsatisfied   []int32 // claimants that could get better answers
	cut           []int32
	touched       []int32
	flows         []flow
}

// model is what the planner works out about a model version. Fields used for every candidate come first, in one cache
// line.
type model struct {
	// use is how much of the resource a query per second takes: 1/capacity.
	use, cost float64
	wished    float64 // queries/s if every function had its wish
	most      float64 // queries/s if every function sent all its queries here
	planned   float64
	admitted  float64
	resource  int32 // what an evaluation uses: the model itself, or its device; -1 without data
	queueAt   int32 // index of its first queue in Planner.queues; -1: none
	scarce    bool  // the resource could be full
	contended bool  // the resource is full, or connected with a full one
	known     bool
	profiled  bool // there is a profile; known: and its caps are known too
	ladder    bool // a function may choose between it and others
	streaming bool

	memory           *modelMemory // nil: none
	keep             float64      // of its decayed means
	capacity         float64
	intercept, slope float64 // means over its replicas
	arriving         float64 // queries/s at its sub-queues
	tightestNanos    int64   // the smallest objective of a sub-queue with traffic; 0: none
	loosestNanos     int64   // the largest; math.MaxInt64 if a sub-queue with traffic has none
	held             float64 // queries that the machine holds
	devicePart       float64 // part of its device's time, in batches of its cap
	cap, deviceCap   int     // of a batch: mean over its replicas; bound for the neighbours' sake, 0: none
	device           int32   // index in Planner.asked of its device; -1: it has none
	queues           int32   // how many it has in Planner.queues
	attachedAt       int32   // index of its first sub-queue in Planner.attached
}

// queue is the plan of a sub-queue, in queries/s.
type queue struct {
	allotted, admitted float64
	weight             float64 // of the function, or of a direct sub-queue; 0: nothing was planned
	short              bool    // less is allotted than wanted
}

// New makes a planner.
func New() *Planner { return &Planner{} }

// Plan writes the plan for in into out, whose memory it reuses. It keeps no reference to in. The same Inputs in the
// same order always produce the same plans.
func (p *Planner) Plan(in *Input, out *Output) {
	p.in, p.out = in, out
	p.functionMemories.begin(len(in.Functions))
	p.modelMemories.begin(len(in.Models))
	p.read()
	p.look()
	p.wish()
	if p.overloaded {
		p.contend()
	}
	p.admitFunctions()
	if p.hasBackground {
		p.leftovers()
	}
	p.planModels()
	p.planTurns()
	p.in, p.out = nil, nil
}

// resize returns s with n elements. Existing elements and the lists in them are kept for reuse.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	grown := make([]T, n, n+n/4)
	copy(grown, s[:cap(s)])
	return grown
}

// absurd bounds rates, costs, budgets and times. Larger values, and values below 1/absurd, are treated as invalid.
const absurd = 1e60

// number returns v, or 0 if v is negative, NaN, or out of the range that anything can be planned with.
func number(v float64) float64 {
	if v > 1/absurd && v < absurd { // also false for NaN
		return v
	}
	return 0
}

// Weights have the same bounds as in package scheduler.
const (
	minWeight = 0.01
	maxWeight = 100
)

func weightOf(w float64) float64 {
	if w = number(w); w == 0 {
		return 1
	}
	return max(minWeight, min(w, maxWeight))
}

func gainOf(g float64) float64 { return min(number(g), 1) }

// queueOf returns the plan of the sub-queue of a candidate, whose model is m and contended; nil if the candidate names none.
func (p *Planner) queueOf(m *model, c *candidate) *queue {
	if c.queue < 0 || c.queue >= m.queues {
		return nil
	}
	return &p.queues[m.queueAt+c.queue]
}

func nanos(v float64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(min(v, math.MaxInt64/4))
}

// epochNanos returns how long the plan is in force, 10 ms if the Input says nothing sensible.
func (p *Planner) epochNanos() float64 {
	if n := p.in.EpochNanos; n > 0 && n <= 60e9 {
		return float64(n)
	}
	return 10e6
}

// isDirect reports whether q's queries address the model directly.
func isDirect(q *Queue) bool { return !q.Free && q.Function < 0 }
