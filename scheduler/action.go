package scheduler

import "github.com/xebec-serving/xebec/api"

// Dispatch asks for Batch to be sent to Replica. The machine owns the batch and its slices. The transport may read them
// until it reports the batch done, its sending failed, or the replica gone.
type Dispatch struct {
	Replica ReplicaID
	Batch   *api.Batch
	// Hedge is set when all of its queries are also in another replica's batch, which is late.
	Hedge bool
}

// EndKind says which of the owner's two methods to call.
type EndKind uint8

const (
	// Both: call Answered, then Released, with the same code.
	Both EndKind = iota
	// AnswerOnly: call Answered. The query stays in the machine (in flight, still at another replica after an OK, or
	// queued until it expires) and its ReleaseOnly comes later.
	AnswerOnly
	// ReleaseOnly: call Released, for a query that was answered before.
	ReleaseOnly
	// GivenBack: hand the query back as it was, see [Machine.GiveBack]. It was neither answered nor released.
	GivenBack
)

// End asks for a call of the item's owner. After Both, ReleaseOnly or GivenBack the machine keeps no reference to the
// item.
type End struct {
	Item *Item
	Code api.Code
	Kind EndKind
}

// Kill asks for the end of a replica that no longer answers. Report it gone afterwards. Emitted once per replica.
type Kill struct {
	Replica ReplicaID
	Reason  string
}

// Evaluated reports a batch that came back, for metrics only.
type Evaluated struct {
	Replica ReplicaID
	Queries int
	// EvalNanos is the time that the replica spent on the batch, without the time it waited behind another.
	EvalNanos int64
	Code      api.Code
}

// Actions is what the machine asks for. Each list is in the order of the decisions. Carry the lists out in the order of
// the fields: what keeps replicas busy comes first.
type Actions struct {
	Dispatches []Dispatch
	Kills      []Kill
	Ends       []End
	// Drained lists replicas that were told to drain and now hold no batch (or are gone). Emitted once per drain.
	Drained   []ReplicaID
	Evaluated []Evaluated
	// EndTurn, if not 0, ends the machine's turn on its device; the value is the turn's length in nanoseconds. WantTurn
	// asks for a turn. If both are set, the end comes first.
	EndTurn  int64
	WantTurn bool
}

// moveTo moves the actions into to, which it empties first, and takes over the memory of its lists. Most calls have one or two lists to
// move, and a list costs three stores that the garbage collector may want to know of.
func (a *Actions) moveTo(to *Actions) {
	to.Reset()
	if len(a.Dispatches) > 0 {
		to.Dispatches, a.Dispatches = a.Dispatches, to.Dispatches
	}
	if len(a.Kills) > 0 {
		to.Kills, a.Kills = a.Kills, to.Kills
	}
	if len(a.Ends) > 0 {
		to.Ends, a.Ends = a.Ends, to.Ends
	}
	if len(a.Drained) > 0 {
		to.Drained, a.Drained = a.Drained, to.Drained
	}
	if len(a.Evaluated) > 0 {
		to.Evaluated, a.Evaluated = a.Evaluated, to.Evaluated
	}
	to.EndTurn, to.WantTurn = a.EndTurn, a.WantTurn
	a.EndTurn, a.WantTurn = 0, false
}

// Reset empties the lists. It keeps their memory and clears the pointers in them.
func (a *Actions) Reset() {
	if len(a.Dispatches) > 0 {
		clear(a.Dispatches)
		a.Dispatches = a.Dispatches[:0]
	}
	if len(a.Kills) > 0 {
		clear(a.Kills)
		a.Kills = a.Kills[:0]
	}
	if len(a.Ends) > 0 {
		clear(a.Ends)
		a.Ends = a.Ends[:0]
	}
	a.Drained, a.Evaluated = a.Drained[:0], a.Evaluated[:0]
	a.EndTurn, a.WantTurn = 0, false
}
