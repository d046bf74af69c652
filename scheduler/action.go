package scheduler

import "github.com/xebec-serving/xebec/api"

// Dispatch: send Batch to Replica. The batch and its slices are the machine's own; the transport may read them until it
// reports the batch done, its sending failed or the replica gone, and not after.
type Dispatch struct {
	Replica ReplicaID
	Batch   *api.Batch
	// Hedge: all of its queries are in another replica's batch too, which is late.
	Hedge bool
}

// EndKind says which of an owner's two calls are due.
type EndKind uint8

const (
	// Both: Answered and then Released, with the same code.
	Both EndKind = iota
	// AnswerOnly: Answered. The query stays (in flight, with OK on a second replica, or queued until it expires) and its
	// ReleaseOnly comes later.
	AnswerOnly
	// ReleaseOnly: Released, for a query that was answered before.
	ReleaseOnly
)

// End: tell the item's owner. After Both or ReleaseOnly the machine has forgotten the item.
type End struct {
	Item *Item
	Code api.Code
	Kind EndKind
}

// Kill: this replica does not answer any more; end it, and report it gone. Said once per replica.
type Kill struct {
	Replica ReplicaID
	Reason  string
}

// Evaluated: a batch came back. For measuring only.
type Evaluated struct {
	Replica ReplicaID
	Queries int
	// EvalNanos is the time the replica spent on it, without the time behind the batch before it.
	EvalNanos int64
	Code      api.Code
}

// Actions is what a machine wants done, in the order in which it decided within each list. The lists are meant to be
// carried out in the order of the fields: what keeps replicas busy comes first.
type Actions struct {
	Dispatches []Dispatch
	Kills      []Kill
	Ends       []End
	// Drained lists replicas that were told to drain and hold nothing any more (or are gone). Said once per drain.
	Drained   []ReplicaID
	Evaluated []Evaluated
	// EndTurn, when it is not 0, says that the machine's turn on its device is over and how long it was, in nanoseconds;
	// WantTurn that it asks for one. Where both are set, the end comes first.
	EndTurn  int64
	WantTurn bool
}

// Reset empties the lists, keeping their memory but no pointer that they held.
func (a *Actions) Reset() {
	clear(a.Dispatches)
	clear(a.Kills)
	clear(a.Ends)
	a.Dispatches, a.Kills, a.Ends = a.Dispatches[:0], a.Kills[:0], a.Ends[:0]
	a.Drained, a.Evaluated = a.Drained[:0], a.Evaluated[:0]
	a.EndTurn, a.WantTurn = 0, false
}
