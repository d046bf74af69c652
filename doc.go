// Package xebec is the root of the module and holds no code. arch_test.go is the architecture as a test: which package may
// import which, which packages may use which third-party dependency, and which packages are pure.
//
// Xebec serves machine-learning models as HTTP functions. README.md says how to use it, ARCHITECTURE.md how it is built and
// why. A Go program that wants to embed the gateway imports gateway/server; a model written in Go imports
// worker/bindings/go. The types that all packages share are in api.
package xebec
