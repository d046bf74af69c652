// Package dialect defines what a protocol of clients is to the gateway: routes, and the shape of an error.
//
// A dialect is one package. It reads a request that arrives at one of its routes straight into a pooled [query.Request], hands it to the
// [Exchange], and renders the answer when the path calls it back. It never sees a connection, so the same dialect serves HTTP
// (package gateway/http) and callers of this process ([Local]). The path never asks which dialect a request is in.
//
// # To write one
//
// Implement [Dialect]: Routes returns each [Route] with the function that serves it. That function
//
//  1. takes its own state for one request from its pool; the state embeds a [Call], whose Init was given the path and the state;
//  2. calls Open, and AskFunction or AskModel with a parameter of the route;
//  3. writes the inputs of each query where Next says, and sets what else the request says;
//  4. calls the Exchange's Submit. The state is the path's from there on. If anything is wrong it calls Refuse or Drop instead, and
//     answers with [Fail].
//
// The state implements the rest of [query.Owner]: Settled renders into the Call's [Answer] what Query(i) has for each query, and
// Released resets the state and returns it to the pool. Deliver is the Call's.
//
// dialect_test.go in the module's root is a complete one, outside the gateway, and CONTRIBUTING.md walks through it.
//
// # What holds for all
//
// The same [api.Code] has the same status in every dialect; a dialect chooses the shape of the body. A header that means the same
// everywhere is read here ([SLO]), and so are the health documents ([Health]).
//
// # What it never does
//
// A dialect keeps nothing of an Exchange after it has returned from the route's function: parameters, headers and body are the
// transport's memory. A body that a query has borrowed is the exception, and the Exchange waits for that one.
package dialect
