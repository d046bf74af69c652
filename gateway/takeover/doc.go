// Package takeover is the protocol by which a process of a gateway takes over from another one, without a failed request.
//
//	new process                                         old process, which serves
//	   ── hello: version of the protocol, program ──────────▶  is there room for both? refuses changes, copies what is declared
//	   ◀── welcome: copy, replicas; listening sockets ──────   goes on serving
//	   loads its replicas
//	   ── ready ────────────────────────────────────────────▶  writes what was learned, lets the store go
//	   ◀── release ─────────────────────────────────────────
//	   takes the store, begins to accept
//	   ── serving ══════════════════════════════════════════▶  the commit point: stops accepting, and drains
//	   ◀── connections: the socket that they come over ─────   clients keep them
//	   ◀═ calls: what is learned and remembered ════════════▶
//	   ◀── past: the queries that feedback may name ────────
//	   ◀── done ────────────────────────────────────────────   ends
//
// With a canary the new process first serves a share of the connections, and the old one compares:
//
//	── ready ────────────────────────────────────────────▶  accepts all connections, and passes on each nth
//	◀── try, and a socket ───────────────────────────────
//	serves what comes over the socket
//	◀═ calls: answers and latencies; what is learned ════▶  compares every second
//	◀── release, as above ───────────────────────────────   at the end of the time, if the new process is not worse
//	◀── abort ───────────────────────────────────────────   as soon as it is worse
//	answers what it has, passes on what was learned, ends
//
// The old process accepts all connections because the share is exact then, and because it can stop at once: connections that wait in
// the kernel never belong to the process that is on trial. The other way, two processes that accept beside each other, gives each what
// the scheduler happens to give it. The store stays with the old process; what the new one learns goes there by calls. Connections that
// it has got stay with it, whether it takes over or is sent back.
//
// # What it promises
//
// Before serving has arrived, the old process is the gateway, and whatever happens to the new one it goes on: it takes the store
// back and allows changes again. If the new process may have the store and does not answer, it is killed first. From then on the new
// process is the gateway, and needs the old one for nothing. A process whose partner has died goes on: the new one also before that
// point, as it has the sockets, and the store is free. Each step has a time limit. A process that was sent back
// is not a gateway any more: if the old one is killed while that one ends, no process is left.
//
// # How it is made
//
// [Giver] and [Taker] are state machines: an event in, the next thing to do out. They do nothing themselves. Package frame.go has the
// messages, each in a frame with a bound. [Conn] is a socket with them: it passes descriptors, knows the process at its other end, and
// carries calls in both directions after the commit point.
//
// # What it never does
//
// It knows nothing of stores, replicas or HTTP: package gateway/server does what the machines say. It trusts the other process with the
// gateway, as it has the same user, and with nothing in its own memory: each frame is bounded and checked.
package takeover
