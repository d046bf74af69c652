package scheduler

import "github.com/xebec-serving/xebec/api"

// ReplicaID names one replica. Its giver never uses an id twice, not even after the replica is gone.
type ReplicaID uint64

// Item is one query on its way through a scheduler, with whoever is to be told how it ended.
//
// The owner fills Query and Owner, hands the item over with Arrive (or the driver's Submit), and from then on neither
// reads nor writes it until it is told: Answered gives it leave to read the item (with code OK also the outputs),
// Released gives the item back. An item may then be used again for another query without being cleared.
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
	// Answered is called exactly once: the caller has its answer. Outputs are valid when code is OK; otherwise they must
	// not be touched before Released, for a transport may be writing them.
	Answered(it *Item, code api.Code)
	// Released is called exactly once, after Answered: the item is the owner's again. When final is OK the outputs are
	// valid, though they may have come too late for the caller.
	Released(it *Item, final api.Code)
}

// place says where a machine keeps an item.
type place uint8

// The legal transitions: nowhere → queued | nowhere (refused); queued → flying | late | nowhere; late → flying | nowhere;
// flying → nowhere | queued | late (its replica died before it began) | again (after it began); again → flying | nowhere.
const (
	nowhere place = iota
	queued        // in its function's sub-queue, by deadline
	late          // answered at its deadline, still worth evaluating until it expires
	again         // lost with a replica, waits for a batch of its own
	flying        // in a batch on a replica
)
