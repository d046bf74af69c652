// Package memory is a [worker.Transport] whose workers are Go functions in the same process. It is for tests. Code that
// uses a transport can be tested with it without processes, sockets or shared memory. It also shows that the interfaces
// of package worker need none of these.
//
// [Transport.Start] launches a worker: it takes the environment that Expect returned and a [Model], and returns a
// [Worker]. A test uses a Worker as a supervisor uses a process: it can stop it, kill it and wait for it.
//
// # What it promises
//
// It implements all of package worker and passes workertest.RunTransport, as package local does. A model's functions
// run one at a time, or as many as the model says, on copies of the inputs. A model may answer in streams: Stream sends
// copies to [Outputs], at most 16 ahead of the reader. Another goroutine delivers events and writes outputs into queries. A function that is still running when its replica is gone therefore touches nothing of
// the caller's. Outputs are checked against the signature as if another process had written them.
//
// # What it never does
//
// It is not for serving: Send copies inputs, every batch allocates, and a model that crashes the process crashes the
// gateway. The gateway does not import it.
//
// Read transport.go for launches, replica.go for the life of a replica, streams.go for streams, check.go for the checks of
// outputs.
package memory
