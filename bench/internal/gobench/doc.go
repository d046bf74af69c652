// Package gobench runs Go benchmarks of a package with `go test` and parses their output: time, bytes and allocations per operation, for every
// run of each benchmark.
//
// It is for measurements of code that a package does not export. It knows no benchmark by name.
package gobench
