// Package local is the gateway's side of its workers: it accepts them, hands them batches and brings back what they answer.
//
// It is the [worker.Transport] of one host. A [Hub] listens on a unix socket. Whoever launches a worker first tells the hub what to
// expect ([Hub.Expect]): a one-time token stands for one launch of one model version. A worker that connects with that token is
// greeted, gets two segments of shared memory and becomes a [Replica]. What a replica promises, and to whom, is in package worker.
// The protocol is api/spec/worker.md; the codec is package wire; segments, rings and slabs are package shm.
//
// # Doors
//
// The main socket takes the gateway's own user only. A worker in a container is another user, in another name space, and should
// see nothing of the gateway but what is its own. For a worker that is [worker.Expectation].Isolated the hub makes a door: a socket for one launch, of mode 0666 in a
// directory of mode 0700, so that only who can enter the directory, or has the socket mounted, reaches it. Whoever comes is greeted, whatever its
// user, one after the other; the launch's token is good there alone, and the first HELLO that shows it closes the door and removes
// it. So does withdrawing the launch, and Close; what a gateway that was killed has left goes when the next one listens. At most 256 are open.
//
// # What a replica promises
//
// [Replica.Send] never blocks and never waits for the worker: it finds room in the slabs, writes the batch there once, puts
// one descriptor and rings at most one bell. Where there is no room the batch waits inside the replica for larger segments,
// which are handed over as soon as nothing else is under way. For each batch that Send took there is exactly one
// [worker.Events].Done, or one Gone for all that are left. Queries belong to the scheduler; the replica reads their inputs and
// writes their outputs in between, and not after.
//
// # Beside predictions
//
// A worker may say that its model learns from labels, and that it knows how accurate it is ([worker.Info].Capabilities).
// [Replica.Feedback] and [Replica.Accuracy] ask it to: an aside, in the words of feedback.go. They may be called from anywhere,
// never block, and tell of their end once, at the latest when the worker is gone. Asides have a queue of their own, which is
// bounded: sixteen feedback batches, of which the oldest gives way, and one question for the accuracy. One aside at a time is
// with the worker, in a place of its own beside the depth, so that Send is refused nothing for its sake.
//
// Predictions come first. An aside is sent when the worker has no prediction, after the scheduler has had the chance to send
// another; or behind predictions, when it has waited long enough for feedback to take a tenth of the worker's time at most. A
// prediction that comes while the model learns waits, for the model has one thread. Its wait is not counted: the
// evaluation time that Done reports begins when the answer before it was seen, of whatever kind that was, so the scheduler's
// profile stays that of predict. Two things it does not know: that a worker is busy learning when it estimates how
// long a query will wait, and, where models take turns on a device, that feedback uses the device out of turn.
//
// A worker that does not come back from an aside in [worker.Expectation].FeedbackTimeout is ended, as one that hangs. The scheduler
// may find the same sooner, by its own rule, where a prediction waits behind the aside.
//
// # What it never does
//
// It trusts nothing that the worker wrote. A descriptor is copied once and judged against the replica's own table of
// outstanding batches; free lists, cursors and sizes are its own; outputs are checked and copied out before anybody sees
// them. The first protocol violation ends the worker ([worker.End].Violation says so) and nothing else. It starts no process and
// stops none: package containers does, and the composition joins the two.
//
// # Who calls whom
//
// Everything from the worker is handled in one place, process, which runs wherever the socket is polled: inline in a
// netpoll poller by default, which saves a goroutine switch for each wake, or in a goroutine of the replica's own on the Go
// runtime's poller. Events are delivered there, so their receivers must not block.
// The socket is read before the ring is found empty and sleep is declared, in the order that section 3.1 of the protocol
// prescribes.
package local
