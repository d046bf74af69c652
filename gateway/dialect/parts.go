package dialect

// Flow is the dialect's end of an answer that comes in parts. A dialect sets it with Call.AnswerInParts when it renders the answer, whose Body is
// then the first part. Its methods do not block and may be called on any goroutine.
type Flow interface {
	// Room says that everything given to the sink has been taken: once after the first part, and after each Part that returned false.
	Room()
	// Left says that the client has left. What follows is dropped, but the dialect still calls Last.
	Left()
}

// Sink takes the further parts of an answer. The transport makes it before it sends the first part. Its methods do not block.
type Sink interface {
	// Part takes a part, which it copies, and reports whether more may come at once. If not, it calls Room later.
	Part(p []byte) bool
	// Last ends the answer with its last part, which may be empty. With broken the client is to see that something is missing. The call must
	// be retained until then; the transport retains it itself until everything is sent.
	Last(p []byte, broken bool)
}

// AnswerInParts says that Answer.Body is the first part of the answer. It is called in Settled.
func (c *Call) AnswerInParts(f Flow) { c.flow = f }

// Flow returns what AnswerInParts was called with, or nil. It is for transports.
func (c *Call) Flow() Flow { return c.flow }

// SetSink is for transports, which call it in Reply before the first part is sent.
func (c *Call) SetSink(s Sink) { c.sink = s }

// Sink returns the sink, after Deliver.
func (c *Call) Sink() Sink { return c.sink }
