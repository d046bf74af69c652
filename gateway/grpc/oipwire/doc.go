// Package oipwire reads and writes the two messages of the Open Inference Protocol that carry tensors, ModelInferRequest and ModelInferResponse, in the
// wire format of protocol buffers, without objects for them in between.
//
// [Request.Scan] takes a message apart into slices of it and checks its form: the model's name must be known before the rest has a meaning. [Request.Read]
// then compares the inputs with the model's signature, and copies their elements to storage of the caller: raw contents by slices, typed contents
// element by element. [AppendResponse] writes the answer. In steady state none of them allocates.
//
// A message is hostile until it is checked. Every length is compared with what is left, never added to a position. Storage is asked for only when the
// number of queries fits what the message holds, so that a short message with a large shape takes no memory. Fields that the protocol does not have are
// skipped, as protocol buffers require; groups, which it never had, are refused.
//
// Three things are stricter than protocol buffers: the submessage "contents" of an input is there at most once, names and texts are UTF-8, and an input or
// output is named once.
//
// Errors are *api.Error. They say which field is wrong, and what was expected, in the words of the REST form of the protocol (package oip).
package oipwire
