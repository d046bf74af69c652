// Package oip is the dialect of the Open Inference Protocol, version 2, over REST, with its binary tensor extension: routes that address
// models and functions, and the codec of infer requests, infer responses, metadata and errors.
//
// # Functions
//
// A function is a model without versions. If a model has the same name, the function is meant, and name@version is the model. What an answer of a
// function says beside its outputs (query_id, default, confidence, models and more: [dialect.Call.Facts]) is in the answer's parameters; what a request
// may ask (context, slo_ms, min_confidence, models and more: [dialect.Options]) is in the request's parameters or in header fields. All other
// parameters that are not the protocol's go to the model.
//
// # Queries
//
// The protocol has tensors that hold a whole batch; the gateway has queries. If each input of a request has one dimension
// more than the model declares, the request is n queries, where n is the leading dimension, which all inputs must share.
// The metadata announce this form: they prepend -1 to every declared shape. A request in the declared shapes is one
// query, and its outputs have no leading dimension either. Mixtures are refused. All queries of a request have the same
// dimensions. So must their outputs, because one tensor holds them.
//
// A query of a function that has no prediction has the function's default, if there is one; a model has none. A request with a query that has neither
// fails. The deadline is the header Xebec-Slo-Ms, else the parameter slo_ms, else the parameter timeout, else that of the function, or 30 s for a model.
//
// # Data
//
// In JSON, "data" is nested like the shape, or flat in row-major order. Elements of BYTES are strings or {"b64": "…"}, an
// extension of the protocol. Binary tensors follow the JSON in the order of the request, little-endian; each element of
// BYTES is preceded by its length in 32 bits. Answers in JSON are flat; NaN and the infinities are null in them, and
// BYTES that are not UTF-8 are an error that tells the client to request binary data. FP16 may be given in both forms.
// Shared memory regions are refused by name.
//
// # Promises
//
// A request that [Request.Parse] accepts matches the signature in every respect, so no malformed input reaches a worker.
// The parser takes storage only when the number of queries is known, bounded, and plausible for the length of the body.
// It compares every size in the request with the body before it relies on it. In steady state it allocates nothing per
// query. Messages name the tensor, what was found and what was expected.
//
// # Where to read next
//
// dialect.go has the routes, request.go and input.go the parser, and response.go the answers. Package tensorjson reads
// and writes the JSON. The package sees no connection: header fields come from the exchange, and answers go back to it.
package oip
