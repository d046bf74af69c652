package api

// Stream takes the outputs of a query after its first one, as they come. The first one answers the query like any other. Its methods are called
// one after the other, on goroutines that read from workers, so they must not block.
type Stream interface {
	// Open says where the outputs come from. The query's Outputs are the first one, and the query is about to be answered. No other output
	// comes until Resume is called.
	Open(from Source)
	// Take takes the next output, one value for each declared output, which are valid until it returns. confidence is NaN if there is none.
	Take(outputs []Value, confidence float64)
	// Full reports whether the outputs that were taken are enough for now. The worker then waits for Resume. It is called after Take, once
	// for all outputs of a message.
	Full() bool
	// Cancelled says that the caller has left, perhaps more than once and before Open. It may come on any goroutine, at any time before End.
	Cancelled()
	// End says that the query has been released: with OK if the stream has ended, else why it has broken off. It is called once, also without
	// Open, for a query that ended before its first output. detail is the model's text if code is InvalidInput.
	End(code Code, detail string)
}

// Withdrawable is a [Stream] whose caller may leave before the first output.
type Withdrawable interface {
	// Sent says that the query goes to a worker, before it does, and perhaps again if it is tried once more. Until Open, from can only Cancel.
	// The result is false if the caller has left already: the query is then ended as by Cancel. Sent must not call from.
	Sent(from Source) (wanted bool)
}

// Source is where the outputs of a stream come from. Any goroutine may call its methods, which do not block. After the end of the stream they
// have no effect.
type Source interface {
	// Resume asks for further outputs, after Open, or after Full has returned true.
	Resume()
	// Cancel says that the rest is not wanted. The stream ends soon: if it had no output yet, with the code Cancelled.
	Cancel()
}
