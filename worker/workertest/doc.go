// Package workertest tests both sides of the worker protocol from outside: bindings, which are the worker's side, and
// transports, which are the gateway's.
//
// [Run] is the conformance suite for bindings. It launches a binding, in each of its modes, against package local under
// both pollers. A binding provides a [Worker], which launches one of the suite's models: [Echo], [Markers], [Stream] and
// [Wrong]. The cases cover both versions of the protocol. Those of version 2 are refusals, parameters, calls, concurrency,
// calls of functions and streams; a worker of version 1 is not sent them. [RunTransport] runs the same cases for an implementation of [worker.Transport], and further cases that depend on the
// gateway's side alone. All cases use the interfaces of package worker, so they test what a gateway sees and not how a
// side is built.
//
// [Raw] is a worker without a binding, for tests that break the protocol on purpose. Its methods follow the protocol.
// It also gives a test access to the socket, the segments and the cursors.
//
// [Reader] is the caller of a stream. [Gateway] and [Session] serve all of these: a transport, one replica's life, and a record of its batches. Every
// session checks, whatever else its test is about: each batch that Send took is reported done once or is outstanding
// when the replica is gone; each call of a Learner ([LearnerCall]) ends once; events do not overlap; nothing comes after Gone;
// no descriptor, mapping or connection outlives the transport.
//
// The package never sleeps, measures no time and skips nothing: a test that cannot run fails with what to install. The
// protocol is api/spec/worker.md. Bindings live in worker/bindings.
package workertest
