// Package admin is the admin API: JSON over HTTP by which operators and the command line declare, inspect and delete models
// and functions.
//
// # What it promises
//
// To the gateway: [Control] is called with what has been checked already. Names are names, manifests are valid and have
// their defaults, directories are absolute, bodies are bounded, and nobody but a program on this machine has sent them.
//
// To the operator: every failure has one shape, {"error": {"code", "message"}}, and a message that says what to do. The codes
// are api's; a request that is refused for where it comes from has the code "forbidden". The API is described in
// api/spec/openapi.yaml, and a test holds the two together.
//
// # Who may call it
//
// Whoever can declare a model can run a program, so the port is bound to loopback. That alone does not keep out a web page in a
// browser on the same machine, so every request must name a loopback host (a page that rebinds its own name to 127.0.0.1
// does not), must not carry a foreign Origin or be marked cross-site by the browser, and must send its body under a type that
// a form cannot send.
//
// # What it never does
//
// It holds no state but a count of log followers, starts no goroutine, and knows nothing of schedulers, workers and
// processes: that is behind Control, which the composition (package server) implements.
//
// # Where to read next
//
// control.go is the contract; admin.go has the routes; guard.go says who is refused; logs.go is the one answer that streams.
package admin
