// Package server composes a gateway. It is the only package, besides the command over it, that knows all the others, and it is a
// library: [New], Start, Apply, Predict, PredictBatch, Feedback and Shutdown are a gateway within a Go program, and [Run] is
// `xebec serve`. deploy/guide/embedding.md has a complete program.
//
// # What is composed
//
// server.go makes the parts in order, each from those before it: runtime and transport, clock and epoch, store, cache, the path of
// queries (gateway/query), and what decides (gateway/control): capacity, deployments, versions, functions, declarations, status.
// Each part has its own state and its own lock; this package has none, except the list of what to take down. ports.go opens the
// function port, with its dialects, and the admin port; secure.go says who may reach the latter. datadir.go names the files that a
// gateway keeps.
//
// What a program can replace: Config.Runtime starts replicas, Config.Transport connects them, Config.Dialects are protocols beside
// the native one and the Open Inference Protocol.
//
// # What it leaves alone
//
// It changes nothing of its process: no umask, no GOMAXPROCS, no global log level, no signals. Config.ReleaseMemory, which collects
// garbage, is off unless the program asks for it. Several gateways may run in one process.
//
// A program whose gateway starts processes calls process.MaybeReaper of containers/process first in main: the process that watches
// replicas is a second one of the same program.
//
// # Order of the end
//
// Quiesce announces the end while everything goes on: readiness is refused, answers close their connections, nothing can be changed any
// more. Stop does so for Config.LameDuck. Then the listener closes. Every accepted request is answered, or the time to drain is over. Queues are closed, workers are told to
// drain, and their processes end. What was learned is written to the store, as far as it answers. The reaper ends last. However a
// gateway ends, the reaper outlives it just long enough to end every replica, so nothing is left behind.
//
// A gateway that another process has replaced does not wait for its clients: their kept connections have gone to that one (handover.go).
//
// # What it never does
//
// It is not on the path of a query. It decides nothing about versions, replicas or declarations. It keeps nothing of what a gateway
// has counted or validated: that begins again with each start.
package server
