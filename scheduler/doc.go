// Package scheduler decides which queries of one model version go to which replica, when, and in which batch. It holds
// the version's queues, batches, batch caps and latency profiles.
//
// The core is a pure state machine. A [Machine] takes events and the current time, and returns actions. It owns no
// clock, no goroutine and no lock, does no I/O, and stops allocating once it has grown to its peak load. The same
// events always lead to the same actions, so it can be tested by transcripts (testdata/*.txt: start with basics.txt),
// by random events and by simulation (package sim). Package driver adds the clock, the lock and the goroutines.
//
// # What the caller must do, in this order
//
//  1. Report what happened: [Machine.Arrive], [Machine.Cancel], [Machine.ReplicaReady], [Machine.BatchDone],
//     [Machine.ReplicaGone], [Machine.ReplicaDrain], and [Machine.Advance] when [Machine.NextWake] has come. Report all
//     events that are at hand before going on, so that queries that arrive together share a batch.
//  2. Call [Machine.Ready]. It fills an [Actions].
//  3. Send every [Dispatch] first: this keeps replicas busy. If a transport does not take one, report it with
//     [Machine.SendFailed] and go back to 2.
//  4. Carry out the rest: [Kill], [End] (call the owners without holding a lock), Drained.
//  5. Arrange for step 1 to run at NextWake if nothing else happens before.
//
// Every event carries the time as [api.Nanos] of one monotonic clock. Events may be slightly out of order, because a
// completion carries the time at which it was seen. The machine's own time never goes back.
//
// # Ownership
//
// The owner holds an [Item] until Arrive, and again from Released on (an [End] of kind Both or ReleaseOnly). In between
// the machine holds it; while it is in a batch, a transport reads its inputs and writes its outputs. A refused query is
// released like any other. The machine owns each [api.Batch]; the transport may use it from its Dispatch until it
// reports BatchDone, SendFailed or ReplicaGone. The caller owns the lists of an Actions until it passes them to Ready
// again.
//
// Every query that arrives is answered exactly once and released exactly once, in that order. Two cases separate the
// two events:
//
//   - At its deadline the caller always gets its answer. A query in flight is released only with its batch, because a
//     worker may be writing its outputs. A waiting query whose lifetime (Expires) is longer than its deadline stays
//     queued behind all queries whose callers still wait, to fill the cache.
//   - A query sent to two replicas is answered when the first of them answers, with OK or not, and released when both
//     are done with it. So read the outputs only through [Item.Result], which returns those of the right replica.
//
// # How a batch is formed
//
// Each function that uses the model has a sub-queue ordered by deadline (earliest deadline first, ties by arrival).
// Deficit round robin over the functions' weights fills a batch from the heads of the sub-queues, up to the replica's
// cap and the byte limit of a batch. No place stays empty while a query waits.
//
// An idle replica gets a batch as soon as a query waits (unless a hold is configured, see [Batching]). If several
// replicas are idle, the one that would finish first gets it.
//
// A busy replica gets a further batch, up to its depth, when that batch is full. The batch need not be full if the
// profile's fixed cost per batch is at most 100 µs. A batch queued behind another does not start sooner for being sent
// early, and it can grow while it is kept back. Sending it at once splits the load of n clients into three groups (in
// evaluation, behind it, in the queue) where two would do, and each group pays the fixed cost. Waiting costs one
// hand-over between two batches, 30 µs in this simulation (pipeline_test.go; queries/s, mean latency):
//
//	a batch of n takes    clients   second batch at once     when full             as built
//	2 ms + 10 µs × n            8     1.3k/s   6.07 ms      1.9k/s   4.13 ms      1.9k/s   4.13 ms
//	                           64     9.6k/s   6.52 ms     13.6k/s   4.57 ms     13.6k/s   4.57 ms
//	                          512    45.0k/s  10.59 ms     54.5k/s   8.54 ms     54.5k/s   8.54 ms
//	200 µs + 2 µs × n          64    88.0k/s   0.64 ms    108.9k/s   0.48 ms    108.9k/s   0.48 ms
//	50 µs + 1 µs × n           64     286k/s   0.18 ms      273k/s   0.17 ms      286k/s   0.18 ms
//	5 µs + 0.5 µs × n          64     581k/s   0.07 ms      518k/s   0.07 ms      581k/s   0.07 ms
//
// A batch that takes longer than 1 ms is sent behind another only 1 to 2 ms before the replica is expected to be idle,
// because a batch that has been sent cannot be overtaken. Otherwise a function that floods the queue would have one
// batch in evaluation and one behind it. A query of another function that arrives then would wait for both and be
// evaluated in a third. Where a batch takes two fifths of the latency objective, that is 1.2 objectives, and fair
// queueing could not prevent it.
//
// # How caps adapt
//
// The cap should be the largest batch that is evaluated within the objective. There are two adaptive controllers.
//
// [AIMD] (Crankshaw et al., Clipper, NSDI 2017, section 4.3.1) adds 2 after a full batch below 90 % of the objective,
// holds between 90 % and 100 %, and removes a tenth after a miss. Growing from 1 to 500 in steps of 2 takes 250
// batches, so it has a fast start, like TCP's slow start (Jacobson 1988), but one that does not overshoot: a batch
// costs T(n) = a + b·n with a ≥ 0, hence T(k·n) ≤ k·T(n), so the time of one batch bounds the time of a larger one.
// With 1 ms + 100 µs × n and 10 ms the caps are 2 4 8 16 32 64, then 64 × 9/7.4 = 77, 79, 81: at 9.1 ms the cap holds.
// When the core is throttled to half its speed, six misses bring the cap to 45 and a seventh to 40. When the core
// recovers, eight batches in a row at about half of the objective are not luck, and the cap jumps to the size that the
// slowest of them proves. A pause counts as one miss, however long. Batches that were sent before a cap fell do not
// lower it again.
//
// [Quantile] draws the P99 line through (size, time) of the last 256 batches by linear quantile regression (Koenker and
// Bassett, Econometrica 46, 1978) and allows the size at which the line meets the objective: 90 in the example, not 81.
// Where times scatter by 5 % it allows 89 % of that, because one batch in a hundred then takes 12 % longer than the
// median. It costs 6.5 KiB a replica, and microseconds a batch instead of nanoseconds. A P99 forgets slowly, so the
// controller does not wait for old samples to leave: when the median of the last 16 batches leaves the bulk of the
// earlier ones, it scales the older times to the new speed (after about ten batches).
//
// Both controllers report when they have settled. A cap that still grows does not show what the replica can do, so no
// query is refused because of it.
//
// # Latency profiles and early refusal
//
// Besides its cap, each replica has a profile: a line through (batch size, evaluation time) by least squares with
// exponential decay, the error of that line (2.5 standard deviations are the margin), and a decayed histogram for the
// P99. The profile chooses between replicas and sets the limit after which a silent replica counts as hung.
//
// It also refuses queries early. A query that is expected to end after its deadline is answered with Overloaded on
// arrival instead of at its deadline, and does not delay others. The estimate counts whole batches, because under load
// later arrivals fill them up. It also counts queries of other functions that will arrive meanwhile, as far as the
// weights let them go first. A profile is trusted after 16 batches, and a cap once it has settled. One query per second
// and replica is admitted in any case, so that a wrong profile heals.
//
// A profile may begin with a [Prior], what is known from earlier replicas or from before a restart. The planner and the autoscaler
// use it at once; nothing is refused because of it, and the eighth batch of the replica itself ends it.
//
// The profile is consulted again when a batch is formed. A query that can no longer meet its deadline is passed over
// and answered with Overloaded. So is one that cannot meet it in a full batch while others that can are waiting. This
// has a large effect: earliest deadline first collapses under overload, because the most urgent queries are those that
// will be late. They are evaluated for nothing, and by then the next ones are just as late. In the simulator, at five
// times the capacity, 3 % of the work was useful without this rule and 97 % with it. When fewer queries wait than a
// batch holds, the batch is made smaller instead.
//
// # What a plan changes
//
// The machine uses an epoch's [Plan] if there is one. It never waits for a plan and does not need one. Package planner
// makes one every 10 ms; its essay has the objective as a formula, a worked example that a test runs, and the sources.
// A plan may change:
//
//   - FunctionPlan.Weight replaces a function's weight. FunctionPlan.Shed refuses a part of its arrivals, evenly
//     spread.
//   - ReplicaPlan.Shares reserves a replica for some functions, with a round robin of its own. Other functions are
//     guests there: they are served when no function with a share has queries waiting, or in left-over places, if that
//     is not too late for them.
//   - ReplicaPlan.Cap, HoldNanos and ObjectiveNanos bound the replica's batches and holds, and set its controller's
//     objective.
//   - Execution says how waiting queries become batches: whole batches, batches split between the idle replicas, or
//     single queries streamed one by one where batching saves nothing.
//
// Model versions that share a device ([Config].Shared) send batches only in their turns. The machine asks for a turn
// ([Actions].WantTurn), gets one (TurnGranted), begins batches as long as they are expected to end within it, and
// returns it when nothing is in flight. A [Device] assigns the turns by deficit round robin in time.
//
// # Sticky queries
//
// A query with [Item.Sticky] goes to the home of its kind, the replica that rendezvous hashing names, and waits in that replica's own queue, by
// deadline. A replica with such queries serves them and the others in turns, batch by batch; left-over places go to either. Only the deadline counts
// between sticky queries: weights per replica and function would cost each replica a round robin, for models that rarely have two functions.
//
// # Streams
//
// The first output of a stream ([Machine.FirstOutput]) answers its query, and BatchDone releases it. A replica holds as many streams as it evaluates at
// once and none behind them ([Config].Streams). Profile, objective and the limit for hung replicas are about first outputs; how long a stream lasts
// is not known, and nothing is refused because of it. A query that has an output is not tried again when its replica is lost.
//
// # Hedging: when a replica is late
//
// A replica can stall for a moment: garbage collection, a page read from disk, another process on its core. Its batch
// is late but not lost, and deadlines and hang detection notice too late to help. So a batch that is late by its
// replica's own profile is sent to a second replica as well, and the first answer counts. These are the hedged requests
// of Dean and Barroso (The Tail at Scale, CACM 56(2), 2013), which TFS² uses between its router and its serving jobs
// (Olston et al., TensorFlow-Serving, 2017, section 3.1).
//
//   - A replica is late when its oldest batch has taken longer than its P99, than twice the careful prediction for that
//     size, and than 1 ms. A replica that takes 5 ms for the batch, give or take 4 % (a margin of 1.1), and 9 ms at P99
//     is late after 11 ms. Batches behind a late one are late too. No batch is late while the profile is not known.
//   - The second replica gets twins: queries with the same inputs and separate memory for outputs. A query gets a twin
//     if its caller still waits, the second replica meets its deadline by its own profile, and it was neither lost nor
//     hedged before, so a query that may kill replicas is never hedged. Other queries stay where they are.
//   - The second replica must be idle, have a known profile, have a cap that admits the twins, and not be reserved for
//     other functions by a plan. If several qualify, the one that would finish first is used.
//   - Overload turns hedging off: no query is sent twice while any query waits, even for a hold, because the idle
//     replica belongs to the waiting ones. The cost is bounded by a token bucket: two tokens per hundred arrivals
//     ([HedgePart]), at most [HedgeBurst]. At 1,000 queries/s, 20 may be sent twice each second, or a batch of 100
//     every 5 s.
//   - It is off for models that must not see a query twice ([Config].Retry), that disable it ([Config].Hedge), or that
//     take turns on a device: other users of the device would pay for the second batch, and a stall of the device
//     delays both replicas.
//
// The first failure is not reported: the query waits for its other batch, until its deadline if necessary. When both
// have failed, the outcome of the query's own batch counts as if there had been no twin: an error ends it, and a lost
// query is tried once more, alone. If the twin was alone and its replica also died, that try has been made, and the query
// is not tried again; of twins that were lost together, each is, so that a query that kills its replicas takes no other
// with it (it then costs three). Once a query is answered, it is not retried and later outcomes are ignored. A result that is too late for the caller still fills the
// cache.
//
// Each replica learns from what it evaluated itself. The late batch counts once, when it comes back, as it would
// without hedging: an outlier in the profile, a miss for the controller. The twins' batch counts for the second
// replica, which spent the time; it never counts as full, so it cannot raise a cap. Lateness is measured against the
// P99, so a replica that is often late is soon expected to be, and about one batch in a hundred exceeds it, which is
// half of the token budget.
//
// In the simulator, with four replicas that each stall for 60 ms about every 4 s and an objective of 50 ms
// (sim/hedge_test.go): late queries, P99.9 and the replicas' time for the same queries:
//
//	queries/s   without                          with                              sent twice, won
//	      200    4 of  4,015    6.3 ms   14.3 s     0 of  4,015   11.9 ms   14.4 s      5 of  4,434     5
//	      600   17 of 11,801      late   40.5 s     0 of 11,801   12.2 ms   40.3 s     13 of 13,046    13
//	    2,000   63 of 40,016      late   74.9 s     0 of 40,016   16.3 ms   74.9 s     56 of 44,047    56
//
// # When a replica is silent
//
// A replica is overdue when its oldest batch has had no answer for max(10 × its P99, the model's timeout, 0.8 s). Without a
// timeout it is 30 s while there is no profile, and for a batch of a size that the replica has not answered yet, because
// some models compile themselves for each size. It counts as hung, and is killed, when two checks at least 100 ms
// apart find it overdue. The second check is there because the gateway's own process may have stalled (SIGSTOP, memory
// pressure); it then looks at the clock before it reads the answers that arrived meanwhile. With a timeout of 5 s and a
// pause of 6 s, the first check runs at 6 s, the answer is read a moment later, and the replica stays; without an
// answer it is killed at 6.1 s. Queries do not wait for this: they are answered at their deadlines. For the same reason
// a check for late batches that runs 50 ms later than the machine asked for sends nothing twice, and repeats 1 ms
// later.
//
// # When a batch fails
//
// One query can make predict raise an exception, and the worker cannot tell which. The queries of a batch that ends in
// ModelError or BadOutput are evaluated once more, each in a batch of its own, and only those that fail again fail
// (isolate.go). Halving the batch again and again would need fewer batches, but would evaluate a query up to log n
// times; a model may be called at most twice for a query. It happens only where the model allows retries, and for callers
// that still wait and, by the profile, would have their answers in time. Such a query has killed nothing, so other
// batches may be beside it and behind it. Two bounds keep a broken model cheap: as many queries may be evaluated again
// as arrive, and after 16 failures in a row no batch is taken apart until the model has answered something. One query a
// second is tried alone meanwhile, because every batch may have a bad query while most queries are good. While single
// queries make batches fail, the next batches are half as large, and grow again with each full one that succeeds.
//
// 160 requests at once, 10 of them bad, fixed batches of 16: 147 of 150 good ones failed before, none does now. A worker
// that says itself which query is bad ([api.Query].Status) needs none of this.
//
// # When a replica dies
//
// Queries that it had begun are tried once more, each in a batch of its own: one of them may have killed the replica,
// and it must not take others with it. For the same reason such a batch is sent only to an idle replica, and nothing is
// sent behind it. While any of them wait, no replica gets a second batch. Of replicas with streams, only the one that has
// the fewest is kept for them, because it may take hours until one is idle; and others may be beside such a query when it
// has had its first output. Queries that the replica had not begun go back to their sub-queues, as if they had not been
// sent.
//
// # Reading
//
// machine.go and item.go define the types; admit.go admission; dispatch.go what is sent when and where, and fill.go how
// a batch is filled; batching.go and quantile.go the caps; plan.go, turn.go and device.go what a plan changes;
// replica.go, advance.go and hedge.go failures. Package timer has the timer wheel for deadlines outside the machine.
// Package sim runs all of this under a virtual clock (make sim).
package scheduler
