// Package deployment is one model version with everything that serves it: its queue and batches (scheduler/driver), its
// supervised replicas (containers), its connected workers (worker) and its face on the query path (query.Model).
//
// A [Deployment] passes events between these parts. A worker that is ready becomes a replica of the queue. A worker that is
// gone gives its queries back, and its process is ended. A replica that hangs is killed on both sides. Labels for models that
// learn by themselves go to every replica (teach.go).
//
// A [Host] is what all deployments of a gateway share: clock, transport, runtime, capacity, cache, devices.
//
// # Who decides
//
// The number of replicas is package capacity's decision; each deployment is a capacity.Member. Whether the version is loaded,
// validated, available or drained is package versions' decision. A deployment knows no functions except by the names of their
// sub-queues.
//
// # Memory of a sleeping version
//
// A version that sleeps holds about 5.1 KB of heap, so ten thousand fit a small machine. A spec shares equal parts with the one
// deployed before it (compact.go). Counters and histograms are allocated by the first query. Buffers of batches and queues go
// with the last replica.
//
// # Locks
//
// Events come from pollers, so a deployment's lock is held only for moments and never while another package is called that
// takes a lock of the gateway.
package deployment
