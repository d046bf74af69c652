package api

import "bytes"

// Identity is what names a request in answers, logs and traces. The fields are valid header values.
type Identity struct {
	// RequestID is the client's X-Request-Id, or one that the gateway has made.
	RequestID []byte
	// TraceParent and TraceState are the W3C trace context that the client sent; empty: it sent none.
	TraceParent, TraceState []byte
	// Chain has the models that wait for the request, if a model has made it: for "c" in "a b c", a has called b, and b has called c, which has made
	// the request. A model that calls for a batch may have several chains, with commas between them. Empty: a client has made the request.
	Chain []byte
	// Cause is what the model evaluates that has made the request. The zero value: a client has made it.
	Cause Cause
	// Starting is told that the request, or one that it has led to, waits for the first replica of a model, whose starts take so long; 0: not
	// known. It may be told by any goroutine; nil: nothing is to be told.
	Starting interface{ CalleeStarts(nanos int64) }
}

// Cause is a query of a batch that a replica evaluates, or with Query below 0 the whole batch.
type Cause struct {
	Replica interface {
		// CalleeStarts says that a call for that query waits for the first replica of a model, whose starts take so long; 0: not known.
		CalleeStarts(batch uint64, query int, nanos int64)
	}
	Batch uint64
	Query int
}

// Set copies what id names, without Starting, and keeps the memory that the identity has.
func (i *Identity) Set(id *Identity) {
	i.RequestID = append(i.RequestID[:0], id.RequestID...)
	i.TraceParent = append(i.TraceParent[:0], id.TraceParent...)
	i.TraceState = append(i.TraceState[:0], id.TraceState...)
	i.Chain = append(i.Chain[:0], id.Chain...)
	i.Cause = id.Cause
}

// JoinChains appends chains that are not there yet.
func JoinChains(chains, others []byte) []byte {
	if len(others) == 0 || bytes.Equal(chains, others) {
		return chains
	}
	for other := range bytes.SplitSeq(others, []byte{','}) {
		there := false
		for chain := range bytes.SplitSeq(chains, []byte{','}) {
			there = there || bytes.Equal(chain, other)
		}
		if there {
			continue
		}
		if len(chains) > 0 {
			chains = append(chains, ',')
		}
		chains = append(chains, other...)
	}
	return chains
}

// Origin is what is known of the query, or the batch, for which a model makes a call. Its memory is reused.
type Origin struct {
	// Deadline is the last one of the batch; 0: it has none, or the query is not known.
	Deadline Nanos
	// Call names the request of the first query, and has the chains of all. It is the zero value if the query is not known.
	Call Identity
	// Context is that of all queries of the batch; empty if they have several.
	Context []byte
}

// Reset makes o that of a call without a query.
func (o *Origin) Reset() {
	o.Deadline, o.Context = 0, o.Context[:0]
	o.Call.Set(&Identity{})
}
