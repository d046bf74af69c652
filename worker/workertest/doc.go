// Package workertest judges the two sides of the worker protocol from outside.
//
// [Run] is the conformance suite: every binding, in every transport mode, is launched against a real [worker.Hub] and must
// pass the same cases, under both pollers. A binding brings a [Worker]: how to launch it with one of the suite's models,
// which are described at [Echo], [Markers] and [Wrong]. Cases speak through Hub, Replica and Events alone, so they say what
// a gateway sees, not how a binding is built.
//
// [Raw] is the opposite: a worker without a binding, for tests that break the protocol on purpose. It speaks it correctly as far
// as it is asked to, and gives its test the socket, the segments and the cursors to do worse.
//
// [Gateway] and [Session] are what both need: a hub, one replica's life, and the accounts. Each batch that Send took is
// reported done once or is left when the replica is gone; feedback and questions for the accuracy ([Told]) end once; events
// never overlap; after Gone comes nothing; no descriptor, no mapping and no connection outlives the hub. Every session is
// checked for that, whatever else its test is about.
//
// The package never sleeps to wait for something, measures no time, and skips nothing: what cannot run fails with what to
// install. The protocol is api/spec/worker.md; the gateway's side is package worker, bindings live in worker/bindings.
package workertest
