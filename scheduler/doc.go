// Package scheduler decides which query goes to which replica, when, and with whom: the queues, batches, batch caps and
// latency profiles of one model version.
//
// It is a state machine and nothing else. A [Machine] is told what happened and what time it is, and says what is to be
// done. It owns no clock, no goroutine and no lock, does no I/O and allocates nothing once it has seen as much load as it
// gets; the same events always lead to the same actions. That is why it can be tested by transcripts (testdata/*.txt:
// start with basics.txt), by random events, and one day simulated against recorded traffic. Package driver puts it to
// work.
//
// # The caller's duties, in their order
//
//  1. Report what happened: [Machine.Arrive], [Machine.Cancel], [Machine.ReplicaReady], [Machine.BatchDone],
//     [Machine.ReplicaGone], [Machine.ReplicaDrain], [Machine.Advance] when [Machine.NextWake] has come. Report all that
//     is at hand before going on: queries that arrive together shall travel together.
//  2. Call [Machine.Ready]. It fills an [Actions].
//  3. Send every [Dispatch] first, for that is what keeps replicas busy. Report with [Machine.SendFailed] what a transport
//     did not take, and go back to 2.
//  4. Carry out the rest: [Kill], [End] (call the owners, outside of any lock), Drained.
//  5. Arrange for step 1 to happen at NextWake, if nothing else happens before.
//
// Time is given to every event as [api.Nanos] of one monotonic clock. Events need not be in its exact order: a completion
// carries the time at which it was seen. The machine's own time never goes back.
//
// # Who owns what
//
// An [Item] is its owner's until Arrive and again from Released on (an [End] of kind Both or ReleaseOnly). In between the
// machine holds it, and a transport reads its inputs and writes its outputs while it is in a batch. A refused query is
// released like any other. An [api.Batch] is the machine's: the transport may use it from its Dispatch until it reports
// BatchDone, SendFailed or ReplicaGone. The lists of an Actions are the caller's until it hands them to Ready again.
//
// Every query that arrives is answered exactly once and released exactly once, not before its answer. The two fall apart
// in one case: at its deadline a caller has its answer, whatever happens; but the item of a query in flight stays with
// its batch, for a worker may be writing its outputs, and one that has a longer life (Expires) than its deadline waits
// on, behind all whose callers wait too, to fill the cache.
//
// # How a batch is formed
//
// Each function that uses the model has a sub-queue by deadline (earliest deadline first, ties by arrival). A batch is
// filled by deficit round robin over the functions' weights, from the heads of the sub-queues, up to the replica's cap
// and the bytes that a batch may have; no place stays empty while anybody waits.
//
// A replica that is idle gets a batch the moment something waits (unless a hold is configured, see [Batching]). If
// several are idle, the one that would be done first.
//
// A replica that is busy gets a further batch, up to its depth, when that batch is full; or when it need not be, because
// a batch costs next to nothing by itself: a fixed cost of at most 100 µs by its profile. A batch behind another starts
// no sooner for being sent, and grows while it is kept. Sending it at once splits the load of n clients into three
// groups (in evaluation, behind it, in the queue) where two would do, and every group pays the fixed cost. What waiting
// costs is one hand-over between two batches, 30 µs in this simulation (pipeline_test.go; queries/s, mean latency):
//
//	a batch of n takes    clients   second batch at once     when full             as built
//	2 ms + 10 µs × n            8     1.3k/s   6.07 ms      1.9k/s   4.13 ms      1.9k/s   4.13 ms
//	                           64     9.6k/s   6.52 ms     13.6k/s   4.57 ms     13.6k/s   4.57 ms
//	                          512    45.0k/s  10.59 ms     54.5k/s   8.54 ms     54.5k/s   8.54 ms
//	200 µs + 2 µs × n          64    88.0k/s   0.64 ms    108.9k/s   0.48 ms    108.9k/s   0.48 ms
//	50 µs + 1 µs × n           64     286k/s   0.18 ms      273k/s   0.17 ms      286k/s   0.18 ms
//	5 µs + 0.5 µs × n          64     581k/s   0.07 ms      518k/s   0.07 ms      581k/s   0.07 ms
//
// Under full load both fill the pipeline, and no replica ever waits for a hand-over.
//
// # What is known of a replica
//
// Its cap adapts ([Policy]); its profile is a line through (batch size, evaluation time) by least squares with
// exponential decay, and a decayed histogram for the P99. The profile chooses between replicas, tells when a silent one
// is hung, and refuses queries early: one that would end after its deadline, by all that is known, is answered with
// Overloaded on arrival instead of at its deadline, and does not delay others. It takes 16 batches before a profile is
// believed, and a cap that has found its limit; and one query a second and replica is let through all the same, so that
// a wrong profile heals.
//
// # When a replica dies
//
// Queries that it had begun are tried once more, each in a batch of its own: one of them may be what killed it, and it
// shall not take the others along. For the same reason such a batch is sent only to an idle replica, and nothing is sent
// behind it; while any of them wait, no replica gets a second batch. Those that it had not begun wait again by their
// deadlines, as if they had not been sent.
//
// # What is to come
//
// The epoch planner, a pure function from snapshots to plans, will set shares, caps, holds and shedding: [Plan] is its
// place, and honoured already. Quantile regression will be another controller beside AIMD.
package scheduler
