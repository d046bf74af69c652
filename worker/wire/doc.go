// Package wire is the codec of the worker protocol, whose normative text is api/spec/worker.md: frames on the socket,
// 64-byte descriptors, and blocks of tensors in shared memory. Both sides use it: the gateway's transport, and workers
// that are written in Go.
//
// # What it promises
//
// Pure functions over bytes: no I/O, no clock, no goroutine, no lock. Whoever calls it reads the socket, maps the memory
// and decides what an error costs.
//
// Whatever is decoded is taken for hostile. Lengths are compared as "length > capacity - offset", so nothing overflows;
// counts are bounded by bytes that are really there before any memory is taken for them; tables that lie in shared memory
// are copied into memory of our own before they are judged, so that a peer that rewrites them meanwhile changes nothing.
// No input makes a decoder panic.
//
// Errors say which field was wrong and wrap [ErrMalformed] (frames and descriptors: a protocol violation, REFUSED code 5
// or 6) or [ErrBlock] (blocks: BAD_OUTPUT for that batch, for the worker's author may simply have erred).
//
// # Its parts
//
//   - [Parser] cuts the socket's bytes into frames and drops bells. [Hello], [Welcome], [Segments], [Ready], [Refused] and
//     [Leaving] are the messages.
//   - [Request] and [Response] are the descriptors.
//   - [Schema] is the list of a block's sections. [Schema.Write] lays out values that are all there; [Builder] lays out
//     values that come one by one, in place while they fit; [Reader] reads what another process wrote.
//
// # What it never does
//
// It keeps no state of a connection: whether a message is legal now is the caller's business. It never compares a
// descriptor with what is outstanding. It does not keep, after it returned, any slice that it was given, but for the block
// of a [Reader] and of a [Builder], which hold it until the next Open or Begin.
//
// # Cost
//
// Nothing on the way of a batch allocates once the [Reader] and the [Builder] have grown to the shape of the traffic: a
// fixed section costs one copy per item, a ragged one a table entry more.
//
// Golden vectors for every message, descriptor and kind of block lie in api/spec/golden, and `go test ./worker/wire -run
// TestGolden -update` writes them. Next to read: api/spec/worker.md, then package worker, the gateway's side.
package wire
