package openai

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// streaming renders the answer of a model that answers in streams, or of a request that wants one.
type streaming struct{ c *call }

const (
	event     = "data: "
	eventEnd  = "\n\n"
	eventDone = "data: [DONE]\n\n"
	eventType = "text/event-stream; charset=utf-8"
)

// Failed implements [dialect.StreamRenderer]. A default output is a stream of one piece.
func (s *streaming) Failed() api.Code {
	c := s.c
	values, ok := c.Outputs(0)
	if !ok || !c.parsed.Stream {
		return c.settled()
	}
	a := &c.Answer
	a.Reset(200)
	s.Begin(a)
	a.Body = s.Output(a.Body, values, 0)
	a.Body, _ = s.End(a.Body, dialect.StreamEnd{Outputs: 1})
	return c.Code()
}

// Begin implements [dialect.StreamRenderer].
func (s *streaming) Begin(a *dialect.Answer) {
	a.ContentType = eventType
	s.c.FactFields()
}

// Output implements [dialect.StreamRenderer].
func (s *streaming) Output(text []byte, outputs []api.Value, n int) []byte {
	c := s.c
	if !c.parsed.Stream {
		return appendInner(text, outputs[0].Data)
	}
	if n == 0 && c.kind == chat {
		text = s.appendChunk(text, []byte(`"role":"assistant","content":""`), "null")
	}
	piece := appendInner(nil, outputs[0].Data)
	if c.kind == chat {
		return s.appendChunk(text, append(append([]byte(`"content":"`), piece...), '"'), "null")
	}
	return s.appendChunk(text, piece, "null")
}

// appendChunk appends an event with a piece: the members of the delta of a conversation, or else the inside of a string.
func (s *streaming) appendChunk(text, piece []byte, finish string) []byte {
	c := s.c
	text = c.appendHead(append(text, event...), true)
	if c.kind == chat {
		text = append(append(text, `{"index":0,"delta":{`...), piece...)
		text = append(text, `},"logprobs":null,"finish_reason":`...)
	} else {
		text = append(append(text, `{"index":0,"text":"`...), piece...)
		text = append(text, `","logprobs":null,"finish_reason":`...)
	}
	text = append(append(text, finish...), "}]}"...)
	return append(text, eventEnd...)
}

// End implements [dialect.StreamRenderer].
func (s *streaming) End(text []byte, how dialect.StreamEnd) (_ []byte, broken bool) {
	c := s.c
	if how.Code != api.OK {
		text = appendError(append(text, event...), how.Code, how.Reason())
		return append(text, eventEnd...), false
	}
	text = s.appendChunk(text, nil, `"stop"`)
	if c.parsed.Usage {
		text = c.appendHead(append(text, event...), true)
		text = append(c.appendUsage(append(text, `],"usage":`...), how.Outputs), '}')
		text = append(text, eventEnd...)
	}
	return append(text, eventDone...), false
}

// Whole implements [dialect.StreamRenderer].
func (s *streaming) Whole(a *dialect.Answer, text []byte, how dialect.StreamEnd) {
	c := s.c
	if how.Code != api.OK {
		why := how.Reason()
		if how.Code == api.TooLarge {
			why += `, with "stream": true`
		}
		c.fail(a, how.Code, why)
		return
	}
	a.Reset(200)
	a.Body = c.appendChoice(c.appendHead(a.Body, false), 0, text)
	a.Body = append(c.appendUsage(append(a.Body, `],"usage":`...), how.Outputs), '}')
	c.FactFields()
}
