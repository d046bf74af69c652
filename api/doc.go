// Package api holds the nouns of Xebec: what a query, a tensor, a model, a function and an error are.
//
// All other packages use these types. api imports nothing of the project and nothing outside the standard library, so
// that the scheduler, the transports, the HTTP dialects and a program that embeds the gateway can share it.
//
// # The words
//
// A function is what an app calls: a named HTTP endpoint with an input type, a latency objective (SLO), candidate
// models, a [PolicySpec] that selects among them and learns from feedback, a [LossSpec] that says how labels are
// compared, and a default output. A model is a named predictor, a version one immutable release of it, and [ModelID]
// names the pair. A replica is one running worker that serves one model version. A model's traffic ([TrafficSpec]) says
// which of its versions are loaded and which of them answer; [VersionStatus] is a version's state in its life cycle. A
// [Query] is one input on its way to one prediction by one model version; a [Batch] is a group of queries that share
// one call of the model's predict.
//
// # Specs
//
// Each spec is declared once, in its struct. A field's json tag is its name in manifests and in JSON, its other tags say how
// a manifest's value is read. The JSON form (spec_json.go) and package manifest (fields.go) both follow the tags.
//
// # Data
//
// A [Value] is the raw data of one tensor of one query: little-endian, row-major, without names or types. The model's
// [TensorSpec] says, once for all values, what the bytes mean. A BYTES tensor of rank 0 is the bytes themselves. A
// BYTES tensor of a higher rank is a sequence of elements, each preceded by its length as a 32-bit integer (the raw
// form of the Open Inference Protocol).
//
// # Errors
//
// An [Error] has a [Code]. The code alone decides the HTTP status, so that all dialects answer alike. Messages are for
// people: what was wrong, where, and what was expected. They never name anything internal, such as a descriptor, an
// offset or a path of the gateway's own.
package api
