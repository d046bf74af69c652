package native

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// The limits of a body of type multipart/form-data. All of it lies in memory, within the limit of bodies.
const (
	// maxFormParts leaves room for a batch of files. A server that takes any number of them would spend its time on empty ones.
	maxFormParts = 1024 //xebec:limit parts of a multipart/form-data body
	// maxPartHeadBytes is far above what clients send: a name, a file's name and a type.
	maxPartHeadBytes = 4 << 10 //xebec:limit header fields of one part of a multipart/form-data body
	// maxBoundaryBytes is RFC 2046's bound.
	maxBoundaryBytes = 70
)

// part is one part of a form. Its slices lie in the body, but for names with escapes.
type part struct {
	name []byte
	kind []byte // the media type without parameters; empty if the part has no Content-Type
	data []byte
}

// formReader reads the parts of a body (RFC 7578, RFC 2046 section 5.1), one after the other. It is stricter than both: no preamble, no epilogue, no transfer
// encodings, no folded fields.
type formReader struct {
	rest  []byte // begins behind a delimiter's boundary
	delim []byte // CR LF "--" boundary
	parts int
}

// open begins a body of this Content-Type.
func (f *formReader) open(contentType, body []byte) error {
	boundary, err := boundaryOf(contentType)
	if err != nil {
		return err
	}
	f.parts = 0
	f.delim = append(append(f.delim[:0], "\r\n--"...), boundary...)
	first := f.delim[2:]
	if !bytes.HasPrefix(body, first) {
		return api.Errorf(api.InvalidArgument, "multipart/form-data: the body does not begin with %q, the boundary of its Content-Type", first)
	}
	f.rest = body[len(first):]
	return nil
}

// boundaryOf returns the parameter boundary of a Content-Type.
func boundaryOf(contentType []byte) ([]byte, error) {
	_, params, _ := bytes.Cut(contentType, []byte(";"))
	var found []byte
	for len(params) > 0 {
		name, value, rest, ok := parameter(params)
		if !ok {
			return nil, api.Errorf(api.InvalidArgument, "multipart/form-data: the Content-Type has malformed parameters")
		}
		params = rest
		if !bytes.EqualFold(name, []byte("boundary")) {
			continue
		}
		if found != nil {
			return nil, api.Errorf(api.InvalidArgument, "multipart/form-data: the Content-Type has two boundaries")
		}
		if found = value; !isBoundary(found) {
			return nil, api.Errorf(api.InvalidArgument, "multipart/form-data: the boundary %q: expected 1 to %d of the characters of RFC 2046", clip(found), maxBoundaryBytes)
		}
	}
	if found == nil {
		return nil, api.Errorf(api.InvalidArgument, "multipart/form-data: the Content-Type has no boundary: a client that makes the body sets it, as curl -F does")
	}
	return found, nil
}

func isBoundary(b []byte) bool {
	for _, c := range b {
		letter := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && !strings.ContainsRune("'()+_,-./:=? ", rune(c)) {
			return false
		}
	}
	return len(b) > 0 && len(b) <= maxBoundaryBytes && b[len(b)-1] != ' '
}

// parameter reads one name=value of a header field, up to the next semicolon. A quoted value loses its quotes and escapes. An empty parameter
// has an empty name.
func parameter(text []byte) (name, value, rest []byte, ok bool) {
	text = trim(text)
	if len(text) == 0 || text[0] == ';' {
		return nil, nil, text[min(1, len(text)):], true
	}
	i := bytes.IndexAny(text, "=;\"")
	if i <= 0 || text[i] != '=' {
		return nil, nil, nil, false
	}
	name, text = trim(text[:i]), text[i+1:]
	if len(text) == 0 || text[0] != '"' {
		value, rest, _ = bytes.Cut(text, []byte(";"))
		value = trim(value)
		return name, value, rest, len(value) > 0 && bytes.IndexByte(value, '"') < 0
	}
	var own []byte // of a value with escapes
	for at := 1; at < len(text); at++ {
		switch c := text[at]; {
		case c == '"':
			if value = text[1:at]; own != nil {
				value = own
			}
			rest = trim(text[at+1:])
			if len(rest) > 0 && rest[0] != ';' {
				return nil, nil, nil, false
			}
			return name, value, rest[min(1, len(rest)):], true
		case c == '\\' && at+1 < len(text) && (text[at+1] == '"' || text[at+1] == '\\'):
			// Other backslashes are themselves: some browsers send paths of Windows.
			if own == nil {
				own = append(make([]byte, 0, len(text)), text[1:at]...)
			}
			at++
			own = append(own, text[at])
		case own != nil:
			own = append(own, c)
		}
	}
	return nil, nil, nil, false
}

