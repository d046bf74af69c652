package memory

import "github.com/xebec-serving/xebec/api"

// Model is what a worker serves. Predict is required. A worker calls one function at a time. An error or a panic of a
// function counts as the model's error.
type Model struct {
	// Predict sets the outputs of each query of b.
	Predict func(b *Batch) error
	// Feedback learns from b.Labels. If it is nil the model does not learn.
	Feedback func(b *Batch) error
	// Accuracy returns how accurate the model has been, from 0 to 1. If it is nil the model does not know.
	Accuracy func() (float64, error)
	// Contexts requests the queries' contexts. Confidences says that Predict sets b.Confidences.
	Contexts, Confidences bool
}

// Batch is a model's view of a batch. It consists of copies, which the model may keep.
type Batch struct {
	Signature api.Signature
	// Inputs has one row per query, followed by copies of the last query for padding.
	Inputs [][]api.Value
	// Contexts has each query's context if the model requests contexts.
	Contexts [][]byte
	// Labels has each query's label, a JSON text, in Feedback.
	Labels [][]byte
	// Outputs has one row per query, for Predict to set. A nil row is a missing output.
	Outputs [][]api.Value
	// Confidences has one value per query, NaN at first, for Predict to set.
	Confidences []float64
}
