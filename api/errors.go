package api

import "fmt"

// Code says how a query or a call ended. The code alone decides the HTTP and the gRPC status, in every dialect;
// messages only explain it.
type Code uint8

// The codes. Those before InvalidArgument end a query; the others refuse a call. Each comment says what the code means and what an
// operator can do: deploy/guide/reference/codes.md shows it.
const (
	OK Code = iota
	// DeadlineExceeded: no prediction was ready at the deadline. Compare xebec_queue_seconds with xebec_worker_seconds: long queueing needs
	// replicas, slow batches a smaller batching objective or a faster model. Or the slo is too short.
	DeadlineExceeded
	// Overloaded: the replicas cannot serve the load in time. The gateway refused the query on arrival, or as soon as
	// it knew that the answer would be late. Retry-After is 1 s.
	Overloaded
	// NoReplica: no worker of the model, or of one that it calls, was ready in time. See "xebec describe model". Set cold_start to let callers
	// wait for a model that is asleep or restarting.
	NoReplica
	// ModelError: the model's predict raised an exception. See "Last error" in "xebec describe model".
	ModelError
	// BadOutput: the model returned outputs of the wrong number, type or shape. See "Last error" in "xebec describe model".
	BadOutput
	// ReplicaLost: the replica died while it evaluated the query. The process ended itself while it had no other query, the
	// retry failed the same way, or the model has retry: false. The query may be the cause: see "xebec logs".
	ReplicaLost
	// TooLarge: the query or its output does not fit into a batch. Raise batching.max_bytes or send less. Nothing above
	// 1 GiB fits.
	TooLarge
	// ShuttingDown: the gateway is stopping.
	ShuttingDown
	// Cancelled: the client closed its connection first.
	Cancelled
	// ModelRemoved: the model version was deleted while the query waited.
	ModelRemoved
	// LowConfidence: the prediction's confidence is below what the request or the function demands. The models
	// disagree, or many of them were late.
	LowConfidence
	// InvalidInput: the model refused this query's input (xebec.Error in its predict), and the message says why. The other queries of the batch
	// were answered. It is the caller's mistake, so it does not count against the model.
	InvalidInput

	// InvalidArgument: the request is malformed or does not fit the signature. The message says where.
	InvalidArgument
	// NotFound: there is no function, model or version with that name.
	NotFound
	// Conflict: a version cannot be changed, is still in use, comes from another source, or changed after the caller
	// read it. In the last case the answer has "stale": read the object and try again.
	Conflict
	// Unavailable: the model has no ready replica (readiness of a model), or the store cannot accept the change (admin
	// API).
	Unavailable
	// Unsupported: the protocol defines it, but this version of Xebec does not implement it. A method that a path does not have is
	// 405 and the header Allow lists those that it has; a content coding is 415 and Accept-Encoding lists those that are read.
	Unsupported
	// Gone: the feedback is for a query that was answered too long ago. Raise --feedback-window.
	Gone
	// Internal: a defect of Xebec. Please report it.
	Internal
	// Forbidden: a browser sent the request for a page that may not call the function. See cors of a function, and
	// --allowed-hosts.
	//
	// Or a model called a function or model that its manifest does not name in calls.
	Forbidden
	// Cycle: a model called one that waits for it. The message has the chain. A model cannot wait for itself: change which models call which.
	Cycle

	codeCount
)

// CodeCount is the number of codes, for arrays that are indexed by them.
const CodeCount = int(codeCount)

// The gRPC statuses (google.golang.org/grpc/codes) that codes map to, by their numbers on the wire, because api imports
// no library. The retry policies of gRPC clients usually repeat UNAVAILABLE calls, so only codes whose query was not
// evaluated map to it.
const (
	grpcOK                 = 0
	grpcCancelled          = 1
	grpcInvalidArgument    = 3
	grpcDeadlineExceeded   = 4
	grpcNotFound           = 5
	grpcPermissionDenied   = 7
	grpcResourceExhausted  = 8
	grpcFailedPrecondition = 9
	grpcAborted            = 10
	grpcUnimplemented      = 12
	grpcInternal           = 13
	grpcUnavailable        = 14
)

