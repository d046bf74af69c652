package api

import "fmt"

// Code says how a query or a call ended. It decides the HTTP status; messages only explain it.
type Code uint8

// The codes. Those below InvalidArgument are ends of a query; the rest are refusals of a call.
const (
	OK Code = iota
	// DeadlineExceeded: the answer was not there at the deadline.
	DeadlineExceeded
	// Overloaded: the queue is full, or the deadline cannot be met by what is known of the replicas.
	Overloaded
	// NoReplica: no replica of the model is connected and none came before the deadline.
	NoReplica
	// ModelError: predict raised.
	ModelError
	// BadOutput: predict returned the wrong number, type or shape of outputs.
	BadOutput
	// ReplicaLost: the replica died with the query, and so did the retry, or the model forbids one.
	ReplicaLost
	// TooLarge: the query or its output does not fit the limits of a batch.
	TooLarge
	// ShuttingDown: the gateway is stopping.
	ShuttingDown
	// Cancelled: the caller went away.
	Cancelled
	// ModelRemoved: the model version was deleted while the query waited.
	ModelRemoved
	// LowConfidence: there is a prediction, less sure than the caller wants; the function's default was given.
	LowConfidence

	// InvalidArgument: the request is malformed or does not fit the signature.
	InvalidArgument
	// NotFound: no function, model or version of that name.
	NotFound
	// Conflict: the name is taken, or the object changed meanwhile.
	Conflict
	// Unavailable: the function exists but cannot be served now.
	Unavailable
	// Unsupported: the protocol has it, this server does not.
	Unsupported
	// Gone: it was there, and is forgotten.
	Gone
	// Internal: a defect of ours.
	Internal

	codeCount
)

var codeInfo = [codeCount]struct {
	name string
	http int
	// reason is the sentence that a caller reads as default_explanation when a default output is given instead. The two
	// that Clipper has are its own words: clients compare them.
	reason string
}{
	OK:               {"ok", 200, ""},
	DeadlineExceeded: {"deadline_exceeded", 504, "Failed to retrieve a prediction response within the specified latency SLO"},
	Overloaded:       {"overloaded", 503, "the queue is too long for the latency objective"},
	NoReplica:        {"no_replica", 503, "No connected models found for query"},
	ModelError:       {"model_error", 502, "the model failed on this input"},
	BadOutput:        {"bad_output", 502, "the model returned outputs that do not fit its signature"},
	ReplicaLost:      {"replica_lost", 502, "the replica that evaluated the query was lost"},
	TooLarge:         {"too_large", 413, "the input or the output is too large for a batch"},
	ShuttingDown:     {"shutting_down", 503, "the gateway is shutting down"},
	Cancelled:        {"cancelled", 499, "the caller went away"},
	ModelRemoved:     {"model_removed", 503, "the model was removed while the query waited"},
	LowConfidence:    {"low_confidence", 503, "the prediction is less sure than was asked for"},
	InvalidArgument:  {"invalid_argument", 400, ""},
	NotFound:         {"not_found", 404, ""},
	Conflict:         {"conflict", 409, ""},
	Unavailable:      {"unavailable", 503, ""},
	Unsupported:      {"unsupported", 501, ""},
	Gone:             {"gone", 410, ""},
	Internal:         {"internal", 500, ""},
}

// String is the code's name, as metrics and JSON use it.
func (c Code) String() string {
	if c >= codeCount {
		return fmt.Sprintf("code(%d)", uint8(c))
	}
	return codeInfo[c].name
}

// HTTPStatus is the status that every HTTP dialect answers with.
func (c Code) HTTPStatus() int {
	if c >= codeCount {
		return 500
	}
	return codeInfo[c].http
}

// Reason is one sentence for callers, without a full stop: why there is no prediction.
func (c Code) Reason() string {
	if c >= codeCount {
		return "unknown"
	}
	return codeInfo[c].reason
}

// Codes calls yield for every code, in order.
func Codes(yield func(Code) bool) {
	for c := OK; c < codeCount; c++ {
		if !yield(c) {
			return
		}
	}
}

// Error is a failed call: a code and a sentence that says what was wrong, where, and what was expected.
type Error struct {
	Code    Code
	Message string
	Err     error
}

// Errorf builds an *Error; %w keeps a cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: err}
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }
