package planner

import "github.com/xebec-serving/xebec/scheduler"

// Output is a plan for everything in an Input, with the numbers behind it. Its lists are reused from plan to plan: what is
// to outlive the next one must be copied.
type Output struct {
	// Functions and Models are indexed like the Input's, Devices too.
	Functions []FunctionPlan
	Models    []ModelPlan
	Devices   []DevicePlan

	// The lists above lie in these, one behind the other, so that writing a plan walks through little memory.
	parts, allotted []float64
	limits          []float64
	why             []Reason
	functions       []scheduler.FunctionPlan
	replicas        []scheduler.ReplicaPlan
	shares          []float64
}

// FunctionPlan says which models a function's queries are evaluated by until the next plan.
type FunctionPlan struct {
	// Evaluate has for each candidate, in the Input's order, the part of the function's queries that it is asked for, from 0
	// to 1. With the modes One and Shares the parts are of different queries and their sum is at most 1; with mode All a
	// query may be in several. What is in no part is refused at once. See Pick for which query is in which part.
	Evaluate []float64
	// Limits has for each candidate of a function with mode Shares which part of what the policy wishes for it there is room
	// for, from 0 to 1, of the queries that are not refused. What is held back by it goes to those who have 1. nil: there is
	// room for what is wished, though a part of all queries may be refused.
	Limits []float64
	// Allotted has for each candidate how many of the function's queries per second the plan has room for. Where that is
	// less than what arrives, Evaluate lets some more through: the machine's admission control, which sees each deadline,
	// chooses among them.
	Allotted []float64
	// Why says, for each candidate, what its part is bounded by.
	Why []Reason
	// Refused is the part of the queries that nobody evaluates, RefusedWhy what bounds them.
	Refused    float64
	RefusedWhy Reason
	// CostPerSecond is what the evaluations cost, in the unit of Model.Cost.
	CostPerSecond float64
}

// ModelPlan is the plan of one model version's machine, and the numbers behind it.
type ModelPlan struct {
	Plan scheduler.Plan
	// Usable is the part of Capacity that is planned with, in queries per second: all of it, but for candidates that others
	// can stand in for.
	Usable float64
	// Capacity is how many queries per second its replicas can evaluate, 0 while nothing is known. Demand is what would be
	// asked of it if every function had its wish, Planned what this plan asks of it.
	Capacity, Demand, Planned float64
	// Known says that enough has been seen of its replicas to plan with; otherwise the plan restricts nothing.
	Known bool
	// ExecutionWhy, HoldWhy and CapWhy explain the execution, the holds and the caps.
	ExecutionWhy, HoldWhy, CapWhy Reason
	// Tight is how many replicas, the first of the Input's, serve only the functions with the shortest objectives as long
	// as those have queries waiting; 0: all serve all. LooseObjectiveNanos is then what a batch of the others may take.
	Tight               int
	LooseObjectiveNanos int64
}

// DevicePlan is how the models that share a device take turns.
type DevicePlan struct {
	// Turns has the tenants in order of their model index.
	Turns []Turn
	// Busy is the part of the device's time that is planned, from 0 to 1 and more.
	Busy float64
}

// Turn is one model's share of a device.
type Turn struct {
	Model int32
	// Nanos is how much of the device's time the model has in a round of turns; 0: nothing is known of it, so the device's
	// default.
	Nanos int64
	// Busy is the part of the device's time that is planned for the model.
	Busy float64
}

// reset makes an empty plan for in, with so many candidates, in the memory of the one before. The plans of functions and
// models are written as a whole later.
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

// begin makes an empty plan for function i.
func (o *Output) begin(i int, w *wish) *FunctionPlan {
	f, at, end := &o.Functions[i], w.first, w.end
	*f = FunctionPlan{Evaluate: o.parts[at:end:end], Allotted: o.allotted[at:end:end], Why: o.why[at:end:end]}
	return f
}

// more adds n zero elements to a list and returns them; what has been returned before stays where it is.
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

// Pick appends to picked the candidates that evaluate the query with the number u, from 0 to 1. The parts lie end to end
// round a circle of length 1, in the candidates' order, and u is a point of it: parts whose sum is at most 1 do not
// overlap, and others cover the circle before anything is covered twice. A query that nobody is picked for is refused.
// Numbers that are spread evenly, such as multiples of the golden ratio, give each candidate its part of any few queries
// in a row.
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
