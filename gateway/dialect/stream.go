package dialect

import (
	"strconv"
	"sync"

	"github.com/xebec-serving/xebec/api"
)

// MaxWholeStream bounds the text of a stream's outputs for clients that take no stream.
const MaxWholeStream = 16 << 20 //xebec:limit a stream as one document; longer ones must be asked for in parts

// StreamRenderer writes the answer of a model that answers in streams. Its methods do not block, and are called one after the other.
type StreamRenderer interface {
	// Failed renders the answer to a query that has no output, and returns its code. It runs in Settled.
	Failed() api.Code
	// Begin makes the head of an answer in parts, whose status is 200: its content type and further fields. It runs in Settled.
	Begin(a *Answer)
	// Output appends an output, the n-th from 0. The texts of all outputs of an answer that is no stream are kept for Whole.
	Output(text []byte, outputs []api.Value, n int) []byte
	// End appends the end of an answer in parts. If it reports broken, the connection shows the client that something is missing.
	End(text []byte, how StreamEnd) (_ []byte, broken bool)
	// Whole renders an answer that is no stream, of the outputs' text.
	Whole(a *Answer, text []byte, how StreamEnd)
}

// StreamEnd is how a stream has ended: with OK, or broken off.
type StreamEnd struct {
	Code api.Code
	// Detail is the model's text if Code is InvalidInput.
	Detail string
	// Outputs is how many outputs there were.
	Outputs int
}

// Reason explains Code to the caller.
func (e StreamEnd) Reason() string {
	if e.Code == api.InvalidInput && e.Detail != "" {
		return e.Detail
	}
	if e.Code == api.TooLarge {
		return "the stream is longer than " + strconv.Itoa(MaxWholeStream>>20) + " MiB: ask for it in parts"
	}
	return e.Code.Reason()
}

// Streamed is one answer of a model that answers in streams. The first output settles the query, like the output of any other model. The stream's end
// may be reported before the query is settled, if another goroutine settles it.
type Streamed struct {
	c *Call
	r StreamRenderer

	mu      sync.Mutex
	whole   bool       // one document with all outputs
	from    api.Source // nil until the query is sent
	waiting bool       // delivered: the end of the stream ends the answer
	ended   bool
	left    bool // the client
	end     StreamEnd
	text    []byte // what was rendered for the next part; of a whole answer the list
	tooLong bool
}

// Stream prepares the call for a model that answers in streams: in parts, or as a whole, which the caller must choose where the exchange takes no
// parts. Call it before Submit; then Settled returns what [Streamed.Settled] does.
func (c *Call) Stream(r StreamRenderer, whole bool) {
	c.streamed = &Streamed{c: c, r: r, whole: whole}
	c.SetStream(c.streamed)
}

// Streamed returns what Stream has made for this request, or nil.
func (c *Call) Streamed() *Streamed { return c.streamed }

// Open begins a request; see [query.Request.Open].
func (c *Call) Open() {
	c.streamed = nil
	c.Request.Open()
}

// Sent implements [api.Withdrawable].
func (s *Streamed) Sent(from api.Source) (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from = from
	return !s.left
}

// Open implements [api.Stream].
func (s *Streamed) Open(from api.Source) {
	s.mu.Lock()
	s.from = from
	left := s.left
	s.mu.Unlock()
	if left {
		from.Cancel()
	}
}

// Settled renders the first output, or an error. It runs in Settled.
func (s *Streamed) Settled() api.Code {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.c.Query(0)
	if q.Code != api.OK {
		s.whole = true // as one document, which says what happened
		s.ended, s.end.Code = true, q.Code
		return s.r.Failed()
	}
	if !q.Streams() {
		s.ended, s.end.Code = true, api.OK
	}
	s.append(q.Outputs)
	if s.whole {
		return api.OK
	}
	a := &s.c.Answer
	a.Reset(200)
	a.Fields = append(a.Fields, noStore, noBuffering)
	s.r.Begin(a)
	a.Body = append(a.Body, s.text...)
	s.text = s.text[:0]
	s.c.AnswerInParts(s)
	return api.OK
}

var (
	noStore     = Field{Name: "Cache-Control", Value: []byte("no-store")}
	noBuffering = Field{Name: "X-Accel-Buffering", Value: []byte("no")} // nginx would gather the parts
)

// append renders one output.
func (s *Streamed) append(outputs []api.Value) {
	s.text = s.r.Output(s.text, outputs, s.end.Outputs)
	s.end.Outputs++
	if s.whole && len(s.text) > MaxWholeStream {
		s.tooLong = true
	}
}

// deliver sends the first part, or waits for the end of what is sent as a whole.
func (s *Streamed) deliver() {
	c := s.c
	c.Query(0).FreeOutputs()
	s.mu.Lock()
	parts := c.Flow() != nil
	if !parts && !s.ended {
		s.waiting = true
		c.Retain()
		from := s.from
		s.mu.Unlock()
		if from != nil {
			from.Resume()
		}
		return
	}
	if s.whole && c.Query(0).Code == api.OK {
		s.renderWhole()
	}
	s.mu.Unlock()
	c.send()
	if parts {
		s.mu.Lock()
		s.waiting = true
		s.mu.Unlock()
		s.finishIfOver()
	}
}

func (s *Streamed) renderWhole() { s.r.Whole(&s.c.Answer, s.text, s.end) }

// Take implements [api.Stream].
func (s *Streamed) Take(outputs []api.Value, _ float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left && !s.tooLong {
		s.append(outputs)
	}
}

// Full implements [api.Stream].
func (s *Streamed) Full() bool {
	s.mu.Lock()
	switch {
	case s.left:
		s.text = s.text[:0]
		s.mu.Unlock()
		return true
	case s.tooLong:
		from := s.from
		s.mu.Unlock()
		from.Cancel()
		return true
	case s.whole:
		s.mu.Unlock()
		return false
	}
	text := s.text
	s.mu.Unlock()
	room := s.c.Sink().Part(text)
	s.text = text[:0] // only the goroutine that reads from the worker uses it
	if cap(s.text) > maxKeptText {
		s.text = nil
	}
	return !room
}

// maxKeptText is how much memory for rendering stays with a stream between two messages of its worker.
const maxKeptText = 16 << 10

// Room implements [Flow].
func (s *Streamed) Room() {
	s.mu.Lock()
	from := s.from
	s.mu.Unlock()
	if from != nil {
		from.Resume()
	}
}

// Cancelled implements [api.Stream].
func (s *Streamed) Cancelled() { s.Left() }

// Left implements [Flow].
func (s *Streamed) Left() {
	s.mu.Lock()
	s.left = true
	from := s.from
	s.mu.Unlock()
	if from != nil {
		from.Cancel()
	}
}

// End implements [api.Stream].
func (s *Streamed) End(code api.Code, detail string) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return // it has been answered
	}
	s.ended, s.end.Code, s.end.Detail = true, code, detail
	if s.tooLong {
		s.end.Code = api.TooLarge
	}
	s.mu.Unlock()
	s.finishIfOver()
}

// finishIfOver ends the answer after both the first part was delivered and the stream has ended.
func (s *Streamed) finishIfOver() {
	s.mu.Lock()
	over := s.waiting && s.ended
	if over {
		s.waiting = false
	}
	s.mu.Unlock()
	if !over {
		return
	}
	if s.whole {
		s.renderWhole()
		s.c.send()
		s.c.Release()
		return
	}
	text, broken := s.r.End(s.text, s.end)
	s.text = text
	s.c.Sink().Last(text, broken)
}
