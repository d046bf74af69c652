package planner

import (
	"math"
)

// Planner makes plans. From plan to plan it keeps memory to work in, and of functions and models that have keys a little of
// what it chose, so that no choice goes back and forth. The zero value is ready. It is not safe for concurrent use.
type Planner struct {
	in  *Input
	out *Output

	models  []model
	devices []device
	queues  []queue // of all contended models, one behind the other

	candidates []candidate // of all functions, one behind the other, as in Output.parts
	ladders    []bool      // by model, see readLadder
	tenants    []int32     // the models that share a device
	direct     []direct    // sub-queues, by model

	functionMemories memories[functionMemory]
	modelMemories    memories[modelMemory]

	since, kept float64 // see keep

	// What contends for full resources, rebuilt for each plan, and what follows from claimants on, for each group. See
	// contend.go.
	wishes    []wish     // by function
	behind    bool       // there are functions in the background
	over      bool       // a resource is wished for beyond its capacity
	asked     []asked    // by resource
	loads     []resource // by resource, where any is short
	parent    []int32    // union-find over resources
	groups    []group    // by root
	following []int32    // by function: the next one of its group; -1: none
	places    []int32    // the resources at which the claimants have entries
	claimants []claimant
	edges     []edge
	entries   []entry
	active    []int32 // claimants with unanswered queries and candidates left
	wanting   []int32 // claimants that better answers may be had for
	cut       []int32
	touched   []int32
	flows     []flow
}

// model is what the planner works out about a model version. What is looked at for every candidate comes first, in one
// line of the cache.
type model struct {
	// use is how much of the resource a query per second takes: 1/capacity.
	use, cost float64
	wished    float64 // queries/s, if every function had its wish
	most      float64 // queries/s, if everybody asked for all that he could
	planned   float64
	admitted  float64
	resource  int32 // what its evaluations use up: itself, or its device; -1 while nothing is known
	scarce    bool  // the resource could be full
	contended bool  // it is, or is connected with one that is
	known     bool
	profiled  bool // its profiles are believed; known: its caps too
	ladder    bool // a function has it among others and asks one of them
	streaming bool

	memory           *modelMemory // nil: none
	keep             float64      // of its means
	capacity         float64
	intercept, slope float64 // means over its replicas
	arriving         float64 // queries/s at its sub-queues
	tightestNanos    int64   // the smallest objective of a sub-queue with traffic; 0: none
	loosestNanos     int64   // the largest; of one that has no objective, math.MaxInt64
	held             float64 // queries that the machine holds
	devicePart       float64 // of its device's time, in batches of its cap
	cap, deviceCap   int     // of a batch: mean over its replicas; so that neighbours do not wait for too long, 0: no bound
	device           int32   // index in Planner.asked of its device; -1: it has none
	queueAt          int32   // its first in Planner.queues; -1: none of it is there
}

// queue is what the plan has for a sub-queue, in queries/s.
type queue struct {
	allotted, admitted float64
	weight             float64 // of the function, or of a direct sub-queue; 0: nothing was planned
	short              bool    // less is allotted than is wanted
}

// New makes a planner.
func New() *Planner { return &Planner{} }

// Plan makes the plan for in, and writes it into out, whose memory it reuses. Nothing of in is kept.
// The same Inputs in the same order always lead to the same plans.
func (p *Planner) Plan(in *Input, out *Output) {
	p.in, p.out = in, out
	p.functionMemories.begin(len(in.Functions))
	p.modelMemories.begin(len(in.Models))
	p.read()
	p.look()
	p.wish()
	if p.over {
		p.contend()
	}
	p.admitFunctions()
	if p.behind {
		p.leftovers()
	}
	p.planModels()
	p.planTurns()
	p.in, p.out = nil, nil
}

// resize is s with n elements; those that it had, with the lists in them, are kept.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	grown := make([]T, n, n+n/4)
	copy(grown, s[:cap(s)])
	return grown
}

// absurd: no rate, cost, budget or time of a plan is that large, and none is as small as one part of it.
const absurd = 1e60

// number is v, or 0 where v is negative or no number that anything could be planned with.
func number(v float64) float64 {
	if v > 1/absurd && v < absurd { // also false for NaN
		return v
	}
	return 0
}

// Weights have the bounds that the machine's have: see package scheduler.
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

// queueOf is the plan of the sub-queue of a candidate that is there, nil where it names none.
func (p *Planner) queueOf(c *Candidate) *queue {
	if c.Queue < 0 || int(c.Queue) >= len(p.in.Models[c.Model].Queues) {
		return nil
	}
	return &p.queues[p.models[c.Model].queueAt+c.Queue]
}

func nanos(v float64) int64 {
	if !(v > 0) {
		return 0
	}
	return int64(min(v, math.MaxInt64/4))
}

// epochNanos is how long the plan is in force; 10 ms where the Input has nothing sensible.
func (p *Planner) epochNanos() float64 {
	if n := p.in.EpochNanos; n > 0 && n <= 60e9 {
		return float64(n)
	}
	return 10e6
}

// isDirect reports whether q's queries address the model itself.
func isDirect(q *Queue) bool { return !q.Free && q.Function < 0 }
