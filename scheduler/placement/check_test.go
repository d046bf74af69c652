package placement

import (
	"fmt"
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// String returns the dimension's name within a sentence.
func (d Dimension) String() string {
	return [...]string{NoDimension: "", CPU: "CPU", Memory: "memory", GPUs: "GPUs"}[d]
}

// problem returns what is wrong with a plan, by what every plan promises, or "". The amounts must be valid.
func problem(in *Input, out *Output) string {
	nodes := len(in.Nodes)
	if len(out.Placed) != nodes*len(in.Models) || len(out.Granted) != len(in.Models) || len(out.Short) != len(in.Models) || len(out.Free) != nodes {
		return fmt.Sprintf("the output has the wrong size: %+v", out)
	}
	used, fixed, started, idle := make([]amounts, nodes), make([]amounts, nodes), make([]amounts, nodes), make([]bool, nodes)
	room := amounts{}
	for i := range in.Models {
		m := &in.Models[i]
		takes, sum := amountsOf(m.Takes), 0
		for j := range nodes {
			placed, had := int(out.Placed[i*nodes+j]), 0
			if j < len(m.Placed) {
				had = max(0, int(m.Placed[j]))
			}
			sum += placed
			used[j].add(&takes, float64(placed))
			switch {
			case placed < 0:
				return fmt.Sprintf("model %d has %d replicas on node %d", i, placed, j)
			case m.Fixed && placed != had:
				return fmt.Sprintf("model %d is fixed, but gets %d replicas on node %d instead of %d", i, placed, j, had)
			case m.Fixed:
				fixed[j].add(&takes, float64(placed))
			case placed > had:
				started[j].add(&takes, 1)
			}
			idle[j] = idle[j] || placed > 0
		}
		wanted := max(0, min(m.Wanted, maxReplicas))
		switch {
		case int(out.Granted[i]) != sum:
			return fmt.Sprintf("model %d: Granted is %d, the sum of Placed %d", i, out.Granted[i], sum)
		case sum > wanted && !m.Fixed:
			return fmt.Sprintf("model %d wants %d replicas and gets %d", i, wanted, sum)
		case (out.Short[i] == NotShort) != (sum >= wanted):
			return fmt.Sprintf("model %d gets %d of %d: %v", i, sum, wanted, out.Short[i])
		}
	}
	for j := range nodes {
		budget := amountsOf(in.Nodes[j].Budget)
		for d := range budget {
			free := budget[d] - used[j][d]
			room[d] = free
			if got := amountsOf(out.Free[j]); math.Abs(got[d]-max(0, free)) > 1 {
				return fmt.Sprintf("node %d has %v of %v free, but Free says %v", j, free, Dimension(d+1), got[d])
			}
			if started[j][d] > 0 && free < 0 {
				return fmt.Sprintf("a replica is started on node %d with a budget of %v of %v, %v of which would be used", j, budget[d], Dimension(d+1), used[j][d])
			}
			if used[j][d] > budget[d]*(1+overdraft) && used[j][d] > fixed[j][d] {
				return fmt.Sprintf("node %d with a budget of %v of %v keeps %v", j, budget[d], Dimension(d+1), used[j][d])
			}
		}
		for i := range in.Models {
			takes, none := amountsOf(in.Models[i].Takes), amounts{}
			if !in.Models[i].Fixed && out.Short[i] != NotShort && takes.fits(&none, &room) {
				return fmt.Sprintf("model %d lacks a replica (%v) although node %d has room for it: %+v", i, out.Short[i], j, out.Free[j])
			}
		}
	}
	return ""
}

// again returns the plan for a finished plan.
func again(in *Input, out *Output) *Output {
	next := *in
	next.Models = slices.Clone(in.Models)
	for i := range next.Models {
		next.Models[i].Placed = nil
	}
	applyPlan(&next, out)
	after := &Output{}
	New().Plan(&next, after)
	return after
}

// inUse returns a model that was last used at a plan's Now.
func inUse(key int, now api.Nanos, takes Resources, wanted int) Model {
	return Model{Key: uint64(key), Takes: takes, Wanted: wanted, Rate: 1, LastUsed: now}
}
