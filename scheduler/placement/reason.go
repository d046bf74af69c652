package placement

// Short says why a model gets less than it wants.
type Short uint8

const (
	// NotShort: it gets what it wants.
	NotShort Short = iota
	// NoRoom: what it lacks does not fit now, and whoever has the room has a claim as good or a better one.
	NoRoom
	// Fragmented: the nodes together have room for one more, but no node has it alone.
	Fragmented
	// NeverFits: one replica takes more than any node's budget.
	NeverFits
	// Evicted: it loses replicas to others with a better claim.
	Evicted
	// Outgrown: it loses replicas because what runs has grown beyond the budget, and they are the least useful.
	Outgrown
	// Held: it is fixed, and its number is left as it is.
	Held

	shorts // how many there are
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

// String is a word or two, for logs and metrics; what a person can do about it is the caller's to say.
func (s Short) String() string {
	if s >= shorts {
		return "unknown"
	}
	return shortTexts[s]
}

// Dimension is one kind of what a node has.
type Dimension uint8

// What a node has of each is in Resources.
const (
	NoDimension Dimension = iota
	CPU
	Memory
	GPUs
)

// String is the dimension's name within a sentence.
func (d Dimension) String() string {
	switch d {
	case NoDimension:
		return ""
	case CPU:
		return "CPU"
	case Memory:
		return "memory"
	case GPUs:
		return "GPUs"
	}
	return "unknown"
}

// Fits reports whether a replica that takes so much fits on one of the nodes if nothing else runs there. If not, lacks is the
// dimension that is exceeded most on the node that comes closest, the first of them if several do; NoDimension where there
// is no node. It is for refusing a model when it is declared, rather than each time it is wanted.
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
			// Smoothed, so that what is missing altogether can be compared too.
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
