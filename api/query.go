package api

import "math"

// Nanos is a reading of the gateway's monotonic clock, in nanoseconds. Only differences mean anything.
type Nanos int64

// Never is a time that does not come.
const Never Nanos = math.MaxInt64

// Query is one input on its way to one prediction by one model version. A request whose policy asks several models is
// several queries that share their input data.
//
// Whoever submits a query sets the first group of fields and changes nothing until the scheduler has released it; the
// transport fills the second group before the query is answered.
type Query struct {
	// ID names the query to the app; the gateway's own id is part of it.
	ID uint64
	// Function is the index of the function's sub-queue at its model version.
	Function int32
	// Context is the caller's context (user, session …), delivered to models that ask for it; may be empty.
	Context []byte
	// Inputs holds one value for each declared input, in the order of the signature.
	Inputs []Value
	// Arrived is when the query was accepted, Deadline when its caller wants the answer, Expires (not before Deadline)
	// until when it is worth evaluating at all.
	Arrived, Deadline, Expires Nanos

	// Outputs holds one value for each declared output, in the order of the signature, when the query ended in OK.
	Outputs []Value
	// Confidence is what the model itself says of its output, NaN where it says nothing.
	Confidence float64
}

// InputBytes is the number of bytes that the query's inputs and context take in a batch, tables left out.
func (q *Query) InputBytes() int {
	n := len(q.Context)
	for i := range q.Inputs {
		n += len(q.Inputs[i].Data)
	}
	return n
}

// Batch is queries that share one call of predict on one replica.
type Batch struct {
	// ID increases strictly within a replica.
	ID uint64
	// Queries are owned by the scheduler; a transport may read their inputs and write their outputs until it reports the
	// batch done or its replica gone, and not after.
	Queries []*Query
	// Pad is how many copies of the last query are to be added for models that take only full batches.
	Pad int
}

// BatchResult is what a transport reports of one batch, exactly once for each batch that Send accepted, unless the
// replica is reported gone.
type BatchResult struct {
	ID uint64
	// Code is OK, or why the whole batch has no outputs: ModelError, BadOutput, TooLarge.
	Code Code
	// EvalNanos is the batch's evaluation time as the gateway saw it: from descriptor written to answer seen.
	EvalNanos int64
	// WorkNanos is the time in predict as the worker says; a hint for people, never used for decisions.
	WorkNanos int64
	// Detail is the worker's own text for operators, bounded; empty when OK.
	Detail string
}
