// Package worker defines what a replica is to the gateway, independent of how bytes reach it. It has interfaces and
// plain structs. Code that forms batches uses them, and transports implement them.
//
// A [Transport] accepts workers and makes each one a [Replica]. A Replica takes batches and reports to the [Events] of
// its launch. Package local is the transport through shared memory on this host. Package memory runs models as Go
// functions, for tests.
//
// # Who uses it
//
// gateway/server makes the transport, announces launches and receives the events. It depends on these interfaces only,
// except where it makes the transport. Package scheduler/driver needs less of a replica, so it declares its own
// interface: driver.Replica, with Send and Kill. Every Replica satisfies it. The gateway attaches a replica to its lane
// through a small wrapper whose Kill also ends the replica's process, because a worker that hangs does not notice the
// end of its connection.
//
// # Ownership of a batch
//
// Queries belong to the scheduler. Send lends a batch to the transport until the batch's Done or the replica's Gone.
// The transport reads inputs and writes outputs in between and touches nothing afterwards. A transport that sends a
// query's bytes from where they lie must finish or abandon that before it reports Done or Gone. The receiver may reuse
// the batch and its queries within the event.
//
// # Writing a transport
//
// workertest.RunTransport is the conformance suite; memory is the smallest example. A transport decides the following.
// The notes on a network are for one that reaches workers on other hosts.
//
//   - Launch. Expect returns the environment with which the worker finds the gateway and proves which launch it is.
//     local names a socket and a one-time token. Over a network, the environment names the launch on the other host,
//     and the node there replaces it with that of its own local transport. The gateway passes it on without looking at
//     it.
//   - Capabilities are known before Ready and do not change: the scheduler, the cache and feedback rely on them.
//   - Batches. Send never waits for the worker or the network. At most Depth batches are outstanding, so a transport
//     that lacks room (a larger buffer, credits of its peer) keeps the batch and sends it later. Over a network, a
//     batch's time budget is computed from the deadlines of its queries when the batch leaves, because clocks differ.
//   - Done is called as soon as the answer is read: the receiver usually sends the next batch from within it. EvalNanos
//     runs from when the worker could begin the batch until its answer was seen, so it does not include the time behind
//     other batches. The scheduler's latency profiles are made from it; over a network it includes the link.
//   - Labels yield to predictions: see [Learner].
//   - Streams. A model that answers in streams has batches of one query. The transport writes the first output as any
//     other, calls the query's api.Stream if it has one, and reports FirstOutput. It then asks the worker for outputs
//     only while the stream has room, so that memory is bounded however many readers are slow. Of a query without an
//     api.Stream it ends the rest.
//   - Cancellation. A stream is cancelled through its api.Source. Another batch cannot be cancelled. The scheduler answers a query whose deadline has passed without asking
//     the transport and drops the output. A transport that can stop an evaluation may offer it as an optional
//     interface, as Learner is one.
//   - Loss. Gone comes exactly once, after the answers that arrived before, unless the worker broke the protocol. Begun
//     decides how queries are retried: those of a batch that had begun are retried alone, the others together. Nil means
//     that the transport does not know, for example after a link was lost, and every batch counts as begun. A replica
//     that is gone does not come back: a worker that outlives its connection is ended, and its replacement has a new
//     number.
//   - Statistics. Stats counts what this side of the transport has seen and asks the worker nothing.
//   - Errors have codes. A worker's text goes to operators only, through Detail. A transport trusts nothing that a
//     worker sent: a protocol violation ends that replica and no other.
//   - Close returns after the last Gone.
//
// # What it never does
//
// It starts and ends no process: package containers does. It forms no batch and decides nothing about queries: package
// scheduler does. It does not define how bytes travel: api/spec/worker.md does, for local and every binding.
//
// Read transport.go and replica.go, then package local.
package worker
