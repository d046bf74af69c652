package native

import (
	"bytes"
	"strconv"
	"strings"

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

// streaming renders an answer of a model that answers in streams.
type streaming struct {
	c    *call
	form form
}

// stream prepares the call for a model that answers in streams.
func (c *call) stream(x dialect.Exchange, accept []byte) error {
	c.raw = ""
	if c.parsed.Batch {
		return api.Errorf(api.InvalidArgument, "%s answers in streams, one input at a time: send a request for each input", c.Model().ID)
	}
	f := &streaming{c: c}
	if x.TakesParts() {
		f.form, c.raw = formOf(accept, c.outputMedia())
	}
	if f.form == formRaw {
		if out := c.Model().Signature.Outputs; len(out) != 1 || !out[0].DType.Variable() || len(out[0].Shape) > 0 {
			return api.Errorf(api.InvalidArgument, "Accept: a stream in %s is the bytes of one output of dtype bytes or string, which %s has not: ask for text/event-stream or application/jsonl", c.raw, c.Model().ID)
		}
	}
	c.Stream(f, f.form == formWhole)
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

// Failed implements [dialect.StreamRenderer].
func (f *streaming) Failed() api.Code { return f.c.settled() }

// Begin implements [dialect.StreamRenderer].
func (f *streaming) Begin(a *dialect.Answer) {
	if a.ContentType = f.c.raw; f.form != formRaw {
		a.ContentType = contentTypes[f.form]
	}
	a.Fields = append(a.Fields, dialect.Field{Name: "Xebec-Query-Id", Value: strconv.AppendUint(nil, f.c.Query(0).ID, 10)})
}

// Output implements [dialect.StreamRenderer].
func (f *streaming) Output(text []byte, outputs []api.Value, n int) []byte {
	switch f.form {
	case formWhole:
		if n > 0 {
			text = append(text, ',')
		}
		return f.c.appendOutputs(text, outputs)
	case formEvents:
		text = append(text, `data: {"output":`...)
		return append(f.c.appendOutputs(text, outputs), "}\n\n"...)
	case formLines:
		text = append(text, `{"output":`...)
		return append(f.c.appendOutputs(text, outputs), "}\n"...)
	}
	return append(text, outputs[0].Data...)
}

// End implements [dialect.StreamRenderer].
func (f *streaming) End(text []byte, how dialect.StreamEnd) (_ []byte, broken bool) {
	switch f.form {
	case formEvents:
		text = append(text, "event: "...)
		if how.Code == api.OK {
			text = append(text, "end\ndata: "...)
			return append(f.appendEnd(text, how), "\n\n"...), false
		}
		text = append(text, "error\ndata: "...)
		return append(f.appendError(text, how), "\n\n"...), false
	case formLines:
		if how.Code == api.OK {
			return append(f.appendEnd(text, how), '\n'), false
		}
		return append(f.appendError(text, how), '\n'), false
	}
	return text, how.Code != api.OK
}

// Whole implements [dialect.StreamRenderer].
func (f *streaming) Whole(a *dialect.Answer, text []byte, how dialect.StreamEnd) {
	c := f.c
	q := c.Query(0)
	if how.Code != api.OK {
		a.Reset(how.Code.HTTPStatus())
		a.Body = f.appendError(a.Body, how)
		return
	}
	a.Reset(200)
	out := append(a.Body, `{"query_id":`...)
	out = strconv.AppendUint(out, q.ID, 10)
	out = append(out, `,"output":[`...)
	out = append(out, text...)
	out = append(out, `],"default":false,"confidence":`...)
	out = appendConfidence(out, q.Confidence)
	a.Body = append(c.appendParts(out, q), '}')
}

// appendEnd appends what a client is told at the end of a stream.
func (f *streaming) appendEnd(out []byte, how dialect.StreamEnd) []byte {
	q := f.c.Query(0)
	out = append(out, `{"end":true,"query_id":`...)
	out = strconv.AppendUint(out, q.ID, 10)
	out = append(out, `,"outputs":`...)
	out = strconv.AppendInt(out, int64(how.Outputs), 10)
	return append(f.c.appendParts(out, q), '}')
}

// appendError appends why the stream has broken off.
func (f *streaming) appendError(out []byte, how dialect.StreamEnd) []byte {
	e := api.Error{Code: how.Code, Message: how.Reason(), RequestID: string(f.c.Identity.RequestID)}
	if how.Code == api.TooLarge {
		e.Message += ", with Accept: text/event-stream or application/jsonl"
	}
	return appendError(out, queryError, &e)
}

var _ query.Owner = (*call)(nil)
