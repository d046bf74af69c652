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
//	   ◀═ calls: what is learned and remembered ════════════▶
//	   ◀── past: the queries that feedback may name ────────
//	   ◀── done ────────────────────────────────────────────   ends
//
// # What it promises
//
// Before serving has arrived, the old process is the gateway, and whatever happens to the new one it goes on: it takes the store
// back and allows changes again. If the new process may have the store and does not answer, it is killed first. From then on the new
// process is the gateway, and needs the old one for nothing. A process whose partner has died goes on: the new one also before that
// point, as it has the sockets, and the store is free. Each step has a time limit.
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
