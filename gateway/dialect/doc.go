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
//  2. calls Open and defers Abandon; calls AskNamed, AskFunction or AskModel with a parameter of the route;
//  3. writes the inputs of each query where Next says, and sets the request's options;
//  4. calls the Exchange's Submit. From then on the path owns the state. On an error the function calls Refuse or Drop
//     instead, and answers with [Fail].
//
// The state implements the rest of [query.Owner]: Settled renders the results of each Query(i) into the Call's [Answer],
// and Released resets the state and returns it to the pool. The Call implements Deliver.
//
// dialect_test.go in the module's root is a complete example outside the gateway, and CONTRIBUTING.md walks through it.
//
// # Functions are models
//
// Clients of standard protocols know models and versions. To them a function is a model without versions, and a dialect needs three things for it:
//
//   - [query.Request.AskNamed] addresses what a name means: the function of that name, or else the model. With a version, or as name@version, it is
//     the model's version. Documents ask [query.Path.Named], and lists [query.Path.Names].
//   - [Options] are what a call may ask beside its inputs (deadline, context, minimal confidence, candidates), in members of its request or in header
//     fields, by the same names and with the same bounds in every dialect.
//   - [Call.Outputs] are the outputs of a query or the function's default, and [Call.Facts] is what the answer says beside them: the query's id, which
//     feedback names, the confidence, and the models that took part. [Call.Failed] finds a query that has no outputs.
//
// Feedback is given by POST /{function}/feedback, whatever the dialect of the query.
//
// # Common to all dialects
//
// An [api.Code] has the same status in every dialect; a dialect chooses the format of the body. This package serves the health documents ([Health]).
//
// # What it never does
//
// A dialect keeps nothing of an Exchange after the route's function has returned: parameters, headers and body are the
// transport's memory. The exception is a body that a query has borrowed: the Exchange waits until it is released.
package dialect
