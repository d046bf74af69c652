// Package wire is the codec of the worker protocol: frames on the socket, 64-byte descriptors, and blocks of tensors in
// shared memory. Its normative text is api/spec/worker.md. Both sides use it: transports of the gateway, and workers
// written in Go.
//
// # What it promises
//
// It consists of pure functions over bytes: no I/O, no clock, no goroutine, no lock. The caller reads the socket, maps
// the memory and decides what an error costs.
//
// All input is treated as hostile. Lengths are compared as "length > capacity - offset", so nothing overflows. Counts
// are bounded by the bytes that are there before memory is allocated for them. Tables in shared memory are copied into
// private memory before they are checked, so a peer that rewrites them meanwhile changes nothing. No input makes a
// decoder panic.
//
// Errors say which field was wrong. They wrap [ErrMalformed] for frames and descriptors, which is a protocol violation
// (REFUSED code 5 or 6), or [ErrBlock] for blocks, which is BAD_OUTPUT for that batch, since the worker's author may
// have made a mistake.
//
// # Its parts
//
//   - [Parser] splits the socket's bytes into frames and drops bells. [Hello], [Welcome], [Segments], [Ready],
//     [Refused] and [Leaving] are the messages.
//   - [Request] and [Response] are the descriptors.
//   - [Schema] lists a block's sections. [Schema.Write] lays out values that are all there. [Builder] lays out values
//     that arrive one by one, in place while they fit. [Reader] reads what another process wrote.
//
// # What it never does
//
// It keeps no state of a connection: the caller decides whether a message is legal now. It does not compare descriptors
// with what is outstanding. It keeps no slice that it was given after returning, except that a [Reader] and a [Builder]
// hold their block until the next Open or Begin.
//
// # Cost
//
// Nothing on a batch's way allocates once the [Reader] and the [Builder] have grown to the shape of the traffic. A
// fixed section costs one copy per item, a ragged one a table entry more.
//
// Golden vectors for every message, descriptor and kind of block lie in api/spec/golden. `go test ./worker/wire -run
// TestGolden -update` writes them. Read api/spec/worker.md next, then package local, the gateway's side.
package wire
