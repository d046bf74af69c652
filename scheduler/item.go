package scheduler

import "github.com/xebec-serving/xebec/api"

// ReplicaID names one replica. Its giver never uses an id twice, not even after the replica is gone.
type ReplicaID uint64

// Item is one query on its way through a scheduler, with whoever is to be told how it ended.
//
// The owner fills Query and Owner, hands the item over with Arrive (or the driver's Submit), and from then on neither
// reads nor writes it until it is told: Answered gives it leave to read the item (with code OK also its Result), Released
// gives the item back. An item may then be used again for another query without being cleared.
type Item struct {
	api.Query
	Owner Owner
	// Link belongs to the driver from Submit to Released. A Machine never looks at it.
	Link Link

	seq        uint64 // order of acceptance; breaks ties between deadlines
	acceptedAt api.Nanos
	bytes      int
	place      place
	answered   bool
	retried    bool // lost once with a replica; travels in a batch of its own
	probe      bool // let in against what a profile says, and evaluated against it too
	hedged     bool // sent twice
	// While place is hedged: how its own batch has ended.
	fate fate
	code api.Code

	winner *api.Query // who has the outputs, where that is not the item's own query
	twin   *Item      // what travels in its place when it is sent twice; kept from the first time on
	of     *Item      // of a twin: the item that it is of
}

// Result is the query with the outputs and the confidence that answer the item: its own, or where it was sent to two
// replicas that of the one who answered first. It is valid from Answered with OK on, or Released with OK, until the item is
// used again. Its inputs are not.
func (it *Item) Result() *api.Query {
	if it.winner != nil {
		return it.winner
	}
	return &it.Query
}

// SetResult gives an item that is its owner's outputs that no machine has had evaluated, such as those of a cache.
func (it *Item) SetResult(outputs []api.Value, confidence float64) {
	it.winner = nil
	it.Outputs, it.Confidence = outputs, confidence
}

// Link is what a driver needs in each item so that it allocates nothing: see package driver.
type Link struct {
	// Next chains items on their way into a machine.
	Next *Item
	// Handoff and Final order an early answer before the release, when two goroutines deliver them. Handoff is accessed
	// atomically.
	Handoff uint32
	Final   api.Code
}

// Owner is told how a query ended. A machine never calls it: it emits an [End], and the driver calls, never under its
// lock.
type Owner interface {
	// Answered is called exactly once: the caller has its answer. The item's Result is valid when code is OK; otherwise it
	// must not be touched before Released, for a transport may be writing it. Outputs and Confidence of the item itself never
	// are to be read before, also with OK: another replica may still be writing them.
	Answered(it *Item, code api.Code)
	// Released is called exactly once, after Answered: the item is the owner's again. When final is OK its Result is
	// valid, though it may have come too late for the caller.
	Released(it *Item, final api.Code)
}

// place says where a machine keeps an item.
type place uint8

// The legal transitions: nowhere → queued | nowhere (refused); queued → flying | late | nowhere; late → flying | nowhere;
// flying → nowhere | queued | late (its replica died before it began) | again (after it began) | hedged (its twin is still in
// a batch); hedged → as flying, but not hedged; again → flying | nowhere. A twin is nowhere or flying.
const (
	nowhere place = iota
	queued        // in its function's sub-queue, by deadline
	late          // answered at its deadline, still worth evaluating until it expires
	again         // lost with a replica, waits for a batch of its own
	flying        // in a batch on a replica
	hedged        // its batch has ended, that of its twin has not
)
