// Package querytest has what tests of the path of a query and of dialects need in place of a scheduler and of workers: a [Lane] whose test says
// what becomes of each query, and functions that end one as a scheduler would. It imports neither, so that package query can test
// itself with it, and it is no part of any program.
package querytest
