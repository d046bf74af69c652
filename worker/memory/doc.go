// Package memory is a [worker.Transport] whose workers are Go functions in the same process. It is for tests: of whoever uses a
// transport, which then need no process, no socket and no shared memory, and of package worker itself, whose interfaces must not
// presume any of these.
//
// [Transport.Start] plays the launcher: it takes the environment that Expect returned and a [Model], and returns a [Worker], which
// is to the test what a process is to a supervisor. It can be told to stop, killed, and waited for.
//
// # What it promises
//
// All that package worker asks for; workertest.RunTransport judges it by the suite that package local passes. A model's functions
// run one at a time in a goroutine of the worker, on copies of what was sent. Another goroutine of the worker delivers events and
// writes outputs into queries, so a function that is still running when its replica is lost touches nothing of the caller's.
// Outputs are checked against the signature as if another process had written them.
//
// # What it never does
//
// It is no transport to serve with: inputs are copied on Send under a lock, every batch allocates, and a model that crashes the
// process takes the gateway with it. The gateway does not import it.
//
// Read transport.go for the launch, replica.go for the life of a replica, check.go for what is refused.
package memory
