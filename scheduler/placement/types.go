package placement

import "github.com/xebec-serving/xebec/api"

// Resources is an amount of what a node has: thousandths of a core, bytes of memory, whole GPUs. What is negative counts as 0.
type Resources struct {
	CPUMillis   int64
	MemoryBytes int64
	GPUs        int64
}

// Node is a machine with a budget.
type Node struct {
	// Key stays the same from call to call.
	Key    uint64
	Budget Resources
}

// Model is one model version that wants replicas, or has some.
type Model struct {
	// Key stays the same from call to call, and is another one for each model: it decides between claims that are equal in everything else.
	Key uint64
	// Weight is its share where there is not enough for all; 0 means 1, and 0.01 to 100 is what counts.
	Weight float64
	// Takes is what one replica takes: declared, or as measured.
	Takes Resources
	// Wanted is how many replicas it is to have, Min how many of them an operator has asked for in any case.
	Wanted, Min int
	// Waiting is how many queries wait for it while it has no replica; Rate is its queries per second, LastUsed when its last query came, or
	// when its newest replica became ready if that was later: one that has only just started is not the longest unused.
	Waiting  int
	Rate     float64
	LastUsed api.Nanos
	// Fixed replicas (of a version that is being loaded or unloaded) are neither evicted nor moved: their number on each node is taken as it is.
	Fixed bool
	// Placed is how many replicas it has on each node of the input, starting ones included; nil: none. Where it is shorter than Nodes the rest
	// is 0, and what is beyond them counts for nothing, like what is negative.
	Placed []int32
}

// Input is everything that a placement is made from. Models that want nothing and have nothing need not be in it.
type Input struct {
	Now    api.Nanos
	Nodes  []Node
	Models []Model
}

// Output is who gets what. Its memory is reused.
type Output struct {
	// Placed is how many replicas each model is to have on each node: Placed[m×len(Nodes)+n].
	Placed []int32
	// Granted is the sum over the nodes for each model, Short says why it is less than was wanted.
	Granted []int32
	Short   []Short
	// Free is what is left on each node; negative where what runs takes more than there is.
	Free []Resources
}
