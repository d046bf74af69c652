// Package server composes a gateway: it is the only package, besides the command over it, that knows everyone.
//
// [Run] is `xebec serve`: it listens, starts what the manifests declare, and takes everything down in order when its context
// ends. A Go program that embeds the gateway calls it the same way.
//
// # What is joined here
//
// A deployment is one model version: its queue and batches (scheduler/driver), its supervised processes (containers), its
// connected workers (worker) and its face on the query path (gateway.Model). The deployment passes events between them: a
// worker that is ready becomes a replica of the queue; a worker that is gone gives its queries back and its process is ended; a
// replica that hangs is killed on both sides. Functions resolve to deployments, and every change of what resolves to what
// publishes a new table, which queries read without a lock.
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
// here, but for the forwarding of events. And it makes no plans.
package server
