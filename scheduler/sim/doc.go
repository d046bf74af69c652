// Package sim runs the scheduler against a world that is made up: simulated replicas, callers and devices, and a virtual
// clock. What is simulated is the surroundings. The [scheduler.Machine], its controllers, the [scheduler.Device] and the
// planner with its collector are the ones that serve; they cannot tell, for they are told the time.
//
// It is for whoever changes the scheduler, in two ways:
//
//   - [Random] makes a short world out of a seed, with every kind of load and bad luck at once, and [Run] checks in it, after
//     each event, what the scheduler promises. `make sim SEED=n` replays one, thousands take a minute.
//   - The same Run measures: goodput, misses, latencies and the replicas' time for each answer, under the real scheduler or
//     under a [Policy] of others, on exactly the same queries. bench/cmd/sim has the scenarios.
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
// # What is checked
//
// Always: every query is answered once and released once, not before its answer and not out of a batch in flight; none is
// lost, also when replicas crash, hang or drain; none is in two batches, and one that was lost with a replica travels alone;
// none is sent after its deadline, unless its caller has been answered and it is evaluated for the cache; no answer comes
// later after the deadline than the clock; who is refused is told in the same moment, and who is turned away later before
// his deadline; a replica that drains or is to be killed gets nothing, and nobody gets more than its depth.
//
// With Spec.Check also: batches keep to the configured size and bytes, the plan's cap and the controller's; the queue keeps
// to its bounds; the engine's books agree with the world's; no replica idles while queries wait, but for a hold or a turn;
// one tenant at a time uses a device, and the one who has it uses it; nobody starves: between two queries of a function that
// has some waiting there are no more of others than deficit round robin allows by the weights; a plan keeps to parts,
// budgets and shapes.
//
// Functions ask one model, all of several, or one by a policy's shares, as package planner's modes say, and some are in the
// background. An ensemble is answered at its deadline with what is there. ensemble_test.go shows what becomes of them under
// overload.
//
// broken_test.go breaks engines in each of these ways and expects to be told.
//
// # What it does not show
//
// Real models' times are neither lognormal nor independent; the gateway's own CPU costs nothing here; a callee's answer in
// the same moment is free. Ratios between policies carry over, absolute numbers do not.
package sim
