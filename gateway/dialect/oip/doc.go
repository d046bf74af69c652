// Package oip is the codec of the Open Inference Protocol, version 2, over REST, with its binary tensor extension: infer
// requests to the inputs of queries, outputs of queries to infer responses, and the documents of metadata and errors.
//
// # Queries
//
// The protocol speaks of tensors that hold a whole batch, the gateway of queries. A request whose inputs have one
// dimension more than the model declares is n queries, n being the leading dimension, the same for all inputs: this is
// what the metadata ask for, which prepend -1 to every declared shape. A request in the declared shapes themselves is one
// query, and its outputs have no leading dimension either. Mixtures are refused. Within a request all queries have the
// same dimensions; so must their outputs, or one tensor could not hold them.
//
// # Data
//
// In JSON, "data" is nested as the shape or flat, row-major; elements of BYTES are strings, or {"b64": "…"}, which the
// protocol lacks and which costs nothing to take. As binary data, tensors follow the JSON in the order in which the
// request lists them, little-endian; elements of BYTES are led by their length in 32 bits. Answers in JSON are flat; NaN
// and the infinities are null there, BYTES that are not UTF-8 an error that says to ask for binary data. FP16 may be
// given in both forms. BF16, shared memory regions and the classification extension are refused by name.
//
// # Promises
//
// To its caller, the gateway's dialect: what [Request.Parse] lets pass fits the signature in every respect, so that
// nothing wrong reaches a worker; storage is asked for only once the number of queries is known, bounded and plausible
// for the length of the body; no size of the request is believed before it was compared with the body. Nothing is
// allocated per query in steady state. To clients: messages name the tensor, what was found and what was expected.
//
// It knows no HTTP: the length that Inference-Header-Content-Length carries comes in and goes out as a number. It starts
// nothing and keeps nothing beyond the next Parse.
//
// Where to read next: input.go for shapes and data, response.go for answers, package tensorjson for the JSON itself.
package oip
