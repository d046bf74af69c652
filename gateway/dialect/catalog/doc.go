// Package catalog serves GET /v1/models and /v1/models/{name}, which three protocols claim: TensorFlow Serving's REST API, KServe's version 1 and
// OpenAI's. Each of them reads its own members and skips the others', so there is one document with the members of all.
//
//	model_version_status                 TensorFlow Serving
//	name, ready; in the list models      KServe
//	id, object, created, owned_by; data  OpenAI
//
// Functions are models. What is below a model's path belongs to the dialects of the protocols, which have packages of their own; so do POST requests.
package catalog
