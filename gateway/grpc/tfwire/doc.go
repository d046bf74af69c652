// Package tfwire turns the tensors and examples of TensorFlow Serving's messages into values of a signature, and values into tensors.
//
// [Request.Tensors] reads the inputs of a PredictRequest by columns: the first dimension of each tensor is the query. Tensors that have no such dimension
// are one query, whose outputs have none either. [Request.Examples] reads the examples of a request to classify or regress, each of which is one query.
// [Tensor] makes an output of all queries.
//
// A message is hostile until it is checked. A tensor may have fewer values than elements: the last one goes on, or zeros if there is none. So a short message
// can have large inputs: what they take is computed before anything is written, must not exceed what a message may have, and is reserved by the caller.
//
// Errors are *api.Error. They name the field that is wrong and what was expected.
package tfwire
