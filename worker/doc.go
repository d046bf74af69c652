// Package worker defines what a replica is to the gateway, whatever connects the two. It is the seam between those who form
// batches and those who carry them: interfaces and plain structs.
//
// A [Transport] accepts workers and makes each a [Replica]. A Replica takes batches and reports to its [Events]. Package local
// is the transport through shared memory on this host; package memory runs models as Go functions, for tests.
//
// # Who uses it
//
// gateway/server makes the transport, announces launches and receives the events; nothing else of it knows which transport it
// has. Package scheduler/driver asks less of a replica than this package promises, so it has an interface of its own,
// driver.Replica, with Send and Kill. Every Replica satisfies it. The gateway attaches a replica to its lane through a small
// type whose Kill also ends the replica's process, because a worker that hangs does not notice the end of its connection.
//
// # Ownership of a batch
//
// Queries belong to the scheduler. Send lends a batch to the transport until the batch's Done or the replica's Gone, whichever
// is first. In between the transport reads inputs and writes outputs; afterwards it touches nothing. That includes copies under
// way: a transport that sends a query's bytes from where they lie finishes or abandons that before it reports Gone. The caller
// may reuse the batch and its queries within the event.
//
// # Writing a transport
//
// workertest.RunTransport judges one, and memory is the smallest example. What must be decided, and what local does:
//
//   - Launch. Expect returns the environment with which the worker finds the gateway and proves which launch it is: local
//     names a socket and a one-time token. A transport to other hosts returns what names the launch there, and the node puts the
//     worker's real environment in its place.
//   - Capabilities are fixed before Ready: the scheduler, the cache and feedback rely on them.
//   - Batches. Send never waits, neither for the worker nor for the network. Depth bounds what is outstanding, so a transport
//     that must wait for room (a larger buffer, credits of its peer) keeps the batch meanwhile. A budget that travels is
//     computed from the queries' deadlines when the batch leaves.
//   - Done is called where the answer is read, as soon as it is: the receiver usually sends the next batch from within it.
//     EvalNanos counts from when the worker could begin the batch until its answer was seen, so it leaves out the time behind
//     other batches. The scheduler's latency profiles are made of it.
//   - Labels wait for predictions, never the reverse: see [Learner].
//   - Cancellation. A batch cannot be called back. The scheduler answers a query whose deadline has passed without asking the
//     transport, and drops the output. A transport that can stop an evaluation may offer that as an optional interface, as
//     Learner is one.
//   - Loss. However a replica ends, Gone says so once, after the answers that arrived before. Begun decides which queries are
//     tried again beside others and which alone; nil is right where the transport cannot know, as after the loss of a link. A
//     replica that is gone stays gone: a worker that outlived its connection does not come back under the same number.
//   - Errors have codes, and a worker's text stays in Detail, for operators. Nothing that a worker wrote is trusted: a breach
//     of the protocol ends that replica (End.Violation) and no other.
//   - Close waits for the last Gone.
//
// # What it never does
//
// It starts and ends no process: package containers does. It forms no batch and decides nothing about queries: package
// scheduler does. It does not say how bytes travel: api/spec/worker.md does, for local and for every binding.
//
// Read transport.go, then replica.go; then package local.
package worker
