// Package api holds the nouns of Xebec: what a query, a tensor, a model, a function and an error are.
//
// Every other package speaks in these words and none of them is spoken here: api imports nothing of the project and
// nothing outside the standard library, so that the scheduler, the transports, the dialects of HTTP and a program that
// embeds the gateway can all share it.
//
// # The words
//
// A function is what an app calls: a named HTTP endpoint with an input type, a latency objective (SLO), candidate models, a
// [PolicySpec] that selects among them and learns from feedback, a [LossSpec] that says how labels are compared, and a default
// output. A model is a named predictor, a version one immutable release of it, and [ModelID] names the pair. A replica is one
// running worker that serves one model version. A model's traffic ([TrafficSpec]) is which of its versions are loaded and which of
// them answer; [VersionStatus] is where one of them is in its life. A [Query] is one input on its way to one prediction by one
// model version; a [Batch] is queries that share one call of the model's predict.
//
// # Data
//
// A [Value] is the raw data of one tensor of one query: little-endian, row-major, without names or types. What the bytes
// mean is said once for all of them by the [TensorSpec] that the model declares. BYTES tensors of rank 0 are the bytes
// themselves; of a higher rank they are a sequence of elements, each led by its length as a 32-bit integer (the raw form
// of the Open Inference Protocol).
//
// # Errors
//
// An [Error] has a [Code]; the code alone decides the HTTP status, so that every dialect answers alike. Messages are
// for people: what was wrong, where, what was expected. They never name anything internal (a descriptor, an offset, a
// path of the gateway's own).
package api
