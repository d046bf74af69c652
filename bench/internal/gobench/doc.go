// Package gobench runs Go benchmarks of a package by `go test` and gathers what they printed: time, bytes and allocations of one
// operation, for every run of each benchmark.
//
// It is for figures that only a package itself can take, for what is measured is not exported. It knows no benchmark by name.
package gobench
