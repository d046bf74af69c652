package placement

import "github.com/xebec-serving/xebec/api"

// Resources is an amount of resources: thousandths of a core, bytes of memory, whole GPUs. Negative values count as 0.
type Resources struct {
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int64
}

// Node is a machine with a budget.
type Node struct {
	// Key is stable from call to call.
	Key    uint64
	Budget Resources
}

// Model is one model version that wants replicas or has some.
type Model struct {
	// Key is stable from call to call and unique. It decides between otherwise equal claims.
	Key uint64
	// Weight is its share if there is not enough for all; 0 means 1. It is limited to 0.01 to 100.
	Weight float64
	// Takes is what one replica takes, declared or measured.
	Takes Resources
	// Wanted is how many replicas it is to have. Min of them are required by the operator.
	Wanted, Min int
	// Waiting is how many queries wait for it while it has no replica. Rate is its queries per second. LastUsed is when
	// its last query arrived, or when its newest replica became ready if that was later, so that a replica that has
	// just started is not the longest unused.
	Waiting  int
	Rate     float64
	LastUsed api.Nanos
	// Fixed replicas (of a version that is being loaded or unloaded) are neither evicted nor moved: their number on
	// each node is taken as it is.
	Fixed bool
	// Placed is how many replicas it has on each node of the input, including starting ones; nil: none. If it is
	// shorter than Nodes, the rest is 0. Entries beyond Nodes and negative values are ignored.
	Placed []int32
}

// Input is everything that a placement is made from. Models that want nothing and have nothing may be left out.
type Input struct {
	Now    api.Nanos
	Nodes  []Node
	Models []Model
}

// Output is the placement. Its memory is reused.
type Output struct {
	// Placed is how many replicas each model is to have on each node: Placed[m×len(Nodes)+n].
	Placed []int32
	// Granted is each model's sum over the nodes. Short says why it is less than wanted.
	Granted []int32
	Short   []Shortage
	// Free is what is left on each node, negative if running replicas take more than the budget.
	Free []Resources
}
