// Package mux is a [containers.Runtime] over others: it starts each launch with the first of its routes that takes it, such as
// containers for launches with an image and processes for the rest.
//
// # What it promises
//
// A mux of runtimes can do what they can. Capabilities that concern a runtime as a whole are passed on: Preload gives each
// Preloader the launches that go to it, Zygotes and Sweep and Quiet ask all that have these. Capabilities that concern one launch
// are those of the runtime that would start it: [containers.As] finds it through Chosen, so a capability that one runtime lacks is
// not promised for its launches because another one has it.
//
// The mux owns its runtimes: Close closes them all, in the reverse order of the routes, also when one of them fails.
//
// # What it never does
//
// It starts nothing itself, knows none of the runtimes below package containers, and does not try a second route when the first one
// cannot start a launch: a model that asks for a container must not run outside of one.
package mux