func trim(text []byte) []byte { return bytes.Trim(text, " \t") }

// next reads one part, or reports false behind the last.
func (f *formReader) next(p *part) (more bool, err error) {
	end := bytes.HasPrefix(f.rest, []byte("--"))
	if end {
		f.rest = f.rest[2:]
	}
	f.rest = bytes.TrimLeft(f.rest, " \t")
	switch {
	case end && (len(f.rest) == 0 || string(f.rest) == "\r\n"):
		return false, nil
	case end:
		return false, f.wrong("the body goes on behind its end")
	case !bytes.HasPrefix(f.rest, []byte("\r\n")):
		return false, f.wrong("the line of a boundary does not end with CR LF: the body is malformed")
	case f.parts == maxFormParts:
		return false, f.wrong("the body has more than %d parts", maxFormParts)
	}
	f.parts++
	f.rest = f.rest[2:]
	if err := f.head(p); err != nil {
		return false, err
	}
	if first := f.delim[2:]; bytes.HasPrefix(f.rest, first) && delimits(f.rest[len(first):]) {
		f.rest = f.rest[len(first):] // no data: the line break that ends the fields is the delimiter's
		return true, nil
	}
	for from := 0; ; {
		at := bytes.Index(f.rest[from:], f.delim)
		if at < 0 {
			return false, f.wrong("part %d, %q, has no end: the body is cut off", f.parts, clip(p.name))
		}
		at += from
		behind := f.rest[at+len(f.delim):]
		if !delimits(behind) { // the boundary is the beginning of something else in the part
			from = at + len(f.delim)
			continue
		}
		p.data, f.rest = f.rest[:at:at], behind
		return true, nil
	}
}

// delimits reports whether what is behind a boundary makes it one.
func delimits(behind []byte) bool {
	if bytes.HasPrefix(behind, []byte("--")) {
		return true
	}
	return bytes.HasPrefix(bytes.TrimLeft(behind, " \t"), []byte("\r\n"))
}

// head reads the header fields of a part.
func (f *formReader) head(p *part) error {
	*p = part{}
	window := f.rest[:min(len(f.rest), maxPartHeadBytes)]
	named, typed := false, false
	for {
		line, rest, ok := bytes.Cut(window, []byte("\r\n"))
		if !ok {
			return f.wrong("the header fields of part %d have no end within %d bytes", f.parts, maxPartHeadBytes)
		}
		f.rest, window = f.rest[len(line)+2:], rest
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") || bytes.ContainsAny(value, "\x00\r\n") {
			return f.wrong("part %d has a malformed header field", f.parts)
		}
		value = trim(value)
		switch strings.ToLower(string(name)) {
		case "content-disposition":
			if named {
				return f.wrong("part %d has two fields Content-Disposition", f.parts)
			}
			named = true
			if err := f.disposition(p, value); err != nil {
				return err
			}
		case "content-type":
			if typed {
				return f.wrong("part %d has two fields Content-Type", f.parts)
			}
			typed = true
			p.kind, _, _ = bytes.Cut(value, []byte(";"))
			p.kind = trim(p.kind)
		case "content-transfer-encoding":
			if e := strings.ToLower(string(value)); e != "binary" && e != "8bit" && e != "7bit" {
				return f.wrong("part %d has the Content-Transfer-Encoding %q: send the bytes as they are", f.parts, clip(value))
			}
		}
	}
	if !named {
		return f.wrong("part %d has no Content-Disposition, which names it", f.parts)
	}
	return nil
}

// disposition reads a part's name.
func (f *formReader) disposition(p *part, value []byte) error {
	kind, params, _ := bytes.Cut(value, []byte(";"))
	if !bytes.EqualFold(trim(kind), []byte("form-data")) {
		return f.wrong("part %d has the Content-Disposition %q: expected form-data", f.parts, clip(trim(kind)))
	}
	for len(params) > 0 {
		name, value, rest, ok := parameter(params)
		if !ok {
			return f.wrong("part %d has a malformed Content-Disposition", f.parts)
		}
		params = rest
		if bytes.EqualFold(name, []byte("name")) {
			if p.name != nil {
				return f.wrong("part %d has two names", f.parts)
			}
			p.name = value
		}
	}
	if len(p.name) == 0 || !utf8.Valid(p.name) {
		return f.wrong("part %d has no name in UTF-8", f.parts)
	}
	return nil
}

