// Package mux is a [containers.Runtime] over others. It starts each launch with the first of its routes that takes it,
// for example containers for launches with an image and processes for all others.
//
// # What it promises
//
// A mux can do what its runtimes can. It forwards capabilities that concern a runtime as a whole: Preload gives each
// Preloader the launches that go to it; Zygotes, Sweep and Quiet ask every runtime that has them. Capabilities that
// concern one launch are those of the runtime that would start it. [containers.As] finds that runtime through Chosen,
// so a capability of one runtime is not promised for launches of another.
//
// The mux owns its runtimes. Close closes all of them, in the reverse order of the routes, also if one fails.
//
// # What it never does
//
// It starts nothing itself and knows none of the runtimes below package containers. If a route cannot start a launch,
// it does not try another: a model that asks for a container must not run outside of one.
package mux
