// Package sim runs the scheduler against a world that is made up: simulated replicas, callers and devices, and a virtual
// clock. What is simulated is the surroundings. The [scheduler.Machine], its controllers, the [scheduler.Device] and the
// planner with its collector are the ones that serve; they cannot tell, for they are told the time.
//
// It is for whoever changes the scheduler, in three ways:
//
//   - [Random] makes a short world out of a seed, with every kind of load and bad luck at once, and [Run] checks in it, after
//     each event, what the scheduler promises. `make sim SEED=n` replays one, thousands take a minute.
//   - The same Run measures: goodput, misses, latencies and the replicas' time for each answer, under the real scheduler or
//     under a [Policy] of others, on exactly the same queries. bench/cmd/sim has the scenarios.
//   - A [Forecast] asks what becomes of some traffic, and what it takes, where a [Scaler] says how many replicas there are:
//     ours, another one, or ours within other bounds.
//
// # How a world runs
//
// One agenda of events, by time, drives everything: a query comes, an answer has been seen, a replica has started or died, a
// wake-up is due, an epoch ends. Events of one moment are all told before an engine is asked what follows, as the driver
// does. A batch reaches its replica 30 µs after it is sent, waits for the ones before it, takes a fixed and a variable time
// with lognormal jitter, longer in a pause or while the replica is throttled, and its answer is seen 30 µs later. The clock
// wakes an engine up to a millisecond late, and in some worlds now and then by seconds.
//
// Nothing is left to chance but what the seed decides. Each source of queries and each place of a replica draws from a
// stream of its own, so that two policies see the same queries. A Spec leads to the same run on any machine; nothing here
// reads a clock.
//
// # Replicas that come and go
//
// A model with a [ScaleSpec] has no replicas of its own. At each tick its scaler is shown a sample of the engine's snapshot, as
// in the gateway, and between the ticks when a query finds no replica and none on its way. What it wants more is ordered, and
// takes batches when its start is over. What it wants less goes: first what has not started, then the youngest, which drains
// and ends when it is empty. One that dies is started anew where it was. A query that finds no replica has
// FunctionSpec.ColdStartNanos, if that is more than its objective.
//
// Replica-seconds count from the order to the end. An example (TestSleepAndWake): a query at 1.25 s wakes a model whose start
// takes 0.5 s; it is answered after 0.52 s, too late for an objective of 0.1 s. After another one at 1.9 s nobody comes; the
// model may sleep after 2 s, the tick at 4 s sees that, and its end 0.2 ms later makes 2.7502 replica-seconds.
//
// # What is checked
//
// Always: every query is answered once and released once, not before its answer and not out of a batch in flight; none is
// lost, also when replicas crash, hang or drain; none is in two batches, but for one that was sent twice, with leave, out of a
// batch that is late, to a replica that idles while nobody waits, and within the budget; its answer is what was evaluated first,
// and it is released when both batches are back; one that was lost with a replica travels alone;
// none is sent after its deadline, unless its caller has been answered and it is evaluated for the cache; no answer comes
// later after the deadline than the clock; who is refused is told in the same moment, and who is turned away later before
// his deadline; a replica that drains or is to be killed gets nothing, and nobody gets more than its depth.
//
// A scaler keeps to its bounds, changes nothing where nothing could be read, and lets nobody wait for a replica that it does not
// want.
//
// With Spec.Check also: no model is put to sleep that was asked too short a time ago; batches keep to the configured size and bytes, the plan's cap and the controller's; the queue keeps
// to its bounds; the engine's books agree with the world's; no replica idles while queries wait, but for a hold or a turn;
// one tenant at a time uses a device, and the one who has it uses it; nobody starves: between two queries of a function that
// has some waiting there are no more of others than deficit round robin allows by the weights; a plan keeps to parts,
// budgets and shapes.
//
// Functions ask one model, all of several, or one by a policy's shares, as package planner's modes say, and some are in the
// background. An ensemble is answered at its deadline with what is there. ensemble_test.go shows what becomes of them under
// overload.
//
// broken_test.go breaks engines in each of these ways and expects to be told; scale_test.go does it to scalers, and expects of
// those that are only bad that it shows in their numbers.
//
// # What it does not show
//
// Real models' times are neither lognormal nor independent; the gateway's own CPU costs nothing here; a callee's answer in
// the same moment is free; there is always room for another replica, and a start costs its neighbours nothing. Ratios between policies carry over, absolute numbers do not.
package sim
