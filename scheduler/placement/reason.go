package placement

// Shortage says why a model gets less than it wants.
type Shortage uint8

const (
	// NotShort: the model gets what it wants.
	NotShort Shortage = iota
	// NoRoom: the missing replicas do not fit now, and the claims that have the room are as good or better.
	NoRoom
	// Fragmented: the nodes together have room for one more, but no single node has.
	Fragmented
	// NeverFits: one replica takes more than any node's budget.
	NeverFits
	// Evicted: the model loses replicas to better claims.
	Evicted
	// Outgrown: the model loses replicas because running replicas have grown beyond the budget, and its claims are the
	// worst.
	Outgrown
	// Held: the model is fixed, and its number is left as it is.
	Held

	shorts // their number
)

var shortTexts = [shorts]string{
	NotShort:   "",
	NoRoom:     "no room",
	Fragmented: "room in pieces",
	NeverFits:  "larger than any node",
	Evicted:    "evicted for others",
	Outgrown:   "the node is outgrown",
	Held:       "held as it is",
}

// String returns a few words for logs and metrics. The caller says what an operator can do about it.
func (s Shortage) String() string {
	if s >= shorts {
		return "unknown"
	}
	return shortTexts[s]
}

// Dimension is one kind of resource.
type Dimension uint8

// Resources has the amount of each.
const (
	NoDimension Dimension = iota
	CPU
	Memory
	GPUs
)

// Fits reports whether a replica that takes the given resources fits on one of the nodes if nothing else runs there. If
// not, lacks is the dimension that is exceeded most on the node that comes closest, the first one if there are several,
// or NoDimension without nodes. It serves to refuse a model when it is declared rather than each time it is wanted.
func Fits(takes Resources, nodes []Node) (ok bool, lacks Dimension) {
	need, closest := amountsOf(takes), 0.0
	needs := need.needed()
	for i := range nodes {
		budget := amountsOf(nodes[i].Budget)
		if needs.within(&budget) {
			return true, NoDimension
		}
		worst, in := 0.0, NoDimension
		for d := range need {
			// The +1 allows comparing dimensions that a node lacks altogether.
			if over := (need[d] + 1) / (budget[d] + 1); need[d] > budget[d] && over > worst {
				worst, in = over, Dimension(d+1)
			}
		}
		if lacks == NoDimension || worst < closest {
			closest, lacks = worst, in
		}
	}
	return false, lacks
}