// codeInfo has a row for every code. A dialect chooses the shape of an error; the status comes from here.
var codeInfo = [codeCount]struct {
	name string
	http int
	grpc int
	// reason is the default_explanation that a caller reads if it gets the default output. The two that Clipper also
	// has are worded as in Clipper, because clients compare them.
	reason string
}{
	OK:               {"ok", 200, grpcOK, ""},
	DeadlineExceeded: {"deadline_exceeded", 504, grpcDeadlineExceeded, "Failed to retrieve a prediction response within the specified latency SLO"},
	Overloaded:       {"overloaded", 503, grpcResourceExhausted, "the queue is too long for the latency objective"},
	NoReplica:        {"no_replica", 503, grpcUnavailable, "No connected models found for query"},
	ModelError:       {"model_error", 502, grpcInternal, "the model failed on this input"},
	BadOutput:        {"bad_output", 502, grpcInternal, "the model returned outputs that do not fit its signature"},
	ReplicaLost:      {"replica_lost", 502, grpcInternal, "the replica that evaluated the query was lost"},
	TooLarge:         {"too_large", 413, grpcResourceExhausted, "the input or the output is too large for a batch"},
	ShuttingDown:     {"shutting_down", 503, grpcUnavailable, "the gateway is shutting down"},
	Cancelled:        {"cancelled", 499, grpcCancelled, "the caller went away"},
	ModelRemoved:     {"model_removed", 503, grpcUnavailable, "the model was removed while the query waited"},
	LowConfidence:    {"low_confidence", 503, grpcFailedPrecondition, "the prediction is less sure than was asked for"},
	InvalidInput:     {"invalid_input", 400, grpcInvalidArgument, "the model refused the input"},
	InvalidArgument:  {"invalid_argument", 400, grpcInvalidArgument, ""},
	NotFound:         {"not_found", 404, grpcNotFound, ""},
	Conflict:         {"conflict", 409, grpcAborted, ""},
	Unavailable:      {"unavailable", 503, grpcUnavailable, ""},
	Unsupported:      {"unsupported", 501, grpcUnimplemented, ""},
	Gone:             {"gone", 410, grpcNotFound, ""},
	Internal:         {"internal", 500, grpcInternal, ""},
	Forbidden:        {"forbidden", 403, grpcPermissionDenied, ""},
	Cycle:            {"cycle", 508, grpcFailedPrecondition, ""},
}

// String is the code's name, which metrics and JSON use.
func (c Code) String() string {
	if c >= codeCount {
		return fmt.Sprintf("code(%d)", uint8(c))
	}
	return codeInfo[c].name
}

// HTTPStatus is the status of the code in every HTTP dialect.
func (c Code) HTTPStatus() int {
	if c >= codeCount {
		return 500
	}
	return codeInfo[c].http
}

// GRPCStatus is the number of the code's gRPC status in every gRPC dialect.
func (c Code) GRPCStatus() int {
	if c >= codeCount {
		return grpcInternal
	}
	return codeInfo[c].grpc
}

// Reason explains to callers, in one sentence without a full stop, why there is no prediction.
func (c Code) Reason() string {
	if c >= codeCount {
		return "unknown"
	}
	return codeInfo[c].reason
}

// Codes iterates over all codes in order.
func Codes(yield func(Code) bool) {
	for c := OK; c < codeCount; c++ {
		if !yield(c) {
			return
		}
	}
}

// Error is a failed call: a code, and a sentence that says what was wrong, where, and what was expected.
type Error struct {
	Code    Code
	Message string
	Err     error
	// RequestID is the X-Request-Id of the request that failed, where the error is about to be rendered; empty elsewhere.
	RequestID string
}

// Errorf returns an *Error. A %w verb keeps the cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: err}
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// UnreadError says that not everything that is declared has been read yet, and why. A request that fails with it has changed nothing, and
// can be sent again.
type UnreadError struct{ Why string }

func (e *UnreadError) Error() string { return e.Why }
