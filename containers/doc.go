// Package containers defines how replicas are run: the interfaces that all ways of running them share, and the
// supervisor that keeps the wanted number of replicas running. The packages below implement the interfaces. process
// runs replicas as processes of this host, forked from a zygote if possible and limited by package cgroup. docker runs
// them in containers of a Docker engine. mux chooses between runtimes. Package node measures the host's resources and
// what replicas use of them.
//
// # Runtimes
//
// A [Runtime] turns a [Launch] (a command or an image, a directory, an environment, limits) into an [Instance], which
// can be asked or made to end and reports how it ended. A Runtime needs two methods. What it can do besides is in
// capability.go, each capability an interface of its own: callers ask for one with [As] and work without it.
//
// Nothing here knows the worker protocol. A process that runs need not have a connected worker; only the owner of the
// connection can tell.
//
// # The supervisor
//
// A [Set] belongs to one model version and has one owner. The owner says how many replicas are wanted ([Set.SetCount]),
// which of them are ready ([Set.MarkReady]) and which must end because they hang or broke the protocol ([Set.Kill]).
// The Set promises:
//
//   - Every launch has a number that is never reused, so an event of a dead replica cannot be mistaken for one of its
//     replacement.
//   - Before each launch it calls the owner's Prepare, which makes the one-time token. Each prepared launch has at most
//     one event Started and then exactly one event Exited.
//   - A replica that ends is restarted, also after exit code 0, as long as it is wanted. The delay doubles with each
//     consecutive failure, from 100 ms to 30 s, half of it random ([Backoff]). It is five minutes after fifteen
//     failures. A replica that was ready for half a minute, or has answered a batch, starts again with the first delay:
//     a query that ends the process must not keep the model from all others. After three consecutive failures, or one
//     that only a person can repair, such as a missing command, its state is Failed. It is still restarted, so a
//     repaired model comes back without help.
//   - A replica, or a launch, that was lost with a part of the runtime ([Lost]) is started again in the same way, and is not
//     counted as a failure: it says nothing about the model.
//   - Failures are remembered beyond a replica: a model that crashes, and was briefly not wanted, continues with its
//     delay.
//   - A replica that runs but is not ready within ReadyWithin is considered stuck and killed.
//   - A launch is quiet if the owner says so: it has the lowest CPU priority until it is ready and wanted, so that loading
//     and the first batches do not slow down serving replicas. This needs a runtime that can lower the priority and raise it again. After 15 s,
//     or half of ReadyWithin, the replica is raised anyway, because a busy machine gives it almost no time: at load 20
//     an import of one second of CPU time took five minutes. If it cannot be raised, the owner receives NotRaised, and
//     later launches are not quiet.
//   - A replica that is no longer wanted receives SIGTERM, and is killed after the grace period. Close returns when all
//     are gone.
//
// The Set never logs and never blocks its owner: SetCount, MarkReady and Kill return at once. One goroutine per replica
// does all the waiting. Delays are computed by a function without a clock.
//
// # Output
//
// [Logs] keeps the last lines that a model version's replicas have written, and the supervisor's messages about them:
// at most 1000 lines and 1 MiB. Writers never wait for readers. A [Follower] that is too slow learns how many lines it
// has missed.
//
// Start reading at [Set], then slot.go, which has a replica's life from top to bottom.
package containers
