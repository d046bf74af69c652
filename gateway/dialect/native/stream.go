package native

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// form is how a client wants a stream.
type form uint8

const (
	formWhole  form = iota // one JSON document with a list of all outputs
	formEvents             // server-sent events
	formLines              // JSON lines
	formRaw                // the bytes of the outputs, one after the other
)

// maxWholeBytes bounds the list of a stream's outputs for clients that take no stream.
const maxWholeBytes = 16 << 20 //xebec:limit a stream as one JSON document; longer ones need `Accept: text/event-stream` or `application/jsonl`

// flow is one answer of a model that answers in streams. The first output settles the query, like the output of any other model. The stream's end
// may be reported before the query is settled, if another goroutine settles it.
type flow struct {
	c    *call
	form form

	mu      sync.Mutex
	from    api.Source // nil until the query is sent
	waiting bool       // delivered: the end of the stream ends the answer
	ended   bool
	left    bool     // the client
	code    api.Code // how the stream has ended
	detail  string
	outputs int    // how many have come
	text    []byte // what was rendered for the next part; in formWhole the list
	tooLong bool
}

// stream prepares the call for a model that answers in streams.
func (c *call) stream(x dialect.Exchange, accept []byte) error {
	c.raw = ""
	if c.parsed.Batch {
		return api.Errorf(api.InvalidArgument, "%s answers in streams, one input at a time: send a request for each input", c.Model().ID)
	}
	f := &flow{c: c}
	if x.TakesParts() {
		f.form, c.raw = formOf(accept, c.outputMedia())
	}
	if f.form == formRaw {
		if out := c.Model().Signature.Outputs; len(out) != 1 || !out[0].DType.Variable() || len(out[0].Shape) > 0 {
			return api.Errorf(api.InvalidArgument, "Accept: a stream in %s is the bytes of one output of dtype bytes or string, which %s has not: ask for text/event-stream or application/jsonl", c.raw, c.Model().ID)
		}
	}
	c.flow = f
	c.SetStream(f)
	return nil
}

// formOf reads an Accept field. The first type of a stream in it decides. With formRaw, which is for outputs of this media type too, it returns
// the type of the answer.
func formOf(accept []byte, media string) (form, string) {
	all := accept
	for len(accept) > 0 {
		var kind []byte
		kind, accept, _ = bytes.Cut(accept, []byte(","))
		kind, _, _ = bytes.Cut(kind, []byte(";"))
		switch strings.ToLower(string(bytes.TrimSpace(kind))) {
		case "text/event-stream":
			return formEvents, ""
		case "application/jsonl", "application/x-ndjson", "application/jsonlines":
			return formLines, ""
		}
	}
	if kind := rawKind(all, media); kind != "" {
		return formRaw, kind
	}
	return formWhole, ""
}

// contentTypes are those of the forms but formRaw, which has that of the output.
var contentTypes = [...]string{formWhole: dialect.JSON, formEvents: "text/event-stream; charset=utf-8", formLines: "application/jsonl"}

// Sent implements [api.Withdrawable].
func (f *flow) Sent(from api.Source) (wanted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = from
	return !f.left
}

// Open implements [api.Stream].
func (f *flow) Open(from api.Source) {
	f.mu.Lock()
	f.from = from
	left := f.left
	f.mu.Unlock()
	if left {
		from.Cancel()
	}
}

// settled renders the first output, or an error. It runs in Settled.
func (f *flow) settled() api.Code {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, q := f.c, f.c.Query(0)
	if q.Code != api.OK {
		f.form = formWhole // as one document, which says what happened
		f.ended, f.code = true, q.Code
		return c.settled()
	}
	if !q.Streams() {
		f.ended, f.code = true, api.OK
	}
	f.append(q.Outputs)
	if f.form == formWhole {
		return api.OK
	}
	a := &c.Answer
	a.Reset(200)
	if a.ContentType = c.raw; f.form != formRaw {
		a.ContentType = contentTypes[f.form]
	}
	a.Fields = append(a.Fields, dialect.Field{Name: "Xebec-Query-Id", Value: strconv.AppendUint(nil, q.ID, 10)}, noStore, noBuffering)
	a.Body = append(a.Body, f.text...)
	f.text = f.text[:0]
	c.AnswerInParts(f)
	return api.OK
}

var (
	noStore     = dialect.Field{Name: "Cache-Control", Value: []byte("no-store")}
	noBuffering = dialect.Field{Name: "X-Accel-Buffering", Value: []byte("no")} // nginx would gather the parts
)

// append renders one output.
func (f *flow) append(outputs []api.Value) {
	f.outputs++
	switch f.form {
	case formWhole:
		if len(f.text) > 0 {
			f.text = append(f.text, ',')
		}
		if f.text = f.c.appendOutputs(f.text, outputs); len(f.text) > maxWholeBytes {
			f.tooLong = true
		}
	case formEvents:
		f.text = append(f.text, `data: {"output":`...)
		f.text = append(f.c.appendOutputs(f.text, outputs), "}\n\n"...)
	case formLines:
		f.text = append(f.text, `{"output":`...)
		f.text = append(f.c.appendOutputs(f.text, outputs), "}\n"...)
	case formRaw:
		f.text = append(f.text, outputs[0].Data...)
	}
}

