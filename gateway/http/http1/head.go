package http1

// span is a part of the head's bytes.
type span struct{ from, to uint32 }

// field is a header field. Only spans are kept: the head's memory may move while it grows.
type field struct{ name, value span }

// Head is what a request says before its body. Its byte slices are valid until Again.
type Head struct {
	buf    []byte
	fields []field

	method, path, query, authority span
	host                           int // index of the Host field, -1: none
	absolute                       bool

	// Minor is the protocol's minor version: 1 or 0.
	Minor int
	// Length is the body's length in bytes, -1 if it is chunked.
	Length int64
	// Close says that the connection ends with this request's answer.
	Close bool
	// Continue says that the client waits for 100 (Continue) before it sends a body, which is within the limit.
	Continue bool
}

func (h *Head) at(s span) []byte { return h.buf[s.from:s.to:s.to] }

// Method is the request's method, as it was sent.
func (h *Head) Method() []byte { return h.at(h.method) }

// Path is the target's path, still percent-encoded; "*" for OPTIONS of the server. It has no dot segment and no encoded slash. One slash at its end is
// left out.
func (h *Head) Path() []byte { return h.at(h.path) }

// Query is what follows the path's question mark.
func (h *Head) Query() []byte { return h.at(h.query) }

// Host is the host that the request is for: the target's if it names one, as RFC 9112, 3.2.2 says, else the Host field's.
func (h *Head) Host() []byte {
	if h.absolute {
		return h.at(h.authority)
	}
	if h.host < 0 {
		return nil
	}
	return h.at(h.fields[h.host].value)
}

// Fields is the number of header fields. Trailers are checked and dropped.
func (h *Head) Fields() int { return len(h.fields) }

// Field returns a header field.
func (h *Head) Field(i int) (name, value []byte) {
	return h.at(h.fields[i].name), h.at(h.fields[i].value)
}

// reset forgets the request.
func (h *Head) reset() {
	if cap(h.buf) > keptHeadBytes {
		h.buf = nil
	}
	if cap(h.fields) > 64 {
		h.fields = nil
	}
	*h = Head{buf: h.buf[:0], fields: h.fields[:0], host: -1, Minor: 1}
}
