// Package local is the transport between the gateway and workers on the same host. It accepts workers, hands them
// batches through shared memory and brings back their answers.
//
// It implements [worker.Transport] and [worker.Replica]; package worker says what both promise. A [Hub] listens on a
// unix socket. Before a worker is launched, [Hub.Expect] makes a one-time token for that launch of one model version. A
// worker that connects with the token goes through the handshake, receives two segments of shared memory and becomes a
// [Replica]. The protocol is api/spec/worker.md. Package wire is its codec. Package shm has the segments, rings and
// slabs.
//
// # Doors
//
// The main socket accepts only the gateway's own user. A worker in a container runs as another user in other namespaces
// and should see nothing of the gateway but its own launch. For a launch that is [worker.Expectation].Isolated the hub
// makes a door: a socket for this launch alone, of mode 0666 in a directory of mode 0700. Only a process that can enter
// the directory, or has the socket mounted, reaches it.
//
// A door accepts any user, one connection at a time. The launch's token is valid at its door and nowhere else. The
// first HELLO with the token closes the door and removes it, as do withdrawing the launch and Close. [Listen] removes
// the doors that a killed gateway has left. At most 256 doors are open.
//
// # Sending a batch
//
// [Replica.Send] never blocks and never waits for the worker. It allocates room in the slabs, writes the batch there
// once, pushes one descriptor and rings at most one bell. If the slabs have no room, the replica keeps the batch until
// larger segments are in place; they are handed over as soon as the worker holds no other batch. Each batch that Send
// took ends in exactly one [worker.Events].Done, or in Gone.
//
// # Inputs that are received in place
//
// The last part of a request segment can be slots (slots.go). Whoever receives a large input asks for one ([Replica.Reserve]) when it
// knows the size, and reads the input from its client straight to it. Send then writes only the tables of the batch, which name the slot:
// the input is read from the socket once, and never copied. Everything else that reads an input, such as a cache key, a retry on
// another replica or a log, reads the slot. It outlives the replica until its holder frees it.
//
// Batches do not depend on slots. The lowest free place is given out, so that the inputs of a fixed tensor, which must be neighbours in
// their order, often are: Send orders the queries of a batch by their places. If they are not, if another replica gets the batch, or if
// the batch is padded, Send copies, as it does for all other inputs. A segment has no slots until one is asked for. The part follows what is asked
// for at a time, up to [Config].SlotBytes or a quarter of the largest segment, at the next boundary between batches; batches have their
// own part, so a slow client delays no batch. An input that finds no slot may wait for one; those that wait get them in the order in which they
// came, and further ones do not overtake them.
//
// # Segments that shrink
//
// In shrink.go a replica that has had no batch for a while gets segments of the first sizes (not workers of version 1). A batch that comes
// meanwhile waits for them, and grows them if it does not fit.
//
// # Streams
//
// In streams.go the batches of a model that answers in streams change hands: MORE copies outputs out and leaves the batch without blocks, GRANT or
// DISCARD gives it back when the query's [api.Stream] has room, or the rest is not wanted. Streams in the gateway's turn do not keep segments from
// growing. A worker that is silent in its turn for [worker.Expectation].StreamIdle is ended.
//
// # Lines
//
// A model that is declared to call other functions gets lines (lines.go): connections of which the hub makes both ends. It passes one to the
// worker, and the other one with the replica to [worker.Expectation].Lines. What comes on a line is not the hub's affair. [Replica.Origin] says what a
// batch is for which the worker claims to call, from the replica's own table. A goroutine of each such replica gives lines; it waits for nothing
// that the worker does with batches, and nothing waits for it.
//
// # Side requests
//
// A worker may declare that its model learns from labels, and that it knows how accurate it is
// ([worker.Info].Capabilities). [Replica.Feedback] and [Replica.Accuracy] send it FEEDBACK and ACCURACY. The code calls
// these side requests: everything that is not a prediction. They have a queue of their own, which holds sixteen
// feedback batches and one question for the accuracy. When it is full, the oldest feedback batch is dropped. One side
// request at a time is with the worker. It has a place of its own beside the depth, so it never makes Send refuse a
// batch.
//
// Predictions come first. A side request is sent when the worker has no prediction and the scheduler has had the chance
// to send another. If the worker is never idle, a side request is sent behind predictions once it has waited so long
// that feedback takes at most a tenth of the worker's time.
//
// A model has one thread, so a prediction that arrives while the model learns waits. The wait is not counted: the
// evaluation time in Done begins when the previous answer, of any kind, was seen, so the scheduler's profile stays that
// of predict. The scheduler does not know two things: that a worker is busy learning when it estimates a query's wait,
// and, where models take turns on a device, that feedback uses the device out of turn.
//
// A worker that takes longer than [worker.Expectation].FeedbackTimeout for a side request hangs, and the hub ends it.
// The scheduler may find the same sooner by its own rule, if a prediction waits behind the side request.
//
// # What it never does
//
// It trusts nothing that the worker wrote. It copies each descriptor once and checks it against the replica's own table
// of outstanding batches. Free lists, cursors and sizes are its own. It checks outputs and copies them out before any
// other code sees them. The first protocol violation ends the worker ([worker.End].Violation) and affects no other.
//
// It starts and stops no process. Package containers does, and gateway/server joins the two.
//
// # Which goroutine does what
//
// The method process handles everything that a worker sends. It runs where the socket is polled: by default in a
// goroutine per replica on the Go runtime's poller, where the pollers of clients sleep, too, or inline in a netpoll
// poller. Events are delivered from there, so receivers must not block. process reads the socket before it finds the
// ring empty and declares sleep, in the order of section 3.1 of the protocol.
package local