// Deliver sends the first part, or waits for the end of what is sent as a whole.
func (c *call) Deliver() {
	f := c.flow
	if f == nil {
		c.Call.Deliver()
		return
	}
	c.Query(0).FreeOutputs()
	f.mu.Lock()
	parts := c.Flow() != nil
	if !parts && !f.ended && f.code == api.OK {
		f.waiting = true
		c.Retain()
		from := f.from
		f.mu.Unlock()
		if from != nil {
			from.Resume()
		}
		return
	}
	if f.form == formWhole && c.Query(0).Code == api.OK {
		f.renderWhole()
	}
	f.mu.Unlock()
	c.Call.Deliver()
	if parts {
		f.mu.Lock()
		f.waiting = true
		f.mu.Unlock()
		f.finishIfOver()
	}
}

// Take implements [api.Stream].
func (f *flow) Take(outputs []api.Value, _ float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.left && !f.tooLong {
		f.append(outputs)
	}
}

// Full implements [api.Stream].
func (f *flow) Full() bool {
	f.mu.Lock()
	switch {
	case f.left:
		f.text = f.text[:0]
		f.mu.Unlock()
		return true
	case f.tooLong:
		from := f.from
		f.mu.Unlock()
		from.Cancel()
		return true
	case f.form == formWhole:
		f.mu.Unlock()
		return false
	}
	text := f.text
	f.mu.Unlock()
	room := f.c.Sink().Part(text)
	f.text = text[:0] // only the goroutine that reads from the worker uses it
	if cap(f.text) > maxKeptText {
		f.text = nil
	}
	return !room
}

// maxKeptText is how much memory for rendering stays with a stream between two messages of its worker.
const maxKeptText = 16 << 10

// Room implements [dialect.Flow].
func (f *flow) Room() {
	f.mu.Lock()
	from := f.from
	f.mu.Unlock()
	if from != nil {
		from.Resume()
	}
}

// Cancelled implements [api.Stream].
func (f *flow) Cancelled() { f.Left() }

// Left implements [dialect.Flow].
func (f *flow) Left() {
	f.mu.Lock()
	f.left = true
	from := f.from
	f.mu.Unlock()
	if from != nil {
		from.Cancel()
	}
}

// End implements [api.Stream].
func (f *flow) End(code api.Code, detail string) {
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return // it has been answered
	}
	f.ended, f.code, f.detail = true, code, detail
	if f.tooLong {
		f.code, f.detail = api.TooLarge, ""
	}
	f.mu.Unlock()
	f.finishIfOver()
}

// finishIfOver ends the answer after both the first part was delivered and the stream has ended.
func (f *flow) finishIfOver() {
	f.mu.Lock()
	over := f.waiting && f.ended
	if over {
		f.waiting = false
	}
	f.mu.Unlock()
	if !over {
		return
	}
	c := f.c
	if f.form == formWhole {
		f.renderWhole()
		c.Call.Deliver()
		c.Release()
		return
	}
	broken := false
	switch f.form {
	case formEvents:
		f.text = append(f.text, "event: "...)
		if f.code == api.OK {
			f.text = append(f.text, "end\ndata: "...)
			f.text = append(f.appendEnd(f.text), "\n\n"...)
		} else {
			f.text = append(f.text, "error\ndata: "...)
			f.text = append(f.appendError(f.text), "\n\n"...)
		}
	case formLines:
		if f.code == api.OK {
			f.text = append(f.appendEnd(f.text), '\n')
		} else {
			f.text = append(f.appendError(f.text), '\n')
		}
	default:
		broken = f.code != api.OK
	}
	c.Sink().Last(f.text, broken)
}

// renderWhole makes the answer of a stream that has ended.
func (f *flow) renderWhole() {
	c := f.c
	q, a := c.Query(0), &c.Answer
	if f.code != api.OK {
		a.Reset(f.code.HTTPStatus())
		a.Body = f.appendError(a.Body)
		return
	}
	a.Reset(200)
	out := append(a.Body, `{"query_id":`...)
	out = strconv.AppendUint(out, q.ID, 10)
	out = append(out, `,"output":[`...)
	out = append(out, f.text...)
	out = append(out, `],"default":false,"confidence":`...)
	out = appendConfidence(out, q.Confidence)
	a.Body = append(c.appendParts(out, q), '}')
}

// appendEnd appends what a client is told at the end of a stream.
func (f *flow) appendEnd(out []byte) []byte {
	q := f.c.Query(0)
	out = append(out, `{"end":true,"query_id":`...)
	out = strconv.AppendUint(out, q.ID, 10)
	out = append(out, `,"outputs":`...)
	out = strconv.AppendInt(out, int64(f.outputs), 10)
	return append(f.c.appendParts(out, q), '}')
}

// appendError appends why the stream has broken off.
func (f *flow) appendError(out []byte) []byte {
	e := api.Error{Code: f.code, Message: f.code.Reason(), RequestID: string(f.c.Identity.RequestID)}
	switch {
	case f.tooLong:
		e.Message = "the stream is longer than " + strconv.Itoa(maxWholeBytes>>20) + " MiB: ask for it in parts, with Accept: text/event-stream or application/jsonl"
	case f.code == api.InvalidInput && f.detail != "":
		e.Message = f.detail
	}
	return appendError(out, queryError, &e)
}

var _ query.Owner = (*call)(nil)
