// Package driver runs the scheduler: it puts goroutines, locks and a clock around the pure [scheduler.Machine],
// [scheduler.Device] and [planner.Planner]. Every query submitted to a [Lane] is answered exactly once and released
// exactly once, on some goroutine, without allocating memory.
//
// # How a lane works
//
// A lane has no goroutine of its own. Queries go into one lock-free stack and completions into another. The goroutine
// that pushes onto an empty stack does the work for all that follow: it takes the lane's lock if it is free, empties
// both stacks, feeds the machine, sends the batches, releases the lock, and only then calls the owners of the queries
// that have ended. So batches form by themselves under load, the goroutine that saw a completion delivers answers in
// bulk, and the transport's poller never waits for a lock. If the lock is taken, its holder checks the stacks once more
// after releasing it, so no input is left behind.
//
// A submitter that is about to do the work first yields its processor once if the lane holds other queries, so that
// goroutines about to submit can do so and one round serves them all. A single client does not wait. A goroutine that submits
// queries of many clients in turn, as one that reads their connections does, uses a [Cork] instead: the lanes are worked
// once when it has submitted all.
//
// # What the callers must do
//
//   - The composition root makes one [Clock] for the process and closes it last. It calls AddFunction before queries of
//     that function, AddReplica when a worker is ready, and ReplicaGone exactly once when the worker has ended,
//     whatever the reason. With planning there is one [Epoch], which must get every change of the declared models and
//     functions, and which is closed before the clock.
//   - The gateway owns the items. Its callbacks Answered and Released run on whichever goroutine delivers, and other
//     answers wait behind them, so they must not block. They may call the lane again. An item may return to its pool
//     when it has been released and no Cancel of it is running.
//   - The transport implements [Replica]. Send and Kill never block. It calls BatchDone exactly once for each batch
//     that Send took and the replica answered, and then ReplicaGone, after which it does not touch the batches any
//     more.
//
// # Time
//
// The clock's goroutine handles deadlines, holds and hung replicas. It is up to a quarter of a millisecond late, plus
// what Go's runtime and the operating system add. It sleeps while no lane holds a query, and otherwise until the
// earliest deadline: a few wake-ups per latency objective and lane. While one replica works and another is idle, it
// also wakes when the first would be late, at most once a millisecond. Lanes wait in a timing wheel, so their number
// costs nothing. A result that arrives between the deadline and the clock's wake-up still goes to the caller. After a
// stall of the whole process the clock may run before the answers that arrived meanwhile are read. Deadlines that have
// passed are then over, but no replica is killed for answers that have not been read, because the machine checks twice.
// [Timers] are for deadlines outside of lanes.
//
// # Epochs
//
// An [Epoch] is one goroutine that makes a plan every period, off the data path. It takes snapshots of the lanes that
// are awake, has [planner.Planner] make a plan, and applies what differs from the previous one. A lane wakes with a
// query and falls asleep after a hundred epochs without one. While all lanes sleep, so does the epoch. A plan is read
// in three places: by the lane's machine; by the [Choice] of a function for each of its queries (which candidate, which
// members of an ensemble, how much of the policy's wishes, or a refusal); and by the [Device] that lanes share. Without
// a plan all of them act as under the zero plan. In the other direction a Choice carries what only the query path and
// the policy know: the queries that arrived and were refused, the candidates that the policy wished for, and what
// answers are worth.
//
// A [Device] grants turns to lanes. A lane calls it without holding a lock, and it calls the lane whose turn it is in
// the same way.
//
// # Reading
//
// lane.go is the interface, round.go the work under the lock, deliver.go the calls of owners, clock.go and timers.go
// the time; epoch.go, choice.go and device.go deal with several lanes. All policies are in packages scheduler and
// planner.
package driver
