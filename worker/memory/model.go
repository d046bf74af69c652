package memory

import "github.com/xebec-serving/xebec/api"

// Model is what a worker serves. Predict or Stream is required. A worker calls one function at a time, unless the model
// has a Concurrency or answers in streams. An error or a panic of a function counts as the model's error.
type Model struct {
	// Predict sets the outputs of each query of b.
	Predict func(b *Batch) error
	// Stream answers the one query of b in a stream: it sends each output, as a row with one value for each declared output,
	// to out.
	Stream func(b *Batch, out *Outputs) error
	// Concurrency is how many batches, or streams, are evaluated at once; 0 means 1, and 16 streams.
	Concurrency int
	// Feedback learns from b.Labels. If it is nil the model does not learn.
	Feedback func(b *Batch) error
	// Accuracy returns how accurate the model has been, from 0 to 1. If it is nil the model does not know.
	Accuracy func() (float64, error)
	// Contexts, Parameters and Calls request what the queries come with. Confidences says that Predict sets b.Confidences.
	Contexts, Parameters, Calls, Confidences bool
}

// Batch is a model's view of a batch. It consists of copies, which the model may keep.
type Batch struct {
	Signature api.Signature
	// Inputs has one row per query, followed by copies of the last query for padding.
	Inputs [][]api.Value
	// Contexts has each query's context if the model requests contexts.
	Contexts [][]byte
	// Parameters has each query's parameters, a JSON object, and Calls what is known of its call, if the model requests them.
	Parameters [][]byte
	Calls      []Call
	// Labels has each query's label, a JSON text, in Feedback.
	Labels [][]byte
	// Outputs has one row per query, for Predict to set. A nil row is a missing output.
	Outputs [][]api.Value
	// Confidences has one value per query, NaN at first, for Predict to set.
	Confidences []float64
	// Refused has one value per query, for Predict to set: such a query needs no outputs.
	Refused []Refusal
}

// Refusal is how a model ended one query without an output.
type Refusal struct {
	Code api.Code // InvalidInput, whose text is for the caller, or ModelError; OK: not refused
	Text string
}

// Call is what is known of the call that a query came with.
type Call struct {
	Deadline api.Nanos // of the transport's clock; [api.Never]: none
	api.Identity
}
