package tensorjson

import (
	"encoding/base64"

	"github.com/xebec-serving/xebec/api"
)

// JSON has text but no bytes. An element of BYTES is {"b64": "…"} in both directions: an object with this one member,
// whose string is the canonical base64 of the bytes (RFC 4648, section 4: the standard alphabet, padded, without white
// space, and with unused bits of 0). So each sequence of bytes has one form.

// appendB64 appends bytes as JSON.
func appendB64(dst, item []byte) []byte {
	dst = append(dst, `{"b64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, item)
	return append(dst, `"}`...)
}

// appendBytes reads one element of a BYTES tensor: {"b64": "…"}, or, where callers ask, a string for its UTF-8.
func (r *Reader) appendBytes(dst []byte) ([]byte, error) {
	switch c := r.Peek(); {
	case c == '{':
		return r.appendBase64(dst)
	case r.onlyB64:
		return dst, r.Expected("{\"b64\": …}, bytes in base64")
	case c == '"':
		return r.appendString(dst)
	}
	return dst, r.Expected(oneOf(api.Bytes))
}

// appendBase64 reads {"b64": "…"}.
func (r *Reader) appendBase64(dst []byte) ([]byte, error) {
	r.pos++
	name, ok, err := r.Member(true)
	if err != nil {
		return dst, err
	}
	if !ok || string(name) != "b64" {
		return dst, r.Errorf("expected bytes as an object with the one member \"b64\"")
	}
	if dst, err = r.appendEncoded(dst); err != nil {
		return dst, err
	}
	if _, ok, err = r.Member(false); err != nil {
		return dst, err
	}
	if ok {
		return dst, r.Errorf("expected bytes as an object with the one member \"b64\", found more members")
	}
	return dst, nil
}

// appendEncoded reads a string of base64.
func (r *Reader) appendEncoded(dst []byte) ([]byte, error) {
	r.Peek()
	at := r.pos
	// An encoder may have escaped the slashes of the alphabet. String then decodes into the reader's buffer. That
	// memory is released immediately: a long batch would fill it.
	kept := len(r.buf)
	text, err := r.String()
	r.buf = r.buf[:kept]
	if err != nil {
		return dst, err
	}
	if dst, err = api.AppendBase64(dst, text); err != nil {
		r.pos = at
		return dst, r.Errorf("\"b64\" %s", err.Error())
	}
	return dst, nil
}
