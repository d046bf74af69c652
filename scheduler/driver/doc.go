// Package driver puts the scheduler to work: goroutines, locks and a clock around the pure [scheduler.Machine],
// [scheduler.Device] and [planner.Planner]. It promises its users that every query submitted to a [Lane] is answered
// exactly once and released exactly once, on some goroutine, without allocating memory for it.
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
//     AddReplica when a worker is ready, ReplicaGone exactly once when it has ended, whatever the reason. With planning,
//     one [Epoch], which is told of every change of what is declared, and closed before the clock.
//   - The gateway, as owner of items: the callbacks Answered and Released run on whatever goroutine delivers, and others
//     wait for their answers behind them: they must not block. They may call the lane again. An item goes back into its
//     pool when it has been released and no Cancel of it is under way.
//   - The transport, as [Replica]: Send and Kill never block. BatchDone exactly once for each batch that Send took and
//     that the replica answered; then ReplicaGone, after which nothing of its batches is touched.
//
// # Time
//
// Deadlines, holds and hung replicas are noticed by the clock's goroutine, up to a quarter of a millisecond late, to which
// Go's runtime and the operating system add what they need. It sleeps while no lane holds a query, and until the earliest
// deadline otherwise: a few wake-ups per latency objective and lane; and while one replica works and another idles, until the
// first would be late, which is a wake-up every millisecond at most. Lanes wait in a timing wheel, so that their number
// costs nothing. A result that arrives between the deadline and that notice is still given to the caller. After a pause of the
// whole process the clock may be first and the answers that wait second: deadlines that have passed are over then, but no replica
// is killed for answers that nobody has taken in (the machine looks twice). [Timers] are for deadlines that are not a lane's.
//
// # Epochs
//
// An [Epoch] is one goroutine that makes a plan every period, off the data path: it takes snapshots of the lanes that are
// awake, has [planner.Planner] make a plan and puts in force what differs from the last one. A lane wakes with a query and
// falls asleep after a hundred epochs without any; while all sleep, so does the epoch. A plan is read in three places: by
// the lane's machine, by the [Choice] of a function for each of its queries (which candidate, which members of an ensemble, how
// much of what a policy wishes, or nobody), and by the [Device] that lanes share. Where no plan is in force everybody does
// what the zero plan says. In the other direction a Choice carries what only the query path and the policy know: who arrived
// and was refused, whom the policy would have asked, what answers are worth.
//
// A [Device] hands turns to lanes. It is called by a lane that holds no lock, and calls the lane whose turn it is in the
// same way.
//
// # Reading
//
// lane.go is what others call, round.go how the work is done, deliver.go how it is paid out, clock.go and timers.go the
// time; epoch.go, choice.go and device.go what goes beyond one lane. The policies are all in packages scheduler and planner.
package driver
