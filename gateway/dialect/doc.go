// Package dialect defines a dialect, which is a protocol of clients: its routes, and the format of its errors.
//
// A dialect is one package. It parses a request to one of its routes into a pooled [query.Request], submits it through
// the [Exchange], and renders the answer when the path calls it back. It never sees a connection, so the same dialect
// serves HTTP (package gateway/http) and callers in this process ([Local]). The path does not depend on the dialect of a
// request.
//
// # How to write one
//
// Implement [Dialect]: Routes returns each [Route] with the function that serves it. That function
//
//  1. takes the state of one request from its pool; the state embeds a [Call], whose Init got the path and the state;
//  2. calls Open and defers Abandon; calls AskFunction or AskModel with a parameter of the route;
//  3. writes the inputs of each query where Next says, and sets the request's options;
//  4. calls the Exchange's Submit. From then on the path owns the state. On an error the function calls Refuse or Drop
//     instead, and answers with [Fail].
//
// The state implements the rest of [query.Owner]: Settled renders the results of each Query(i) into the Call's [Answer],
// and Released resets the state and returns it to the pool. The Call implements Deliver.
//
// dialect_test.go in the module's root is a complete example outside the gateway, and CONTRIBUTING.md walks through it.
//
// # Common to all dialects
//
// An [api.Code] has the same status in every dialect; a dialect chooses the format of the body. This package reads the
// header that all dialects share ([SLO]) and serves the health documents ([Health]).
//
// # What it never does
//
// A dialect keeps nothing of an Exchange after the route's function has returned: parameters, headers and body are the
// transport's memory. The exception is a body that a query has borrowed: the Exchange waits until it is released.
package dialect
