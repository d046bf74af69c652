package openai

import (
	"unicode"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// kind is a route of the protocol.
type kind uint8

const (
	embeddings kind = iota
	completions
	chat
)

// input is the member with the queries of each kind.
var inputMember = [...]string{embeddings: "input", completions: "prompt", chat: "messages"}

// task is what a model must declare for each kind.
var task = [...]string{embeddings: api.TaskEmbed, completions: api.TaskGenerate, chat: api.TaskChat}

// Request is the body of a request. One Request is reused for many bodies by one goroutine at a time.
type Request struct {
	// Base64: embeddings are wanted as little-endian float32 in base64.
	Base64 bool
	// Stream asks for server-sent events, and Usage for one with the usage at their end.
	Stream, Usage bool
	// Words is how many words all inputs have.
	Words int
	// Options are what a call may ask beside its inputs, and the parameters for the model.
	Options dialect.Options

	r    tensorjson.Reader
	seen members
}

// members is a set of members of the request's object.
type members uint16

const (
	hasModel members = 1 << iota
	hasInput
	hasStream
	hasStreamOptions
	hasEncoding
	hasN
)

// Model finds the name of the model, which says how to read the rest. It aliases the body or the request's buffer.
func (q *Request) Model(body []byte) (name []byte, err error) {
	r := &q.r
	r.Reset(body)
	q.seen = 0
	err = r.Members(func(member []byte) error {
		if string(member) != "model" {
			return r.Skip()
		}
		if err := q.once(hasModel, "model"); err != nil {
			return err
		}
		r.Push("model")
		defer r.Pop()
		name, err = r.String()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(name) == 0:
		return nil, r.Errorf(`expected a member "model": the name of a function or model`)
	}
	return name, r.End()
}

// Parse reads the rest. Each query is written to storage from sink. After an error, which is an *api.Error, the caller reclaims what the sink has returned.
func (q *Request) Parse(body []byte, k kind, function bool, sink tensorjson.Sink) error {
	r := &q.r
	r.Reset(body)
	q.Base64, q.Stream, q.Usage, q.Words, q.seen = false, false, false, 0, 0
	q.Options.Begin(function)
	if err := r.Members(func(name []byte) error { return q.member(k, name, sink) }); err != nil {
		return err
	}
	switch {
	case q.seen&hasInput == 0:
		return r.Errorf("expected a member %q", inputMember[k])
	case q.Usage && !q.Stream:
		return r.Errorf(`"stream_options" is only for requests with "stream": true`)
	}
	return r.End()
}

func (q *Request) once(bit members, name string) error {
	if q.seen&bit != 0 {
		return q.r.Errorf("the member %q is there twice", name)
	}
	q.seen |= bit
	return nil
}

func (q *Request) member(k kind, name []byte, sink tensorjson.Sink) (err error) {
	r := &q.r
	switch string(name) {
	case "model":
		return r.Skip() // read by Model
	case inputMember[k]:
		if err = q.once(hasInput, inputMember[k]); err != nil {
			return err
		}
		r.Push(inputMember[k])
		if k == chat {
			err = q.messages(sink)
		} else {
			err = q.texts(sink)
		}
		if err == nil {
			r.Pop()
		}
		return err
	case "user", "metadata", "store": // for the provider's records
		return r.Skip()
	}
	switch {
	case k == embeddings && string(name) == "encoding_format":
		return q.encoding()
	case k != embeddings && string(name) == "stream":
		if err = q.once(hasStream, "stream"); err != nil || r.Null() {
			return err
		}
		r.Push("stream")
		q.Stream, err = r.Bool()
		r.Pop()
		return err
	case k != embeddings && string(name) == "stream_options":
		return q.streamOptions()
	case k != embeddings && string(name) == "n":
		if err = q.once(hasN, "n"); err != nil || r.Null() {
			return err
		}
		r.Push("n")
		n, err := r.Int64()
		if err == nil && n != 1 {
			err = r.Errorf("expected 1, found %d: a model answers a query once", n)
		}
		r.Pop()
		return err
	}
	taken, err := q.Options.Member(name, r)
	if taken || err != nil {
		return err
	}
	r.Peek()
	begin := r.Pos()
	if err := r.Skip(); err != nil {
		return err
	}
	q.Options.Pass(name, r.Text(begin))
	return nil
}

func (q *Request) encoding() error {
	r := &q.r
	if err := q.once(hasEncoding, "encoding_format"); err != nil || r.Null() {
		return err
	}
	r.Push("encoding_format")
	v, err := r.String()
	if err != nil {
		return err
	}
	switch string(v) {
	case "float":
	case "base64":
		q.Base64 = true
	default:
		return r.Errorf(`expected "float" or "base64", found %.40q`, v)
	}
	r.Pop()
	return nil
}

func (q *Request) streamOptions() error {
	r := &q.r
	if err := q.once(hasStreamOptions, "stream_options"); err != nil || r.Null() {
		return err
	}
	r.Push("stream_options")
	if err := r.Members(func(name []byte) (err error) {
		if string(name) == "include_usage" && !r.Null() {
			q.Usage, err = r.Bool()
			return err
		}
		return r.Skip()
	}); err != nil {
		return err
	}
	r.Pop()
	return nil
}

// texts reads one text, or a list of texts.
func (q *Request) texts(sink tensorjson.Sink) error {
	r := &q.r
	if r.Peek() != '[' {
		return q.text(sink)
	}
	n := 0
	if err := r.Elements(func(int) error {
		if n++; r.Peek() == '[' || r.Peek() >= '0' && r.Peek() <= '9' {
			return r.Errorf("tokens are not supported: send text, which the model's own tokenizer reads")
		}
		return q.text(sink)
	}); err != nil {
		return err
	}
	if n == 0 {
		return r.Errorf("expected one text or more, found none")
	}
	return nil
}

func (q *Request) text(sink tensorjson.Sink) error {
	if q.r.Peek() != '"' {
		return q.r.Expected("a string, or a list of strings")
	}
	text, err := q.r.String()
	if err != nil {
		return err
	}
	return q.put(text, sink)
}

// put makes a text the input of one more query.
func (q *Request) put(text []byte, sink tensorjson.Sink) error {
	row, err := sink.Next()
	if err != nil {
		return err
	}
	if len(row) != 1 {
		return api.Errorf(api.Internal, "storage for %d inputs: expected 1", len(row))
	}
	row[0].Data, row[0].Dims = append(row[0].Data[:0], text...), row[0].Dims[:0]
	q.Words += words(text)
	return nil
}

// words counts the words of a text.
func words(text []byte) (n int) {
	inside := false
	for _, r := range string(text) { // does not copy
		if space := unicode.IsSpace(r); space {
			inside = false
		} else if !inside {
			inside = true
			n++
		}
	}
	return n
}

// messages reads a conversation: a list of objects with a role and a content, which the model gets as it was sent.
func (q *Request) messages(sink tensorjson.Sink) error {
	r := &q.r
	r.Peek()
	begin, n := r.Pos(), 0
	if err := r.Elements(func(int) error {
		n++
		role := false
		if err := r.Members(func(name []byte) error {
			if string(name) != "role" {
				return r.Skip()
			}
			if role {
				return r.Errorf(`the member "role" is there twice`)
			}
			role = true
			r.Push("role")
			if _, err := r.String(); err != nil {
				return err
			}
			r.Pop()
			return nil
		}); err != nil {
			return err
		}
		if !role {
			return r.Errorf(`the member "role" is missing`)
		}
		return nil
	}); err != nil {
		return err
	}
	if n == 0 {
		return r.Errorf("expected one message or more, found none")
	}
	return q.put(r.Text(begin), sink)
}
