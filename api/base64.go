package api

import (
	"bytes"
	"encoding/base64"
	"errors"
)

var strictBase64 = base64.StdEncoding.Strict()

var errBase64 = errors.New("is not base64: expected the standard alphabet (A–Z a–z 0–9 + /), padded with = and without white space")

// AppendBase64 appends the bytes whose canonical base64 text is: the standard alphabet, padding, no white space, and
// unused bits of 0, so that no other text means the same bytes. The error is a clause without a subject; dst is then
// returned unchanged.
func AppendBase64(dst, text []byte) ([]byte, error) {
	if bytes.ContainsAny(text, "\r\n") { // the standard library skips these
		return dst, errBase64
	}
	out, err := strictBase64.AppendDecode(dst, text)
	if err != nil {
		return dst, errBase64
	}
	return out, nil
}
