package native

import (
	"bytes"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// octetStream is the media type of an answer that is the output's bytes. A caller asks for it by the header Accept.
const octetStream = "application/octet-stream"

var (
	rawType  = []byte(octetStream)
	anyType  = []byte("*/*")
	anyOfApp = []byte("application/*")
)

// rawKind returns the media type of an answer to a request with this Accept (RFC 9110, section 12.5.1) if the answer is the
// output's bytes, else "". media is the type that the model declares for its output, or "". The answer is the bytes if their type,
// or a range such as image/* that has it, is named and its quality is higher than that of application/json, or equal to that of
// a range that stands for JSON. Ranges that stand for JSON alone mean JSON. An element whose quality is malformed is ignored.
func rawKind(accept []byte, media string) string {
	if len(accept) == 0 {
		return ""
	}
	var raw, declared, json, ranges int
	for rest := accept; len(rest) > 0; {
		var element []byte
		element, rest, _ = bytes.Cut(rest, []byte(","))
		name, params, _ := bytes.Cut(element, []byte(";"))
		name = bytes.TrimSpace(name)
		q := quality(params)
		switch {
		case bytes.EqualFold(name, rawType):
			raw = max(raw, q)
		case bytes.EqualFold(name, jsonType):
			json = max(json, q)
		case bytes.Equal(name, anyType), bytes.EqualFold(name, anyOfApp):
			ranges = max(ranges, q)
		case inRange(name, media):
			declared = max(declared, q)
		}
	}
	best := max(raw, declared)
	switch {
	case best <= json || best < ranges:
		return ""
	case declared >= raw:
		return media
	}
	return octetStream
}

// inRange reports whether an element of Accept is the media type or its range. media is in lower case.
func inRange(name []byte, media string) bool {
	if n := len(name) - 1; n > 0 && name[n] == '*' {
		return n < len(media) && name[n-1] == '/' && bytes.EqualFold(name[:n], []byte(media[:n]))
	}
	return media != "" && bytes.EqualFold(name, []byte(media))
}

// outputMedia is the media type of the model's only output, or "".
func (c *call) outputMedia() string {
	if outputs := c.Model().Signature.Outputs; len(outputs) == 1 {
		return outputs[0].Media
	}
	return ""
}

// quality returns the q of a media range's parameters in thousandths: 1000 without one, and 0 if it is malformed.
func quality(params []byte) int {
	for len(params) > 0 {
		var p []byte
		p, params, _ = bytes.Cut(params, []byte(";"))
		p = bytes.TrimSpace(p)
		if len(p) < 2 || p[0]|0x20 != 'q' || p[1] != '=' {
			continue
		}
		return thousandths(p[2:])
	}
	return 1000
}

// thousandths reads a qvalue: 0 or 1 and at most three decimals.
func thousandths(text []byte) int {
	if len(text) == 0 || len(text) > 5 || text[0] != '0' && text[0] != '1' || len(text) > 1 && text[1] != '.' {
		return 0
	}
	n, unit := int(text[0]-'0')*1000, 100
	for _, c := range text[min(2, len(text)):] {
		if c < '0' || c > '9' {
			return 0
		}
		n += int(c-'0') * unit
		unit /= 10
	}
	if n > 1000 {
		return 0
	}
	return n
}

// checkRaw reports why a request cannot be answered with the output's bytes.
func (c *call) checkRaw() error {
	outputs := c.Model().Signature.Outputs
	const instead = "ask for application/json"
	switch {
	case c.parsed.Batch:
		return api.Errorf(api.InvalidArgument, "Accept: an answer in %s is the output of one query, and this request has a batch: %s", c.raw, instead)
	case len(outputs) != 1:
		return api.Errorf(api.InvalidArgument, "Accept: an answer in %s is one output, and the model has %d: %s", c.raw, len(outputs), instead)
	case !outputs[0].Fixed() && !(outputs[0].DType.Variable() && len(outputs[0].Shape) == 0):
		return api.Errorf(api.InvalidArgument, "Accept: an answer in %s cannot show the dimensions of %s: %s", c.raw, outputs[0].String(), instead)
	}
	return nil
}

// refuse answers a request whose media types, those of the body or those of Accept, cannot be served.
func refuse(x dialect.Exchange, status int, err error) {
	e := *dialect.Error(err)
	e.RequestID = string(x.Header("X-Request-Id"))
	var a dialect.Answer
	a.Reset(status)
	a.Body = Dialect{}.AppendError(a.Body, &e)
	x.Answer(&a)
}

// renderRaw makes the answer of the only query its output's bytes, and says in header fields what JSON says beside the
// output. It reports false if there is no output: the answer is then an error in JSON.
func (c *call) renderRaw() bool {
	q, spec := c.Query(0), &c.Model().Signature.Outputs[0]
	var data []byte
	isDefault := q.Code != api.OK
	switch {
	case !isDefault:
		data = q.Outputs[0].Data
	case c.Defaults(q):
		c.reader.Reset(c.Function().Default)
		if c.reader.Value(&c.fallback, spec) != nil {
			return false // judged when the function was declared
		}
		data = c.fallback.Data
	default:
		return false
	}
	a := &c.Answer
	a.Reset(200)
	a.ContentType = c.raw
	a.Body = append(a.Body, data...)
	c.notes = strconv.AppendUint(c.notes[:0], q.ID, 10)
	c.note("Xebec-Query-Id", 0)
	at := len(c.notes)
	c.notes = strconv.AppendBool(c.notes, isDefault)
	c.note("Xebec-Default", at)
	confidence := q.Confidence
	if isDefault {
		at = len(c.notes)
		c.notes = c.AppendExplanation(c.notes, q)
		c.note("Xebec-Default-Explanation", at)
		if q.Code != api.LowConfidence {
			confidence = 0
		}
	}
	at = len(c.notes)
	c.notes = appendConfidence(c.notes, confidence)
	c.note("Xebec-Confidence", at)
	parts := q.Parts()
	c.noteModels("Xebec-Models", parts.Answered)
	c.noteModels("Xebec-Late", parts.Late)
	c.noteModels("Xebec-Failed", parts.Failed)
	c.noteModels("Xebec-Dropped", parts.Dropped)
	return true
}

// note makes a field of the notes from at to the end.
func (c *call) note(name string, at int) {
	c.Answer.Fields = append(c.Answer.Fields, dialect.Field{Name: name, Value: c.notes[at:len(c.notes):len(c.notes)]})
}

// noteModels makes a field of the models' names and versions, if there are any.
func (c *call) noteModels(name string, set selection.Set) {
	if set == 0 {
		return
	}
	at := len(c.notes)
	for rest := set; rest != 0; rest &= rest - 1 {
		if rest != set {
			c.notes = append(c.notes, ", "...)
		}
		c.notes = append(c.notes, c.Candidate(rest.First()).Ref()...)
	}
	c.note(name, at)
}

// rawAnswer is what a call keeps for answers that are not JSON.
type rawAnswer struct {
	// raw is the media type of an answer that is the output's bytes; empty: the caller wants another form.
	raw string
	// notes is the memory of the answer's fields.
	notes    []byte
	reader   tensorjson.Reader
	fallback api.Value // the default
}
