// Package grpc serves gRPC over grpc-go: the Open Inference Protocol (inference.GRPCInferenceService, whose models are functions and models), our own service
// of functions (xebec.v1.Functions), TensorFlow Serving's (tensorflow.serving.PredictionService and ModelService), health and reflection. It is a port of its
// own beside HTTP, with the same path of queries behind it and the same names, options and facts of answers as the REST dialects, which it takes from package
// dialect.
//
// # The way of an inference
//
// infer.go has ModelInfer. The handler, a goroutine of the library, gets the message as bytes (codec.go), takes it apart where it lies (package oipwire),
// submits the request together with others that have come in the same turn (gather.go) and waits. The goroutine that ends the last query renders the
// answer into a buffer of the library's pool, and wakes the handler, which sends it. infer_stream.go has ModelStreamInfer: answers of ordinary models
// come in the order of the requests, outputs of models that stream come as they are made (flow.go). functions.go has xebec.v1, over
// generated messages, and so have serving.go and serving_documents.go TensorFlow Serving's services (package tfwire reads the tensors).
//
// # Deadlines
//
// The deadline of a call of a model is that of its query. A function has an objective of its own, and a default for when it passes: a sooner deadline of
// the call replaces the objective, a later one does not, and slo_ms does in both directions. A part of the deadline is kept for the way back, so that the
// default still arrives. When the caller leaves, what is queued is withdrawn.
//
// # What clients can make it hold
//
// Messages, streams and connections are bounded by the library, with the limits of HTTP. What it does not bound is done in conn.go: a [meter.Meter] on each
// connection knows what has come of messages that are not complete. It counts against the budget of bodies that HTTP has, and the connection is not read while
// there is none left. A call ends when its message comes more slowly than --min-rate (call.go); its connection ends when that happens again and again, or when
// answers are taken more slowly. Large requests and answers take their room in the same budget while they are held.
//
// # Errors
//
// status.go makes statuses: the code is that of api.Code, the message is what REST says, and trailers have xebec-code and x-request-id.
//
// # What it never does
//
// It changes nothing of the gateway by itself: whether a client may load and unload models is its caller's to decide, and methods that trace or map memory answer
// UNIMPLEMENTED and say why. It decides nothing about names,
// versions or options, starts no model, and reads no file. Handlers that panic end their call with INTERNAL, not the process.
package grpc