func (f *formReader) bothForms() error {
	return f.wrong("expected one input or parts \"input_batch\", found both")
}

func (f *formReader) wrong(format string, args ...any) error {
	return api.Errorf(api.InvalidArgument, "multipart/form-data: "+format, args...)
}

// readForm reads a body of type multipart/form-data: a part for each input of one query, named like the input, or "input" for a
// single one; or several parts "input_batch", one for each query of a model with a single input. Other parts are options.
func (c *call) readForm(contentType, body []byte) error {
	p, specs, f := &c.parsed, c.Model().Signature.Inputs, &c.form
	p.Clear()
	if len(specs) > tensorjson.MaxInputs {
		return api.Errorf(api.Internal, "the signature declares %d inputs: expected at most %d", len(specs), tensorjson.MaxInputs)
	}
	if err := f.open(contentType, body); err != nil {
		return err
	}
	defer func() { f.rest = nil }() // a call in its pool keeps no body
	var (
		in     part
		values []api.Value
		seen   tensorjson.Seen
		at     int
	)
	for {
		more, err := f.next(&in)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		i := tensorjson.Find(specs, in.name, at)
		switch {
		case i < 0 && len(specs) == 1 && string(in.name) == "input":
			i = 0
		case i < 0 && len(specs) == 1 && string(in.name) == "input_batch":
			if values != nil && !p.Batch {
				return f.bothForms()
			}
			i, values, p.Batch = 0, nil, true // a query for each
		case i < 0:
			known, err := p.Option(in.name, in.data)
			if err != nil {
				return err
			}
			if !known {
				return f.wrong("there is no input %q: expected %s", clip(in.name), formNames(specs))
			}
			continue
		}
		switch {
		case p.Batch && values != nil:
			return f.bothForms()
		case values == nil:
			if values, err = c.Next(); err != nil {
				return err
			}
			seen = tensorjson.Seen{}
		}
		if seen.Has(i) {
			return f.wrong("there are two parts for the input %q", specs[i].Name)
		}
		seen.Add(i)
		if at = i + 1; at == len(specs) {
			at = 0
		}
		if err := c.partValue(&values[i], &specs[i], &in); err != nil {
			return err
		}
	}
	if values == nil {
		return f.wrong("the body has no input: expected %s", formNames(specs))
	}
	for i := range specs {
		if !seen.Has(i) {
			return f.wrong("the input %q (%s) is missing", specs[i].Name, specs[i].String())
		}
	}
	return nil
}

// partValue reads the value of an input from its part: its bytes, or JSON. The part of a query that has no other is borrowed if it is large.
func (c *call) partValue(v *api.Value, spec *api.TensorSpec, in *part) error {
	scalarBytes := spec.DType.Variable() && len(spec.Shape) == 0
	isBytes := bytes.EqualFold(in.kind, rawType)
	switch {
	case spec.Media != "":
		if len(in.kind) > 0 && !isBytes && !spec.HasMedia(in.kind) {
			return wrongMedia("the part "+quoted(in.name), in.kind, spec.Media)
		}
	case bytes.EqualFold(in.kind, jsonType), !scalarBytes && (len(in.kind) == 0 || bytes.EqualFold(in.kind, textType)):
		r := &c.reader
		r.Reset(in.data)
		r.Push(spec.Name)
		if err := r.Value(v, spec); err != nil {
			return err
		}
		return r.End()
	case !scalarBytes && !isRaw(in.kind):
		return wrongMedia("the part "+quoted(in.name), in.kind, dialect.JSON)
	}
	if err := rawValue(v, spec, in.data, "the part "+quoted(in.name)); err != nil {
		return err
	}
	alone := len(c.Model().Signature.Inputs) == 1 && !c.parsed.Batch
	if len(in.data) < borrowBytes || !alone || !c.Borrow(in.data) {
		v.Data = append(v.Data[:0], in.data...)
	}
	return nil
}

func quoted(name []byte) string { return string(tensorjson.AppendString(nil, string(clip(name)))) }

// formNames says which parts hold inputs.
func formNames(specs []api.TensorSpec) string {
	if len(specs) == 1 {
		return "\"input\", " + tensorjson.Names(specs) + " or \"input_batch\""
	}
	return "a part for each of " + tensorjson.Names(specs)
}
