// Package admin is the admin API: JSON over HTTP with which operators and the command line declare, inspect and delete
// models, functions and traffic rules.
//
// # What it promises
//
// To the gateway: [Control] is called only with checked arguments. Names are valid, manifests are valid and have their
// defaults, directories are absolute, bodies are bounded, and the sender is authorised: a program on this machine, or a
// client with a token. The context has the caller.
//
// To the operator: every failure has the form {"error": {"code", "message"}}, with a message that says what to do. The
// codes are those of package api; a request that is refused because of its origin has the code "forbidden".
// api/spec/openapi.yaml describes the API, and a test compares the two. Each requested change, even a refused one, is
// one line in the log "audit": who requested it, from where, what, and the outcome.
//
// To operators who change the same object concurrently: a request with the revision that was read (match.go: the header
// If-Match, or a document's field) never undoes a later change, and the error names the author of that change. A
// revision that cannot be checked is refused.
//
// # Who may call it
//
// Declaring a model means running a program, so the port is bound to loopback, or requires a token over TLS ([Options],
// [Tokens], [Certificate]; the server decides which). Loopback alone does not keep out a web page in a browser on the
// same machine. Therefore every request there must name a loopback host, which a page that rebinds its own name to
// 127.0.0.1 does not. On any port, a request must not have a foreign Origin or be marked cross-site by the browser, and
// its body must have a type that a form cannot send.
//
// Metrics, health and the description of the API, which the server adds ([Options.Public]), are for any program: they
// need no token, and only a foreign Host is refused, on loopback.
//
// All tokens have the same permissions. They identify people in the audit and in the history, and can be revoked one by
// one. The header Xebec-User is used if the token has no name; it is a courtesy and proves nothing.
//
// A token is checked after a request's body has been read, up to 12 MiB. Put a limit on connections in front of the
// port.
//
// # What it never does
//
// It has no state except the numbers of log followers and of refused requests, and the contents of its files. It keeps
// only hashes of tokens, and no token appears in an error or in the log. It starts no goroutine, and knows nothing
// about schedulers, workers and processes: package server implements these as a Control.
//
// # Where to read next
//
// control.go is the contract. admin.go has the routes, lifecycle.go those of versions and of the history. guard.go
// decides which requests are refused; clipper.go has the routes of package clipper, Clipper's operations; token.go and certificate.go authenticate. audit.go logs changes. logs.go has the
// only answer that streams.
package admin
