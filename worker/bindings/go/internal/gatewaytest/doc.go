// Package gatewaytest is the gateway's end of the worker protocol, played step by step by a test.
//
// It promises the tests of package xebec and of the commands beside it that each method does one thing or waits for one, for
// at most [Patience], and that whatever else happens fails the test: a frame that was not expected, a hang-up, a descriptor
// that answers something else. Rings and descriptors on the socket go through the same methods, so that a test can be run
// both ways. Everything it opens is closed with the test.
//
// It never chooses: sizes, grants, generations and the order of everything are the test's. It knows nothing of package xebec,
// whose tests could not import it otherwise, and has one user at a time. It is no gateway: package worker is.
//
// Next to read: api/spec/worker.md for what is played, then serve_test.go of package xebec for how.
package gatewaytest
