// Package gatewaytest is the gateway's side of the worker protocol, driven step by step by a test.
//
// Each method does one thing or waits for one thing, for at most [Patience]. Anything unexpected fails the test:
// another frame, a hang-up, a response that contradicts its request. Rings and descriptors on the socket use the same
// methods, so a test can run in both modes. Everything is closed at the end of the test.
//
// It decides nothing: the test chooses sizes, grants, generations and the order of steps. It does not import package
// xebec, whose tests use it, and is for one goroutine. The real gateway's side is package worker/local.
//
// Read api/spec/worker.md for the protocol, then serve_test.go of package xebec for examples.
package gatewaytest
