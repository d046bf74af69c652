// Package containers is how replicas run: the vocabulary that the ways of running them share, and the supervisor that keeps the
// wanted number of them alive. The ways themselves are below it: process runs them as processes of this host, which may be
// forked from a zygote and limited by package cgroup, docker in containers of its engine, and mux chooses between such. Package node
// says what the host has for them, and what they take of it.
//
// # The vocabulary
//
// A [Runtime] turns a [Launch] (a command or an image, a directory, an environment, limits) into an [Instance]: something that has ended or has not,
// says how it ended, and can be asked or made to end. Nothing here knows the worker protocol: that a process runs does not mean
// that its worker is connected, and only the owner of the connection can tell.
//
// # The supervisor
//
// A [Set] belongs to one model version and has one owner, who says how many replicas are wanted ([Set.SetCount]), which of them
// are ready ([Set.MarkReady]) and which are to be ended because they hang or break the protocol ([Set.Kill]). It promises:
//
//   - Every launch has a number of its own that never comes again, so that news of a dead replica cannot be taken for news of the
//     one that took its place.
//   - Before a launch the owner is asked to Prepare it (the one-time token is made there). Each launch that was prepared ends in
//     exactly one event Exited, with at most one Started before it, in order.
//   - A replica that ends is started again, also one that exits with 0, unless nobody wants it any more. The delay doubles with
//     each failure in a row, from 100 ms to 30 s, half of it by lot ([Backoff]), and is five minutes after fifteen of them; a
//     replica that was ready for half a minute begins anew. After three failures in a row, or one that a person has to mend, such
//     as a command that does not exist, its state is Failed. It is still tried again, so that a repaired model comes back by itself.
//   - What is known of failures outlives the replicas: a model that crashes, and that nobody wanted for a moment, goes on with
//     the delay that it had.
//   - A replica that runs but is not ready within ReadyWithin is taken for stuck, and killed.
//   - A launch of which the owner says so is quiet: it has the lowest CPU priority until it is ready, so that its loading does not slow down
//     what serves, where the runtime can do that and take it back. After half of ReadyWithin it is raised all the same, for
//     a busy machine gives it next to nothing. If it cannot be raised, its owner hears NotRaised, and later launches are not quiet.
//   - A replica that is no longer wanted is asked first (SIGTERM) and killed after the grace. Close returns when all are gone.
//
// It never logs and never blocks its owner: SetCount, MarkReady and Kill return at once. One goroutine a replica does all the
// waiting. The arithmetic of delays is apart from it and knows no clock.
//
// # Output
//
// [Logs] keeps the end of what a model version's replicas have written, and of what the supervisor has to say about them: 1000
// lines, 1 MiB. Writers never wait for readers. A [Follower] that is too slow is told how many lines it has missed.
//
// Start reading at [Set], then slot.go, which is a replica's life from top to bottom.
package containers
