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
	queues  []queue // of all models, one behind the other

	functionMemories memories[functionMemory]
	modelMemories    memories[modelMemory]

	since, kept float64 // see keep

	// What contends for full resources, rebuilt for each plan. See contend.go.
	wishes    []wish     // by function
	behind    bool       // there are functions in the background
	loads     []resource // by resource
	parent    []int32    // union-find over resources
	full      []bool     // by root: a resource of the group is wished for beyond its capacity
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
	contended bool  // the resource is full, or connected with one that is
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
	devicePart       float64 // of its device's time, in batches of its cap
	device           int32   // index in Planner.loads of its device; -1: it has none
	deviceCap        int     // so that neighbours do not wait for too long; 0: no bound
	cap              int     // of a batch, mean over its replicas
	queueAt          int32   // its first in Planner.queues
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
	p.behind = false
	for i := range in.Functions {
		p.behind = p.behind || in.Functions[i].Background
	}
	out.reset(in)
	p.functionMemories.begin(len(in.Functions))
	p.modelMemories.begin(len(in.Models))
	p.look()
	p.wish()
	if p.overloaded() {
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

// modelOf is the model that a candidate names; ok is false where there is none.
func (p *Planner) modelOf(c *Candidate) (m *model, ok bool) {
	if c.Model < 0 || int(c.Model) >= len(p.models) {
		return nil, false
	}
	return &p.models[c.Model], true
}

// queueOf is the index in p.queues of a candidate's sub-queue, or -1.
func (p *Planner) queueOf(c *Candidate) int32 {
	if c.Queue < 0 || int(c.Queue) >= len(p.in.Models[c.Model].Queues) {
		return -1
	}
	return p.models[c.Model].queueAt + c.Queue
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
