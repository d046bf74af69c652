// Package oip is the dialect of the Open Inference Protocol, version 2, over REST, with its binary tensor extension: routes that address
// models, and the codec of infer requests, infer responses, metadata and errors.
//
// # Queries
//
// The protocol speaks of tensors that hold a whole batch, the gateway of queries. A request whose inputs have one dimension more than the
// model declares is n queries, n being the leading dimension, the same for all inputs. The metadata ask for this form: they prepend -1 to
// every declared shape. A request in the declared shapes themselves is one query, and its outputs have no leading dimension either. Mixtures
// are refused. Within a request all queries have the same dimensions; so must their outputs, or one tensor could not hold them.
//
// A model has no default output. The deadline of a request is its header Xebec-Slo-Ms, else its parameter timeout, else 30 s.
//
// # Data
//
// In JSON, "data" is nested as the shape or flat, row-major. Elements of BYTES are strings or {"b64": "…"}, which the protocol lacks. Binary
// tensors follow the JSON in the order in which the request lists them, little-endian; elements of BYTES are led by their length in 32 bits.
// Answers in JSON are flat; NaN and the infinities are null there, and BYTES that are not UTF-8 are an error that says to ask for binary
// data. FP16 may be given in both forms. BF16, shared memory regions and the classification extension are refused by name.
//
// # Promises
//
// A request that [Request.Parse] accepts fits the signature in every respect, so nothing wrong reaches a worker. Storage is taken only when
// the number of queries is known, bounded, and plausible for the length of the body; no size that the request names is believed before it
// was compared with the body. Nothing is allocated per query in steady state. Messages name the tensor, what was found and what was
// expected.
//
// # Where to read
//
// dialect.go has the routes, request.go and input.go the parser, response.go the answers; package tensorjson reads and writes the JSON
// itself. It knows no connection: header fields come from the exchange, and answers go back to it.
package oip
