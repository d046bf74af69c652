package api

import "math"

// Nanos is a reading of the gateway's monotonic clock, in nanoseconds. Only differences have a meaning.
type Nanos int64

// Never is later than any reading of the clock.
const Never Nanos = math.MaxInt64

// Query is one input on its way to one prediction by one model version. A request whose policy asks several models
// becomes several queries that share their input data.
//
// The component that submits a query sets the first group of fields and changes nothing until the scheduler releases
// the query. The transport fills the second group before the query is answered.
type Query struct {
	// ID identifies the query to the app. The gateway's own ID is part of it.
	ID uint64
	// Function is the index of the function's sub-queue at its model version.
	Function int32
	// Context is the caller's context (user, session …), which models that ask for it receive. It may be empty.
	Context []byte
	// Parameters is a JSON object for models that ask for parameters; empty: there are none. Call is what is known of the request that the query
	// belongs to; nil: nothing.
	Parameters []byte
	Call       *Identity
	// Inputs holds one value for each declared input, in the order of the signature.
	Inputs []Value
	// Arrived is when the query was accepted. Deadline is when its caller wants the answer. Expires, which is not
	// before Deadline, is when evaluating it stops being worthwhile.
	Arrived, Deadline, Expires Nanos

	// Stream takes the outputs after the first one, if the model answers in streams; nil: the query is for the first output only. It is of the first group.
	Stream Stream

	// Outputs holds one value for each declared output, in the order of the signature, if the query ended in OK. Of a stream they are the first
	// output's.
	Outputs []Value
	// Confidence is the confidence that the model reports for its output, NaN if it reports none.
	Confidence float64
	// Status is how the model ended this query if its batch ended in OK: OK, InvalidInput or ModelError. Detail is the model's text: for the
	// caller if Status is InvalidInput, else for operators. Both are OK and empty until a transport sets them.
	Status Code
	Detail string
}

// InputBytes is the number of bytes that the query's inputs and context occupy in a batch, without the batch's tables.
func (q *Query) InputBytes() int {
	n := len(q.Context)
	for i := range q.Inputs {
		n += len(q.Inputs[i].Data)
	}
	return n
}

// Batch is a group of queries that one call of predict evaluates on one replica.
type Batch struct {
	// ID increases strictly within a replica.
	ID uint64
	// Queries are owned by the scheduler. A transport may read their inputs, write their outputs and change their order
	// until it reports the batch done or its replica gone.
	Queries []*Query
	// Pad is the number of copies of the last query to add, for models that accept only full batches.
	Pad int
}

// Slot is memory in which an input is received where a model's worker can read it.
type Slot interface {
	// Bytes is the memory, of the size that was asked for. Its content is anything.
	Bytes() []byte
	// Free gives the memory back, once, when nothing reads it any more. The slot is not to be used afterwards.
	Free()
}

// BatchResult is a transport's report of one batch. The transport reports each batch that Send accepted exactly once,
// unless it reports the replica gone.
type BatchResult struct {
	ID uint64
	// Code is OK, or the reason why the whole batch has no outputs: ModelError, BadOutput or TooLarge;
	// Cancelled if its caller left a stream before the first output.
	Code Code
	// EvalNanos is the batch's evaluation time on the gateway's clock: from writing the descriptor to seeing the
	// answer.
	EvalNanos int64
	// WorkNanos is the time in predict that the worker reports. It is for display only; no decision uses it.
	WorkNanos int64
	// Withdrawn says that a stream ended because its caller left, after its first output.
	Withdrawn bool
	// Detail is the worker's own text for operators, of bounded length. If Code is OK it is what the model said of a query that
	// it failed at (Query.Status ModelError), or empty.
	Detail string
}
