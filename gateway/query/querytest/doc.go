// Package querytest fakes schedulers and workers for tests of the query path and of dialects: a [Lane] whose test
// decides what becomes of each query, and functions that end a query like a scheduler does. It imports neither package
// query nor a dialect, so that package query can use it in its own tests. No program links it.
package querytest
