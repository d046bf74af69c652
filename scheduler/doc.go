// Package scheduler decides which query goes to which replica, when, and with whom: the queues, batches, batch caps and
// latency profiles of one model version.
//
// It is a state machine and nothing else. A [Machine] is told what happened and what time it is, and says what is to be
// done. It owns no clock, no goroutine and no lock, does no I/O and allocates nothing once it has seen as much load as it
// gets; the same events always lead to the same actions. That is why it can be tested by transcripts (testdata/*.txt:
// start with basics.txt), by random events, and by simulation (package sim). Package driver puts it to
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
// in two cases. At its deadline a caller has its answer, whatever happens; but the item of a query in flight stays with
// its batch, for a worker may be writing its outputs, and one that has a longer life (Expires) than its deadline waits
// on, behind all whose callers wait too, to fill the cache. And a query that was sent to two replicas is answered when the
// first of them has answered, with OK or without, and released when both are done with it. So nobody reads an item's
// outputs but through [Item.Result], which knows whose they are.
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
// Nor is it sent long before the replica is done (1 to 2 ms, where a batch takes longer than that): a batch that has been
// sent cannot be overtaken. A function that floods would have one batch in evaluation and one behind it, and a query of
// another function that comes then would wait for both and be evaluated in a third, which is 1.2 of a latency objective
// where batches take two fifths of it: nothing that the round robin shares out could help it.
//
// # How caps adapt
//
// A cap is to be the largest batch that is evaluated within the objective. Two controllers look for it. [AIMD] (Crankshaw
// et al., Clipper, NSDI 2017, section 4.3.1) adds 2 after a full batch below 90 % of the objective, rests up to 100 %, and
// takes a tenth after a miss. From 1 to 500 that is 250 batches, so it has a fast start, as TCP has (Jacobson 1988), but one
// that need not overshoot: a batch costs T(n) = a + b·n with a ≥ 0, hence T(k·n) ≤ k·T(n), and what one batch took bounds
// what a larger one can take. With 1 ms + 100 µs × n and 10 ms the caps are 2 4 8 16 32 64, then 64 × 9/7.4 = 77, 79, 81:
// at 9.1 ms it rests. When the core is throttled to half its speed, six misses bring it to 45 and a seventh to 40; when it
// is back, eight batches in a row at about half of the objective are no luck, and the cap goes where the slowest of
// them proves. A pause is one miss, however long, and batches that were sent before a cap fell do not lower it again.
//
// [Quantile] draws the P99 line through (size, time) of the last 256 batches by linear quantile regression (Koenker and
// Bassett, Econometrica 46, 1978) and allows what the line puts at the objective: 90 in the example, not 81; and where
// times scatter by 5 %, 89 % of that, since then one batch in a hundred takes 12 % longer than the median. Its price is
// 6.5 KiB a replica and microseconds a batch instead of nanoseconds, and a P99 forgets slowly. So it does not wait for
// old samples to leave: when the median of the last 16 batches has left the bulk of those before, older times are scaled
// to the new speed (about ten batches).
//
// Both say when they have settled: a cap that still grows says nothing of what the replica can do, and no query is
// refused for it.
//
// # What is known of a replica, and who is refused
//
// Its cap adapts; its profile is a line through (batch size, evaluation time) by least squares with exponential decay,
// how far off that line its times are (2.5 standard deviations are the margin), and a decayed histogram for the P99. The
// profile chooses between replicas, tells when a silent one is hung, and refuses queries early: one that would end after
// its deadline, by all that is known, is answered with Overloaded on arrival instead of at its deadline, and does not
// delay others. Whole batches are counted, for under load those who come later fill them up; those of other functions
// that will come meanwhile are counted too, as far as the weights let them go first. It takes 16 batches before a profile
// is believed, and a cap that has found its limit; and one query a second and replica is let through all the same, so
// that a wrong profile heals.
//
// When a batch is formed the profile is asked once more. A query that cannot make it any more, or not in a full batch while
// others wait who can, is passed over and answered with Overloaded. This matters more than it seems: earliest deadline
// first, by itself, collapses under overload, since the most urgent are those that will be late, they are evaluated for
// nobody, and by then the next ones are just as late (3 % of the capacity was useful, in the simulator, at five times the
// load; now 97 %). With less waiting than a batch holds, the batch is made smaller instead.
//
// # What a plan changes
//
// An epoch's [Plan] is looked up, never waited for, and none is needed. Package planner makes one every 10 ms: its essay has
// the objective as a formula, a worked example that a test runs, and the sources. A plan may change:
//
//   - FunctionPlan.Weight replaces a function's weight; Shed refuses a part of what arrives, evenly spread.
//   - ReplicaPlan.Shares give a replica to some functions, with a round robin of its own. Others are its guests: they are
//     served when nobody with a share waits, or in places that are left over, if that is not too late for them.
//   - ReplicaPlan.Cap, HoldNanos and ObjectiveNanos bound its batches, its holds and what its controller aims at.
//   - Execution makes batches of what waits: whole ones, split between the replicas that are idle, or streamed one by one
//     where a batch saves nothing.
//
// Model versions that share a device ([Config].Shared) send batches in their turns only. The machine asks for a turn
// ([Actions].WantTurn), gets one (TurnGranted), begins batches as long as they are expected to end in it, and gives it
// back when nothing is in flight. Turns are dealt by a [Device]: deficit round robin in time.
//
// # When a replica is late
//
// A replica stands still for a moment: a collector runs, a page is read from disk, a neighbour takes the core. Its batch is not
// lost, only late, and no deadline and no hang tells of it in time. So a batch that is late by its replica's own profile is
// sent to a second replica too, and the first answer counts: the hedged requests of Dean and Barroso (The Tail at Scale,
// CACM 56(2), 2013), which TFS² uses between its router and its serving jobs (Olston et al., TensorFlow-Serving, 2017,
// section 3.1).
//
//   - Late is who has had his oldest batch for longer than his P99, than twice the careful prediction for its size, and than
//     1 ms. A replica that takes 5 ms for the batch, give or take 4 % (a margin of 1.1), and 9 ms at P99 is late after 11 ms.
//     Batches that wait behind a late one are as late as it is. Nothing is late while the profile is not known.
//   - What is sent are twins: queries with the same inputs and memory of their own for outputs. They are sent for those whose
//     callers still wait, whose deadline the second replica makes by its own profile, and who were neither lost nor sent twice
//     before: never for a query that may be what kills replicas. Those that are left out stay where they are.
//   - The second replica idles, is known, takes that many at once, and is not kept by a plan's shares for others. If several
//     could, the one that would be done first.
//   - Hedging is off under overload, by itself: nobody is sent twice while any query waits, be it for a hold, for the idle
//     replica is theirs. And it costs little: a token bucket gives two tokens for a hundred arrivals ([HedgePart]) and holds
//     [HedgeBurst] at most. At 1,000 queries/s 20 may be sent twice each second, or a batch of 100 every 5 s.
//   - It is off for models that must not see a query twice ([Config].Retry), that do not want it ([Config].Hedge), and that
//     take turns on a device: whoever else uses it pays for a second batch, and what holds one replica up holds up both.
//
// Who fails first is not heard: a query waits for its other batch, be it to its deadline. When both have failed, all is as if
// there had been no twin, and what became of the query's own batch counts: an error is its end, one that was lost is tried once
// more, alone. Only if the twin's replica died on it too nobody else has to try it. Once a query has been answered, nothing of
// it is tried again, nor does it matter what comes later; a result that came too late for the caller is still for the cache.
//
// Each replica learns from what it has evaluated itself. The late batch counts when it is back, once, as if nothing else had
// happened: an outlier in the profile, a miss for the controller. The twins' batch counts for the second replica, whose time it
// took; it never counts as full, so that it can raise no cap. Since lateness is measured against the P99, a replica that is
// often late is soon expected to be, and about one batch in a hundred is past it, which is half of the budget.
//
// In the simulator, where each of four replicas stands still for 60 ms about every 4 s, of an objective of 50 ms
// (sim/hedge_test.go): late queries, P99.9 and the replicas' time for the same queries:
//
//	queries/s   without                          with                              sent twice, won
//	      200    4 of  4,015    6.3 ms   14.3 s     0 of  4,015   11.9 ms   14.4 s      5 of  4,434     5
//	      600   17 of 11,801      late   40.5 s     0 of 11,801   12.2 ms   40.3 s     13 of 13,046    13
//	    2,000   63 of 40,016      late   74.9 s     0 of 40,016   16.3 ms   74.9 s     56 of 44,047    56
//
// # When a replica is silent
//
// One whose oldest batch has had no answer for max(10 × its P99, the model's timeout, 1 s), or 10 s as long as nothing is known, is
// overdue. It is taken for hung, and killed, when two looks 100 ms apart have found that: a process that has itself stood still
// (SIGSTOP, a machine without memory) looks at the clock before it takes in the answers that have come meanwhile. With a timeout of 5 s
// and a pause of 6 s, the first look comes at 6 s, the answer is taken in a moment later, and nobody is killed; without an answer
// the kill comes at 6.1 s. Queries whose deadlines have passed do not wait for that. For the same reason nothing is sent twice at a look
// for late batches that comes 50 ms later than the machine had asked for, but 1 ms after it.
//
// # When a replica dies
//
// Queries that it had begun are tried once more, each in a batch of its own: one of them may be what killed it, and it
// shall not take the others along. For the same reason such a batch is sent only to an idle replica, and nothing is sent
// behind it; while any of them wait, no replica gets a second batch. Those that it had not begun wait again by their
// deadlines, as if they had not been sent.
//
// # Reading
//
// machine.go and item.go are the nouns; admit.go who is let in; dispatch.go what is sent when and where, fill.go with whom;
// batching.go and quantile.go how large; plan.go, turn.go and device.go what a plan changes; replica.go, advance.go and
// hedge.go what goes wrong. Package timer has the wheel that deadlines elsewhere wait in, package sim plays all of this under a virtual
// clock (make sim).
package scheduler
