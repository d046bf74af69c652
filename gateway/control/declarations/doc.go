// Package declarations is where what is declared changes: models, functions and traffic rules, from manifests, from watched
// directories, and from other gateways that share the store.
//
// # A change
//
// A change is judged against everything that is declared (judge.go), committed to the store for the revision that it was judged
// against, and then installed in memory. The lock declaring is held over all three; the catalog's lock never while the store is
// asked. Where another gateway was faster, its change is taken in (sync.go) and the judgement is made again; a change of the same
// object is a conflict for the caller. A caller that has read an object and edited it says at which revision that was, and nothing
// is changed if the object is at another one (ledger.go). A change that the store has not taken has not happened.
//
// Watched directories (watched.go) bypass the store: what they have is installed as it is, and what cannot be is a problem that
// is shown. A store that comes back with an older memory is told again what it has lost. One that is away is waited for, while
// everything serves.
//
// The end of a roll-out is a change like any other, made by the gateway itself (traffic.go).
//
// # Locks
//
// declaring is taken first, then the catalog's lock, then that of functions; the ledger's lock is a leaf.
//
// # What it never does
//
// It unloads nothing because a store, a directory or another gateway cannot be seen. It decides nothing about which version
// serves: it declares what package versions works toward.
package declarations
