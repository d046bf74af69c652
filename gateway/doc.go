// Package gateway answers HTTP: it turns requests of several dialects into queries, and their ends into answers.
//
// # The way of a request
//
// http.go is the only file that touches Hertz's contexts. A handler looks the function up in a table that is replaced as a
// whole (a look-up takes no lock), asks the function's [Choice] which of its candidates this request goes to, lets the dialect
// parse the body straight into the pooled buffers of a call, and submits the call's queries to that candidate's scheduler (or
// refuses them, where the plan has no place for them). Then it returns: nothing of Hertz's context or body is kept. (A large
// raw body is not copied: its handler stays until the scheduler has released the query.) path.go shows the rest on one screen:
// the last query to be answered renders the answer, and the connection writes it, from whatever goroutine that was (conn.go).
// Requests that end their connection are answered by their own handler, which waits.
//
// # Ownership
//
// A [call] and its items are pooled and have counted owners: the scheduler holds each item until it is released, the answer
// holds the call until it is written. Whoever lets go last returns them to the pool. After its deadline a call is answered and
// may still be inside a batch; its buffers are not touched until the scheduler is done with them.
//
// # Dialects
//
// native.go is Clipper's API, extended: functions, with a latency objective and a default output. oip.go is the Open Inference
// Protocol v2: it addresses models, has no default output, and a deadline of 30 s unless the request says otherwise. Every
// dialect maps the same [api.Code] to the same HTTP status and explains it in its own error shape.
//
// # What it never does
//
// It knows no worker, no process and no segment: a model is a signature and a [Lane] to submit queries to. It starts nothing
// and decides nothing about batches, nor about which candidate is asked: a [Choice] is a plan that others make. The composition
// is package server.
package gateway
