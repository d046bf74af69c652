// Package admin is the admin API: JSON over HTTP by which operators and the command line declare, inspect and delete models,
// functions and traffic rules.
//
// # What it promises
//
// To the gateway: [Control] is called with what has been checked already. Names are names, manifests are valid and have
// their defaults, directories are absolute, bodies are bounded, and whoever sent them may: a program on this machine, or somebody with a
// token. The context says who it was.
//
// To the operator: every failure has one shape, {"error": {"code", "message"}}, and a message that says what to do. The codes
// are api's; a request that is refused for where it comes from has the code "forbidden". The API is described in
// api/spec/openapi.yaml, and a test holds the two together. Each change that is asked for leaves one line in the log "audit", also when it
// is refused: who, from where, what, and what became of it.
//
// To those who change one object at the same time: whoever sends the revision that was read (match.go: the header If-Match, or a document's
// field) undoes nothing of what others have declared since, and is told who was faster. What cannot be kept of that is refused.
//
// # Who may call it
//
// Whoever can declare a model can run a program, so the port is bound to loopback, or asks for a token over TLS ([Options], [Tokens],
// [Certificate]; which of the two is the composition's to decide). Loopback alone does not keep out a web page in a browser on the same
// machine, so every request there must name a loopback host (a page that rebinds its own name to 127.0.0.1 does not). Nowhere may a
// request carry a foreign Origin or be marked cross-site by the browser, and its body must have a type that a form cannot send.
//
// All tokens may do everything: they tell people apart, in the audit and in the history, and can be taken back one by one. The header
// Xebec-User is believed where the token has no name: it is for those who want to be found, and proves nothing.
//
// A token is checked when a request's body has been read already, all 12 MiB of it if need be: a limit on connections belongs in front.
//
// # What it never does
//
// It holds no state but a count of log followers and of refused requests, and what it read of its files; it keeps no token, only hashes of
// them, and no token is in an error or in the log. It starts no goroutine, and knows nothing of schedulers, workers and
// processes: that is behind Control, which the composition (package server) implements.
//
// # Where to read next
//
// control.go is the contract; admin.go has the routes; lifecycle.go those of versions and of what is kept; guard.go says who is refused, token.go and
// certificate.go what proves who somebody is; audit.go what is told of changes; logs.go is the one answer that streams.
package admin
