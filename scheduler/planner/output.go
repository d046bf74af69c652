package planner

import "github.com/xebec-serving/xebec/scheduler"

// Output is a plan for everything in an Input, with the numbers behind it. Its lists are reused by the next plan: copy
// what must be kept.
type Output struct {
	// Functions, Models and Devices are indexed like the Input's.
	Functions []FunctionPlan
	Models    []ModelPlan
	Devices   []DevicePlan

	// The lists above are slices of these contiguous lists, so that writing a plan touches little memory.
	parts, allotted []float64
	limits          []float64
	why             []Reason
	functions       []scheduler.FunctionPlan
	replicas        []scheduler.ReplicaPlan
	shares          []float64
}

// FunctionPlan says which models evaluate a function's queries until the next plan.
type FunctionPlan struct {
	// Evaluate has for each candidate, in the Input's order, the part of the function's queries that it evaluates, from
	// 0 to 1. With the modes One and Shares the parts are disjoint and sum to at most 1. With mode All a query may be
	// in several parts. Queries in no part are refused at once. Pick maps queries to parts.
	Evaluate []float64
	// Limits has, for each candidate of a function with mode Shares, the part of the policy's wish that there is room
	// for, from 0 to 1, relative to the queries that are not refused. Queries withheld by a limit go to candidates with
	// the limit 1. nil means room for all wishes, although a part of all queries may be refused.
	Limits []float64
	// Allotted has for each candidate how many of the function's queries per second the plan has room for. If that is
	// less than arrives, Evaluate admits some more: the machine's admission control sees each deadline and chooses
	// among them.
	Allotted []float64
	// Why says what bounds each candidate's part.
	Why []Reason
	// Refused is the part of the queries that no candidate evaluates, RefusedWhy the reason.
	Refused    float64
	RefusedWhy Reason
	// CostPerSecond is the cost of the evaluations, in the unit of Model.Cost.
	CostPerSecond float64
}

// ModelPlan is the plan of one model version's machine, and the numbers behind it.
type ModelPlan struct {
	Plan scheduler.Plan
	// Usable is the part of Capacity that is planned, in queries per second: all of it, except for candidates that
	// others can replace.
	Usable float64
	// Capacity is how many queries per second its replicas can evaluate, 0 without data. Demand is what would be asked
	// of it if every function had its wish, Planned what this plan asks of it.
	Capacity, Demand, Planned float64
	// Known says that there is enough data of its replicas to plan with. Otherwise the plan restricts nothing.
	Known bool
	// ExecutionWhy, HoldWhy and CapWhy explain the execution, the holds and the caps.
	ExecutionWhy, HoldWhy, CapWhy Reason
	// Tight is how many replicas, the first of the Input's, serve only the functions with the shortest objectives as
	// long as those have queries waiting; 0: all replicas serve all. LooseObjectiveNanos is then the bound on a batch
	// of the other replicas.
	Tight               int
	LooseObjectiveNanos int64
}

// DevicePlan says how the models that share a device take turns.
type DevicePlan struct {
	// Turns has the tenants in order of model index.
	Turns []Turn
	// Busy is the planned part of the device's time, from 0 to 1 and more.
	Busy float64
}

// Turn is one model's share of a device.
type Turn struct {
	Model int32
	// Nanos is the model's time on the device in a round of turns; 0: the device's default, because there is too little
	// data.
	Nanos int64
	// Busy is the part of the device's time planned for the model.
	Busy float64
}

// reset makes an empty plan for in, with the given number of candidates, and reuses memory. The plans of functions and
// models are written whole later.
func (o *Output) reset(in *Input, candidates int) {
	o.parts, o.allotted, o.why = resize(o.parts, candidates), resize(o.allotted, candidates), resize(o.why, candidates)
	o.limits = o.limits[:0]
	clear(o.parts)
	clear(o.allotted)
	o.Functions = resize(o.Functions, len(in.Functions))
	o.Models = resize(o.Models, len(in.Models))
	o.functions, o.replicas, o.shares = o.functions[:0], o.replicas[:0], o.shares[:0]
	o.Devices = resize(o.Devices, len(in.Devices))
	for i := range o.Devices {
		o.Devices[i] = DevicePlan{Turns: o.Devices[i].Turns[:0]}
	}
}

// begin returns an empty plan for function i.
func (o *Output) begin(i int, w *wish) *FunctionPlan {
	f, at, end := &o.Functions[i], w.first, w.end
	f.Evaluate, f.Limits, f.Allotted, f.Why = o.parts[at:end:end], nil, o.allotted[at:end:end], o.why[at:end:end]
	f.Refused, f.RefusedWhy, f.CostPerSecond = 0, NoReason, 0
	return f
}

// more adds n zero elements to a list and returns them. Slices returned earlier stay valid.
func more[T any](list *[]T, n int) []T {
	at := len(*list)
	if at+n > cap(*list) {
		*list = make([]T, at, 2*(at+n))
	}
	*list = (*list)[:at+n]
	added := (*list)[at : at+n : at+n]
	clear(added)
	return added
}

// Pick appends to picked the candidates that evaluate the query with the number u, from 0 to 1. The parts lie end to
// end round a circle of length 1, in the candidates' order, and u is a point of it. Parts whose sum is at most 1 do not
// overlap, and others cover the circle before any point is covered twice. A query without a candidate is refused. If
// numbers are spread evenly, like multiples of the golden ratio, each candidate gets its part of even a few consecutive
// queries.
func (p *FunctionPlan) Pick(u float64, picked []int32) []int32 {
	at := 0.0
	for c, part := range p.Evaluate {
		from := u - at
		if from < 0 {
			from++
		}
		if from < part || part >= 1 {
			picked = append(picked, int32(c))
		}
		if at += part; at >= 1 {
			at--
		}
	}
	return picked
}
