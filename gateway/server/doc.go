// Package server composes a gateway: it is the only package, besides the command over it, that knows everyone.
//
// [Run] is `xebec serve`: it listens, starts what the manifests declare, and takes everything down in order when its context
// ends. A Go program that embeds the gateway calls it the same way.
//
// # What is joined here
//
// A deployment is one model version: its queue and batches (scheduler/driver), its supervised replicas (containers), its
// connected workers (worker) and its face on the query path (gateway.Model). The deployment passes events between them: a
// worker that is ready becomes a replica of the queue; a worker that is gone gives its queries back and its process is ended; a
// replica that hangs is killed on both sides. Functions resolve to deployments, and every change of what resolves to what
// publishes a new table, which queries read without a lock.
//
// A family is all versions of one model with its traffic rules (family.go). Whatever happens to one of them, it is looked at: what has
// happened moves versions on in their lives, package registry says who serves and what the next steps are, the table is published, and
// only then the steps are taken, so that traffic leaves a version before its replicas do. A version that is to be unloaded is drained when
// [gateway.Gateway.Quiesce] says that no request can have it in mind any more. qualify.go has a version answer its warm-up and validation queries
// (package quality judges them) before its place in the table is opened; rules.go and traffic.go put splits, shadows and roll-outs into
// the table, and end roll-outs about which there is a verdict.
//
// # How what is declared changes
//
// declare.go: a change is judged against all there is, committed to the store for the revision that it was judged against, and then
// installed in memory, which cannot fail. The lock declaring is held over all three, the lock mu never while the store is asked. Where another
// gateway was faster, its change is taken in (sync.go) and the judgement is made again; a change of the same object is a conflict for
// the caller. A caller that has read an object and edited it says at which revision that was, and at another one nothing is changed
// (revision.go). A change that the store has not taken has not happened. Watched directories (sources.go) go past the store: what they have is
// installed as it is, and what cannot be is a problem that is shown.
//
// A store that comes back with an older memory is told again what it has lost; one that is away is waited for, while everything serves.
//
// # How many replicas there are
//
// capacity.go is the only place that says so. While a version loads it has what its life asks for; while it serves, package autoscale says
// what its queries need, every 250 ms, and at once when a query has found no replica ([gateway.Model].Wake); package placement says who gets
// how many of that where not all fits. First less is carried out, then more, as far as what is ending has left room. The capacity has a lock
// of its own, and its goroutine never takes the server's under it: a model wakes while a table is published. usage.go measures what
// replicas take and knows what the machine has (package node); cold.go how long those waited who woke a version; runtimes.go makes
// the runtime (processes, and containers for launches with an image), tells it which zygotes are to be there, and says what it cannot do;
// transport.go makes what reaches the replicas.
//
// # What a model that sleeps takes
//
// 4.9 KB of the heap, so that ten thousand fit a small machine: 50 MB, beside some 40 MB of the program, its pools and the collector's own. A
// spec shares with the one before it what is equal (compact.go). Counters and histograms are made with the first query, which is some 15 KB, and
// stay, for they only grow; buffers of batches and queues go with the last replica ([scheduler.Machine.Release]). Where nobody is awake nothing
// is done for each model, and what the collector would keep for the next rush is given back (tidy.go). memory_test.go holds all that to bounds.
//
// # What the planner is told
//
// The same change tells the scheduler's epoch what there is to plan for: plan.go lists functions with their candidates, models
// with their costs and devices, in terms of package planner, and plan_status.go says in words what was planned and why. Which
// devices exist is fixed at the start; a model that names another is refused.
//
// A function has its policy (package selection) with what that has learned (package learned), which outlive changes of its
// declaration; learn.go opens the store they are kept in, gives functions their policies, losses and shadows, and tells the
// planner what policies think of their candidates. teach.go hands labels to the replicas of models that learn by themselves.
// All models share one prediction cache; a version that is deleted takes its entries with it.
//
// # Order of the end
//
// The listener closes, every accepted request is answered or the time to drain is over, queues are closed, workers are told to
// drain and their processes end, what was learned is written to the store, as far as it answers, and last the reaper ends.
// However the gateway ends, the reaper outlives it just long enough to end every replica; nothing is left behind.
//
// # What it never does
//
// It is not on the query path: a query goes from package gateway to package driver to package worker and back without passing
// here, but for the forwarding of events, and for Wake, which does not block. It makes no plans, and decides nothing about versions or
// numbers of replicas that packages registry, autoscale and placement decide. It unloads
// nothing because a store, a directory or another gateway cannot be seen. And it keeps nothing of what a gateway has counted or validated:
// that begins anew with each start.
//
// # Where to read next
//
// server.go for the order of start and end, family.go for the life of a version, declare.go for a change, publish.go for the table,
// capacity.go for replicas.
package server
