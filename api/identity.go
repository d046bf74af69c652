package api

// Identity is what names a request in answers, logs and traces. The fields are valid header values.
type Identity struct {
	// RequestID is the client's X-Request-Id, or one that the gateway has made.
	RequestID []byte
	// TraceParent and TraceState are the W3C trace context that the client sent; empty: it sent none.
	TraceParent, TraceState []byte
}

// Set copies id, and keeps the memory that the identity has.
func (i *Identity) Set(id *Identity) {
	i.RequestID = append(i.RequestID[:0], id.RequestID...)
	i.TraceParent = append(i.TraceParent[:0], id.TraceParent...)
	i.TraceState = append(i.TraceState[:0], id.TraceState...)
}
