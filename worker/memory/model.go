package memory

import "github.com/xebec-serving/xebec/api"

// Model is what a worker serves. Predict is required. Functions of one worker are called one at a time. An error that one returns
// is the model's, and so is a panic.
type Model struct {
	// Predict sets the outputs of each query of b.
	Predict func(b *Batch) error
	// Feedback learns from b.Labels; nil: the model does not learn.
	Feedback func(b *Batch) error
	// Accuracy is how accurate the model has been, from 0 to 1; nil: it does not know.
	Accuracy func() (float64, error)
	// Contexts asks for the queries' contexts; Confidences says that Predict sets b.Confidences.
	Contexts, Confidences bool
}

// Batch is what a model's functions see of a batch: copies, which they may keep.
type Batch struct {
	Signature api.Signature
	// Inputs has one row for each query, copies of the last query for padding included.
	Inputs [][]api.Value
	// Contexts has each query's context if the model asks for contexts.
	Contexts [][]byte
	// Labels has each query's label, a JSON text, in Feedback.
	Labels [][]byte
	// Outputs takes one row for each query, in Predict; a row that is nil is missing.
	Outputs [][]api.Value
	// Confidences takes how sure the model is of each query's output, in Predict; NaN at first.
	Confidences []float64
}
