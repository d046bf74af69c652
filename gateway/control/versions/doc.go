// Package versions moves the versions of models through their lives and divides queries between them.
//
// A [Catalog] has all families; a [Family] is all versions of one model with its traffic rules; a [Version] is a
// deployment.Deployment with its place in life: declared, loading, validating, available, draining, rejected. Package registry,
// which is pure, decides which versions are aspired, which one serves and what the next steps are. This package carries the
// steps out.
//
// # A step
//
// Whatever happens to a family (a replica is ready, a declaration changes, a validation ends), the family is touched. The next
// step looks at it: what has happened moves versions on, the registry says who serves, rules come into force. Then the table is
// published, and only after that the registry's actions are taken. So traffic leaves a version before its replicas do. A version
// that is unloaded is drained: [query.Path] Quiesce says when no request can address it any more, and its lane says when its
// accepted queries are answered.
//
// A version with a warm-up or a validation answers recorded queries (package quality judges them) before its place in the table
// is opened. Roll-outs are limited and judged here; their end is declared by package declarations, because it must be durable.
//
// # Versions that have never served
//
// A version is its bytes from the moment at which callers can reach a replica of it. [State.Unserved] says of a version that this has
// not happened: this process, or the store, knows it since its declaration. Where that is not known, the version counts as one that
// has served.
//
// # Locks
//
// One lock guards everything: [Catalog.Lock] returns the [State], whose methods need it. It is never held while the store is
// asked. The functions that use the models are told to publish with the lock held, and have a lock of their own, taken after
// this one. A capacity's lock is taken after this one, too.
//
// # What it never does
//
// It knows no store and no manifest: what is declared, and whether it may be, is package declarations' business. It decides no
// number of replicas except that of a version that loads. It is not on the query path.
package versions
