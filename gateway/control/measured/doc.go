// Package measured keeps the measured performance of model versions: how long their batches take, how often feedback found them right, and how
// far their queries have drifted. Without it a gateway that was restarted would plan for models that it has known for months as if they were new.
//
// # What is kept
//
// A version has one note in the store (package state), of at most 16 KiB: the line and the 99th percentile of its batch times, their means by
// size, the sum of its losses, and its last drift, each with its time and the number of batches, labels or queries that it is of. The note names the
// hardware and the version's fingerprint (its files, its command, its limits).
//
// # When it is written and read
//
// One goroutine looks at all versions every 30 s, and writes the notes of those with something new in one transaction; so does the end of the
// gateway, and an old process before it hands the store to a new one. What was measured since the last look is lost in a crash. The notes are read once,
// at the start, or when the process takes the store over.
//
// # What counts
//
// A version is given its old profile if hardware and fingerprint are the same: see [github.com/xebec-serving/xebec/scheduler.Prior] for how quickly new
// batches replace it. Accuracy needs the same fingerprint only: feedback is as true on other hardware. Each kind of hardware has a note of its own,
// so that gateways which share a store do not overwrite each other's times; times of other hardware are shown and never used. Of two gateways on the same hardware,
// the one that wrote later is right.
//
// A version that is removed loses its notes. A version that this process has not seen yet keeps them: an unread directory says nothing. At most 4,096 notes are kept of this hardware; those with the oldest figures go first.
//
// # What it never does
//
// No query waits for it, and the path of a query takes no lock of it: it reads counters. It needs no store: without one the figures live as long as the gateway.
// A note that cannot be read, is of a newer program or has figures that cannot be is skipped, and replaced when the version is measured again.
package measured
