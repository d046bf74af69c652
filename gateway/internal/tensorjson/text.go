package tensorjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

// stringSpan is a string literal between its quotes: body[start:end].
type stringSpan struct {
	start, end int
	escaped    bool
}

const (
	lsb = 0x0101010101010101
	msb = 0x8080808080808080
)

// stopByte returns the index, in eight bytes, of the first byte that ends a run of plain ASCII: a quote, a backslash, a
// control character or a byte of 0x80 and above. It returns 8 if there is none. A borrow in the subtractions can only
// affect bytes after a marked one, so the first mark is right.
func stopByte(v uint64) int {
	quote := v ^ lsb*'"'
	slash := v ^ lsb*'\\'
	marks := (quote-lsb)&^quote | (slash-lsb)&^slash | (v - lsb*0x20) | v
	return bits.TrailingZeros64(marks&msb) / 8
}

// scanString reads a string literal and checks its grammar and that it is UTF-8. It does not decode escapes.
func (r *Reader) scanString() (stringSpan, error) {
	b := r.body
	i := r.pos + 1 // the caller has seen the opening quote
	s := stringSpan{start: i}
	ascii := true
	for {
		for i+8 <= len(b) {
			n := stopByte(binary.LittleEndian.Uint64(b[i:]))
			i += n
			if n < 8 {
				break
			}
		}
		if i >= len(b) {
			r.pos = len(b)
			return s, r.Errorf("unterminated string: expected '\"'")
		}
		switch c := b[i]; {
		case c == '"':
			s.end = i
			if !ascii && !utf8.Valid(b[s.start:s.end]) {
				return s, r.Errorf("a string is not UTF-8: expected UTF-8, or bytes as {\"b64\": …}")
			}
			r.pos = i + 1
			return s, nil
		case c == '\\':
			n := escapeLen(b, i)
			if n == 0 {
				r.pos = i
				return s, r.Errorf("a string has a malformed escape: expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX")
			}
			s.escaped = true
			i += n
		case c < 0x20:
			r.pos = i
			return s, r.Errorf("a string has the unescaped control character 0x%02x", c)
		default:
			ascii = ascii && c < 0x80
			i++
		}
	}
}

// escapeLen returns the length of the escape at b[i], or 0 if it is malformed.
func escapeLen(b []byte, i int) int {
	if i+1 >= len(b) {
		return 0
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if hex4(b, i+2) >= 0 {
			return 6
		}
	}
	return 0
}

// hex4 reads four hexadecimal digits, or returns -1 if there are none.
func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var v rune
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = (c | 0x20) - 'a' + 10
		default:
			return -1
		}
		v = v<<4 | rune(c)
	}
	return v
}

// String reads a string and returns its UTF-8 bytes, which alias the body or the reader's buffer until Reset.
func (r *Reader) String() ([]byte, error) {
	if r.Peek() != '"' {
		return nil, r.Expected("a string")
	}
	s, err := r.scanString()
	if err != nil {
		return nil, err
	}
	if !s.escaped {
		return r.body[s.start:s.end:s.end], nil
	}
	start := len(r.buf)
	if r.buf, err = r.unescape(r.buf, s); err != nil {
		return nil, err
	}
	return r.buf[start:len(r.buf):len(r.buf)], nil
}

// appendString reads a string and appends its UTF-8 bytes.
func (r *Reader) appendString(dst []byte) ([]byte, error) {
	s, err := r.scanString()
	if err != nil {
		return dst, err
	}
	if !s.escaped {
		return append(dst, r.body[s.start:s.end]...), nil
	}
	return r.unescape(dst, s)
}

// unescape appends the decoded string. An unpaired surrogate has no UTF-8 encoding and is an error.
func (r *Reader) unescape(dst []byte, s stringSpan) ([]byte, error) {
	text := r.body[s.start:s.end]
	for i := 0; i < len(text); {
		c := text[i]
		if c != '\\' {
			n := i + 1
			for n < len(text) && text[n] != '\\' {
				n++
			}
			dst = append(dst, text[i:n]...)
			i = n
			continue
		}
		c = text[i+1] // scanString has checked the grammar
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			v := hex4(text, i)
			i += 4
			if utf16.IsSurrogate(v) {
				low := rune(-1)
				if i+1 < len(text) && text[i] == '\\' && text[i+1] == 'u' {
					low = hex4(text, i+2)
				}
				if v = utf16.DecodeRune(v, low); v == utf8.RuneError {
					r.pos = s.start + i - 6
					return dst, r.Errorf("a string has an unpaired surrogate: expected \\uD8XX\\uDCXX")
				}
				i += 6
			}
			dst = utf8.AppendRune(dst, v)
			continue
		}
		dst = append(dst, c)
	}
	return dst, nil
}

// appendText reads one element of a string tensor.
func (r *Reader) appendText(dst []byte) ([]byte, error) {
	switch c := r.Peek(); {
	case c == '"':
		return r.appendString(dst)
	case c == '{' && r.EncodedText:
		at, pos := len(dst), r.pos
		dst, err := r.appendBase64(dst)
		if err == nil && !utf8.Valid(dst[at:]) {
			r.pos = pos
			err = r.Errorf("expected text, found bytes that are not UTF-8")
		}
		return dst, err
	}
	return dst, r.Expected("a string")
}

// appendVariable reads one element of a type whose elements vary in size.
func (r *Reader) appendVariable(dst []byte, dtype api.DType) ([]byte, error) {
	if dtype == api.String {
		return r.appendText(dst)
	}
	return r.appendBytes(dst)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD, as in encoding/json. '<', '>', '&',
// U+2028 and U+2029 are not escaped: the output is JSON, not script in a page.
func AppendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	// Slice and string headers both begin with a pointer and a length, which are only read.
	text := *(*string)(unsafe.Pointer(&s))
	return appendQuoted(dst, unsafe.Slice(unsafe.StringData(text), len(text)))
}

func appendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	start := 0 // start of what has not been appended yet
	for i := 0; i < len(s); {
		if len(s)-i >= 8 {
			n := stopByte(binary.LittleEndian.Uint64(s[i:]))
			if i += n; n == 8 {
				continue
			}
		}
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			_, n := utf8.DecodeRune(s[i:])
			if n > 1 {
				i += n
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\ufffd"...) // one for each byte that is not part of a rune
		case c < 0x20 || c == '"' || c == '\\':
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
		default:
			i++
			continue
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
