// Package redistest runs a real Redis server for tests, and does to it what happens to servers: it is killed, started again,
// stopped for a while.
//
// [Start] gives a test a server of its own on a port of 127.0.0.1, with a folder of its own; both are gone when the test
// ends, also when its process is killed. Nothing is faked: what a test learns here holds for the redis-server program that
// is installed. Where there is none the test fails and says how to install it; nothing is skipped. The package waits on
// conditions, never for a time.
package redistest
