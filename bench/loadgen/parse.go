package loadgen

import (
	"bytes"
	"errors"
	"fmt"
)

const (
	// maxHeaderBytes bounds the search for the end of a header. It is far more than any server under test sends.
	maxHeaderBytes = 16 << 10
	// maxBodyBytes is the gateway's limit for bodies, so an echo cannot be larger.
	maxBodyBytes = 64 << 20
)

// response is the relevant part of one HTTP/1.1 response.
type response struct {
	status      int
	headerBytes int  // status line, fields and the empty line
	bodyBytes   int  // from Content-Length
	close       bool // the server will close the connection after it
}

func (r response) size() int { return r.headerBytes + r.bodyBytes }

var (
	headerEnd        = []byte("\r\n\r\n")
	errHeaderTooLong = fmt.Errorf("response header has more than %d bytes", maxHeaderBytes)
	errStatusLine    = errors.New("expected a response that starts with HTTP/1.1 and a status of three digits")
	errField         = errors.New("malformed header field")
	errEncoding      = errors.New("a transfer encoding is used: only responses with Content-Length are understood")
	errLength        = fmt.Errorf("expected one Content-Length of 0 to %d", maxBodyBytes)
)

// parseHeader parses the header of the response at the start of buf. If it needs more bytes, ok is false and err nil. Interim responses (1xx) are
// errors, because no request asks for them.
func parseHeader(buf []byte) (r response, ok bool, err error) {
	end := bytes.Index(buf, headerEnd)
	if end < 0 {
		if len(buf) > maxHeaderBytes {
			return r, false, errHeaderTooLong
		}
		return r, false, nil
	}
	if end > maxHeaderBytes {
		return r, false, errHeaderTooLong
	}
	r.headerBytes = end + len(headerEnd)
	line, rest := cutLine(buf[:end+2])
	if r.status, err = parseStatus(line); err != nil {
		return r, false, err
	}
	lengths := 0
	for len(rest) > 0 {
		line, rest = cutLine(rest)
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return r, false, errField
		}
		name, value := line[:colon], trim(line[colon+1:])
		switch {
		case equalFold(name, "content-length"):
			lengths++
			if r.bodyBytes, err = parseLength(value); err != nil {
				return r, false, err
			}
		case equalFold(name, "transfer-encoding"):
			return r, false, errEncoding
		case equalFold(name, "connection"):
			r.close = equalFold(value, "close")
		}
	}
	// 204 and 304 have no body and need no length.
	if lengths != 1 && (lengths > 1 || r.status != 204 && r.status != 304) {
		return r, false, errLength
	}
	return r, true, nil
}

func parseStatus(line []byte) (int, error) {
	const prefix = "HTTP/1.1 "
	if len(line) < len(prefix)+3 || string(line[:len(prefix)]) != prefix {
		return 0, errStatusLine
	}
	status := 0
	for _, c := range line[len(prefix) : len(prefix)+3] {
		if c < '0' || c > '9' {
			return 0, errStatusLine
		}
		status = 10*status + int(c-'0')
	}
	if len(line) > len(prefix)+3 && line[len(prefix)+3] != ' ' || status < 200 || status > 599 {
		return 0, errStatusLine
	}
	return status, nil
}

func parseLength(value []byte) (int, error) {
	if len(value) == 0 || len(value) > 9 {
		return 0, errLength
	}
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, errLength
		}
		n = 10*n + int(c-'0')
	}
	if n > maxBodyBytes {
		return 0, errLength
	}
	return n, nil
}

// cutLine splits b at the first CRLF.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.Index(b, headerEnd[:2])
	if i < 0 {
		return b, nil
	}
	return b[:i], b[i+2:]
}

func trim(b []byte) []byte { return bytes.Trim(b, " \t") }

// equalFold compares ASCII text without case. lower is in lower case.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
