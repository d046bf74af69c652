package scheduler

import "github.com/xebec-serving/xebec/api"

// ReplicaID names one replica. An id is never used twice, not even after its replica is gone.
type ReplicaID uint64

// Item is one query on its way through a scheduler, with the owner to notify.
//
// The owner fills Query and Owner and hands the item over with Arrive (or the driver's Submit). From then on it neither
// reads nor writes the item until it is called: after Answered it may read the item (with code OK also its Result), and
// Released returns the item. An item may then be reused for another query without being cleared.
type Item struct {
	api.Query
	Owner Owner
	// Sticky, unless it is 0, is the query's kind: queries of one kind go to one replica, as long as it takes batches. A full
	// replica lets them wait. They are not sent twice; one that is tried again, because its replica died or its batch failed,
	// may go to any replica.
	Sticky uint64
	// Trial: the query is one of a replica's first, or it is evaluated at a low priority, so that its time says nothing about
	// that of later ones. Nothing is learned from its batch.
	Trial bool
	// Link belongs to the driver from Submit to Released. A Machine never looks at it.
	Link Link

	seq        uint64 // order of acceptance; breaks ties between deadlines
	acceptedAt api.Nanos
	bytes      int
	place      place
	answered   bool
	retried    bool     // lost once with a replica, or in a batch that failed; must travel in a batch of its own
	failed     api.Code // of the batch in which it failed, if it is to be evaluated alone for that
	failedOf   int      // the size of that batch
	suspect    bool     // a replica died on its twin
	probe      bool     // admitted, and evaluated, although a profile predicts that it will be late
	hedged     bool     // sent twice
	home       *replica // while place is atHome: whose queue it is in; nil for homeless
	// While place is twinPending: how its own batch has ended.
	outcome outcome
	code    api.Code

	winner *api.Query // the query that has the outputs, if not the item's own
	twin   *Item      // its stand-in when it is sent twice; kept once allocated
	twinOf *Item      // of a twin: the item that it stands in for
}

// Result is the query with the outputs and the confidence that answer the item: the item's own or, if it was sent to
// two replicas, that of the replica that answered first. It is valid from Answered with OK, or Released with OK, until
// the item is reused. The inputs of the result are not valid.
func (it *Item) Result() *api.Query {
	if it.winner != nil {
		return it.winner
	}
	return &it.Query
}

// SetResult stores outputs that the scheduler did not produce, for example a cache hit. The caller must own the item.
func (it *Item) SetResult(outputs []api.Value, confidence float64) {
	it.winner = nil
	it.Outputs, it.Confidence = outputs, confidence
}

// Link is a driver's state in each item, so that the driver does not allocate: see package driver.
type Link struct {
	// Next chains items on their way into a machine.
	Next *Item
	// Handoff and Final order an early answer before the release when two goroutines deliver them. Handoff is accessed
	// atomically.
	Handoff uint32
	Final   api.Code
}

// Owner is notified how a query ended. A machine never calls it: it emits an [End], and the driver makes the call,
// never while holding its lock.
type Owner interface {
	// Answered is called exactly once, when the caller gets its answer. If code is OK, the item's Result is valid;
	// otherwise it must not be read before Released, because a transport may be writing it. The item's own Outputs and
	// Confidence must not be read before Released even with OK: another replica may still be writing them.
	Answered(it *Item, code api.Code)
	// Released is called exactly once, after Answered, and returns the item to the owner. If final is OK, its Result is
	// valid, though it may have come too late for the caller.
	Released(it *Item, final api.Code)
}

// place says where a machine keeps an item.
type place uint8

// The legal transitions: nowhere → queued | nowhere (refused); queued → inFlight | late | nowhere; late → inFlight |
// nowhere; inFlight → nowhere | queued | late (its replica died before it began) | retrying (after it began) |
// twinPending (its twin is still in a batch); twinPending → as inFlight, but not twinPending; retrying → inFlight |
// nowhere. A twin is nowhere or inFlight. A sticky query is atHome where others are queued, and never late before it was in a
// batch.
const (
	nowhere     place = iota
	queued            // in its function's sub-queue, by deadline
	late              // answered at its deadline, still worth evaluating until it expires
	retrying          // lost with a replica; waits for a batch of its own
	inFlight          // in a batch on a replica
	twinPending       // its own batch has ended, its twin's has not
	atHome            // sticky: in the queue of its home, by deadline
)
