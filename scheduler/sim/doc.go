// Package sim runs the scheduler in a simulated world: replicas, callers and devices are simulated, under a virtual
// clock. The [scheduler.Machine], its controllers, the [scheduler.Device] and the planner with its collector are the
// production code. They take the time as a parameter, so they run unchanged.
//
// It is for developers of the scheduler, in three ways:
//
//   - [Random] makes a short world from a seed, with every kind of load and fault at once, and [Run] checks the
//     scheduler's promises in it after each event. `make sim SEED=n` replays one; thousands take a minute.
//   - The same Run measures goodput, misses, latencies and the replicas' time per answer, under the real scheduler or
//     under a baseline [Policy], on exactly the same queries. bench/cmd/sim has the scenarios.
//   - A [Forecast] says what becomes of some traffic, and how many replicas it takes, under a [Scaler]: ours, another
//     one, or ours with other bounds.
//
// # How a world runs
//
// One event queue, ordered by time, drives everything: a query arrives, an answer has been seen, a replica has started
// or died, a wake-up is due, an epoch ends. All events of one moment are reported before an engine is asked for its
// decisions, as in the driver. A batch reaches its replica 30 µs after it is sent, waits for the batches before it,
// takes a fixed and a variable time with lognormal jitter, and longer in a pause or while the replica is throttled. Its
// answer is seen 30 µs later. The clock wakes an engine up to a millisecond late, and in some worlds occasionally by
// seconds.
//
// A stream has its first output after the time of a batch of one, beside the replica's other streams, and holds its place
// for a lognormal time after that. Its caller may leave at any time; the replica hears of it 30 µs later. An engine does
// not watch streams that flow, so the transport ends a replica that hangs in the middle of one.
//
// The seed decides everything random. Each source of queries and each place of a replica draws from its own stream, so
// two policies see the same queries. A Spec leads to the same run on any machine; this package reads no clock.
//
// # Scaling
//
// A model with a [ScaleSpec] has no replicas of its own. Its scaler gets a sample of the engine's snapshot at each
// tick, as in the gateway, and between ticks when a query finds no replica and none starting. If it wants more
// replicas, they are ordered, and take batches when their start is over. If it wants fewer, starting replicas go first,
// then the youngest, which drains and ends when it is empty. A replica that dies is restarted in its place. A query
// that finds no replica has FunctionSpec.ColdStartNanos, if that is more than its objective.
//
// Replica-seconds count from the order to the end. An example (TestSleepAndWake): a query at 1.25 s wakes a model whose
// start takes 0.5 s. It is answered after 0.52 s, too late for an objective of 0.1 s. Another one at 1.9 s is the last.
// The model may sleep after 2 s, which the tick at 4 s sees; its end 0.2 ms later makes 2.7502 replica-seconds.
//
// # What is checked
//
// Always:
//
//   - Every query is answered once and released once, not before its answer and not while its batch is in flight. None
//     is lost, even when replicas crash, hang or drain.
//   - No query is in two batches, except for permitted hedges: out of a late batch, to an idle replica, while no query
//     waits, and within the budget. The answer of a hedged query is the one that was evaluated first, and it is
//     released when both batches are back.
//   - A query that was lost with a replica, or in a batch that failed, is sent in a batch of its own.
//   - No query is sent after its deadline, unless its caller has been answered and it is evaluated for the cache.
//   - An answer at a deadline is late by no more than the clock.
//   - A refusal on arrival is immediate; a later one comes before the deadline.
//   - A replica that drains or was killed gets no batch, and no replica gets more than its depth.
//   - A stream holds one of its replica's places until it is released, and a replica has no more streams than places.
//   - A query that has had its first output is not sent again.
//   - A scaler keeps to its bounds, changes nothing when its sample could not be read, and never leaves a query waiting
//     with no replica wanted.
//
// With Spec.Check also:
//
//   - No model sleeps that had a query too recently.
//   - Batches keep to the configured size and bytes, the plan's cap and the controller's. The queue keeps to its
//     bounds.
//   - The engine's counts agree with the world's.
//   - No replica idles while queries wait, and no place for a stream is empty, except for a hold or a turn, or because a
//     query that may have killed a replica needs one for itself.
//   - The first output of a stream answers its query, and a stream is a batch of one.
//   - One tenant at a time uses a device, and it is the one that has the turn.
//   - No function starves: between two queries of a function with queries waiting, there are no more queries of others
//     than deficit round robin allows by the weights.
//   - A plan keeps to parts, budgets and shapes.
//
// Functions ask one model, all of several, or one by a policy's shares, as package planner's modes say, and some run in
// the background. An ensemble is answered at its deadline with the members that have answered; ensemble_test.go shows
// how ensembles behave under overload.
//
// broken_test.go and streams_test.go break engines in each of these ways and expect the checks to find it.
// scale_test.go does the same with scalers, and expects bad scalers that break no promise to show in their numbers.
//
// # What it does not show
//
// Real models' times are neither lognormal nor independent. The gateway's own CPU time costs nothing here, and neither
// does the work of answering a caller. There is always room for another replica, and a start costs its neighbours
// nothing. Ratios between policies carry over; absolute numbers do not.
package sim
