// Package driver puts the scheduler to work: goroutines, a lock and a clock around the pure [scheduler.Machine]. It
// promises its users that every query submitted to a [Lane] is answered exactly once and released exactly once, on some
// goroutine, without allocating memory for it.
//
// # How a lane works
//
// A lane has no goroutine of its own. Queries go into a lock-free stack, completions into another, and whoever puts the
// first one in does the work for all who follow: it takes the lane's lock if it is free, empties both stacks, feeds the
// machine, sends the batches, releases the lock, and only then calls the owners of the queries that have ended. So
// batches form by themselves under load, answers are delivered in bulk by the goroutine that saw the completion, and the
// transport's poller never waits for a lock. If the lock is taken, its holder will look into the stacks once more after
// releasing it, and nothing is left lying.
//
// A submitter that is to do the work first yields its processor once, if the lane holds other queries: those who are
// about to submit can do so, and one round serves them all. A client that is alone is not made to wait.
//
// # What the callers owe
//
//   - The composition: one [Clock] for the process, closed last. AddFunction before queries of that function,
//     AddReplica when a worker is ready, ReplicaGone exactly once when it has ended, whatever the reason.
//   - The gateway, as owner of items: the callbacks Answered and Released run on whatever goroutine delivers, and others
//     wait for their answers behind them: they must not block. They may call the lane again. An item goes back into its
//     pool when it has been released and no Cancel of it is under way.
//   - The transport, as [Replica]: Send and Kill never block. BatchDone exactly once for each batch that Send took and
//     that the replica answered; then ReplicaGone, after which nothing of its batches is touched.
//
// # Time
//
// Deadlines, holds and hung replicas are noticed by the clock's goroutine, up to about 1 ms late. It sleeps while no lane
// holds a query, and until the earliest deadline otherwise: a few wake-ups per latency objective and lane. A result that
// arrives between the deadline and that notice is still given to the caller.
//
// # Reading
//
// lane.go is what others call, round.go how the work is done, deliver.go how it is paid out, clock.go the time. The
// policies are all in package scheduler.
package driver
