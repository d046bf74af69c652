// Package fetch is a source of model versions that lie in a store behind HTTP: an object store, or any web server with an
// index document. It keeps a copy of what the index lists in a directory, laid out as watched directories are, and a
// [watch.Watcher] reports that directory.
//
// A [Store] promises:
//
//   - What is served has the size and the SHA-256 that the index says. An archive that has not is a problem of its
//     version, is not unpacked, and affects no other version.
//   - A version never changes. If the index has another hash for a version that is there, that is a problem, and the
//     version stays what it was.
//   - No action without data. An index that cannot be read, or is not one, changes nothing: what is there stays, also
//     after a restart.
//   - What the index no longer lists is removed.
//
// Everything that comes from the store is bounded: [MaxIndexBytes], [MaxVersions], the size of a version. A directory
// has one user.
package fetch
