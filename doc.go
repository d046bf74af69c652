// Package xebec is the root of the module and holds no code. Its test, arch_test.go, is the architecture in executable form:
// which package may import which, where each third-party dependency lives, which packages are pure.
//
// Xebec serves machine-learning models as HTTP functions. README.md says how to use it, ARCHITECTURE.md how it is built and
// why. A Go program that wants to embed the gateway imports gateway/server; a model written in Go imports
// worker/bindings/go; everybody's nouns are in api.
package xebec
