// Package busypoll decides whether a side that has run out of work spins for a moment before it sleeps.
//
// Sleeping and waking take several microseconds and two system calls, more than a small query. A side that spins finds its next work at
// once, and those who bring it need not wake the side. The price is a core, so a side spins only if the machine has cores to spare ([Off]),
// for a bounded time, and only while work is likely to come within that time: an [Estimator] keeps an average of how long the side had to
// wait lately, from the moment at which it had nothing left to do. Work that comes before that moment does not count. Spins that find
// nothing make the next ones rarer.
//
// The package has no clock and does not spin. Its users do: the gateway's pollers (gateway/http/poll), its side of the rings (worker/local),
// and workers (worker/bindings/go, and in C and Python worker/bindings/python, which pass the same table of tests).
package busypoll
