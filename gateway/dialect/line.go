package dialect

import "github.com/xebec-serving/xebec/api"

// Line is an [Exchange] on a connection that belongs to a model, not to a client. A transport implements it beside Exchange.
type Line interface {
	// Caller is the model at the other end; nil: it is a client's connection after all.
	Caller() Caller
	// Identify gives the request the identity of the one that it belongs to, before Submit or Answer.
	Identify(id *api.Identity)
}

// Caller is a model that calls others. Its methods do not block.
type Caller interface {
	// Model is its name.
	Model() string
	// May reports whether it is declared to call that function or model.
	May(callee string) bool
	// Origin reports what is known of the query, or with i below 0 the batch, that it says to evaluate; o is reset if nothing is.
	Origin(batch uint64, i int, o *api.Origin) bool
	// CalleeStarts says that a call for the same queries waits for the first replica of a model, whose starts take so long; 0: not known.
	CalleeStarts(batch uint64, i int, nanos int64)
}
