// Package calls is the dialect of models that call other models (section 7 of api/spec/worker.md). It is served on lines, which are connections
// that the gateway gives to replicas, and nowhere else.
//
// A call is one request to a function, or to a model if there is no function of that name. Inputs and outputs are blocks of the worker protocol,
// because both ends have their codecs. The caller learns the callee's signature first, and names it in each call by a digest, so that a signature
// that has changed meanwhile is no misread block.
//
// # What a caller says, and what is believed
//
// Which replica calls follows from the line, and which functions it may call from its model's manifest. The caller says for which of its batches
// it calls; what that stands for (deadline, request id, trace, context, and the models that wait) is looked up in the gateway's own table
// ([dialect.Caller]). A caller that names none, or one that it does not evaluate, gets the function's latency objective and a request id of its
// own. So the worst that a worker can do here is to use what it may use anyway.
//
// # What ends as an error
//
// A call to what the manifest does not declare is Forbidden; one to a model that waits for the caller is Cycle, at once. A call for several inputs
// has one answer: if one of them has no output, the call has its error. The default of a function is an output.
//
// # Where to read next
//
// calls.go reads requests, answer.go renders. Package query continues the caller's request (compose.go).
package calls
