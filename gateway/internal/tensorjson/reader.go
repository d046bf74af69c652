package tensorjson

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// MaxDepth bounds the nesting of a JSON text. Tensors have at most [api.MaxRank] dimensions, and no dialect's envelope
// is deep. 64 is also the number of bits with which [Reader.Skip] tracks open brackets.
const MaxDepth = 64 //xebec:limit nesting of JSON

// maxPath bounds the segments of a path in an error: the names of a dialect's envelope, an index into the batch, an
// input's name and one index for each dimension.
const maxPath = api.MaxRank + 8

// Reader reads one JSON text (RFC 8259) front to back, without a tree and without allocating in steady state. The HTTP
// dialects use it to parse their requests: [Request] is one, package oip another.
//
// A method that reads something leaves the reader after it. After an error the reader must be Reset. All errors are
// *api.Error with code InvalidArgument and name the position by path and byte offset.
type Reader struct {
	// NonFinite permits the tokens NaN, Infinity and -Infinity as float elements of tensors, which JSON forbids and
	// TensorFlow Serving's dialect uses. Reset does not change it.
	NonFinite bool
	// EncodedText permits {"b64": "…"} for text, too, as TensorFlow Serving's dialect does, which has one type for text and bytes. Reset does not
	// change it.
	EncodedText bool

	body []byte
	pos  int
	// buf holds decoded strings that could not alias the body. It may be reallocated as it grows; slices of the old
	// memory stay valid until Reset.
	buf []byte

	// onlyB64 means that elements of BYTES are {"b64": "…"}, as in answers, and never strings.
	onlyB64 bool

	// columnSpec holds the shape given to Column, as a spec. As a local variable it would be allocated.
	columnSpec api.TensorSpec

	path  [maxPath]segment
	depth int

	// plain and tail are memory of plains: numbers that have been read, and the end of the text with zeros behind it.
	plain [plainRun]plain
	tail  [2 * plainAhead]byte
}

// segment is one step of a path: a member's name, or an index if name is empty.
type segment struct {
	name  string
	index int
}

// Reset starts a new text. Slices that alias the last one become invalid.
func (r *Reader) Reset(body []byte) {
	r.body, r.pos, r.buf, r.depth = body, 0, r.buf[:0], 0
}

// Len returns the length of the whole text: an upper bound for the elements of any array in it.
func (r *Reader) Len() int { return len(r.body) }

// Pos returns the offset of the next byte.
func (r *Reader) Pos() int { return r.pos }

// Seek moves the reader to an offset that Pos returned. The caller knows what is there.
func (r *Reader) Seek(pos int) { r.pos = pos }

// Push adds a member to the path in error messages; Pop removes it.
func (r *Reader) Push(name string) { r.push(segment{name: name}) }

// PushIndex adds an array element to the path in error messages; Pop removes it.
func (r *Reader) PushIndex(i int) { r.push(segment{index: i}) }

func (r *Reader) push(s segment) {
	if r.depth < maxPath {
		r.path[r.depth] = s
	}
	r.depth++
}

// Pop removes the last member or element from the path.
func (r *Reader) Pop() { r.depth-- }

// Peek skips white space and returns the next byte without consuming it, or 0 at the end of the text.
func (r *Reader) Peek() byte {
	b, i := r.body, r.pos
	for i < len(b) {
		if c := b[i]; c > ' ' || !isSpace(c) {
			r.pos = i
			return c
		}
		i++
	}
	r.pos = i
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// Object reads the opening brace of an object.
func (r *Reader) Object() error { return r.open('{', "an object") }

// Array reads the opening bracket of an array.
func (r *Reader) Array() error { return r.open('[', "an array") }

func (r *Reader) open(c byte, what string) error {
	if r.Peek() != c {
		return r.Expected(what)
	}
	r.pos++
	return nil
}

// Member reads the next member's name and colon, or the closing brace, with ok = false. first means that it follows the
// opening brace. The name is decoded and aliases the body or the reader's buffer.
func (r *Reader) Member(first bool) (name []byte, ok bool, err error) {
	switch c := r.Peek(); {
	case c == '}':
		r.pos++
		return nil, false, nil
	case first:
	case c == ',':
		r.pos++
	default:
		return nil, false, r.Expected("',' or '}'")
	}
	if r.Peek() != '"' {
		return nil, false, r.Expected("a member's name in quotes")
	}
	if name, err = r.String(); err != nil {
		return nil, false, err
	}
	if r.Peek() != ':' {
		return nil, false, r.Expected("':'")
	}
	r.pos++
	return name, true, nil
}

// valueAfterComma is what is expected where a closing bracket follows a comma.
const valueAfterComma = "a value after ','"

// Element moves to the next element of an array, or reads the closing bracket, with ok = false. first means that it
// follows the opening bracket.
func (r *Reader) Element(first bool) (ok bool, err error) {
	switch c := r.Peek(); {
	case c == ']':
		r.pos++
		return false, nil
	case first:
		return true, nil
	case c == ',':
		r.pos++
		if r.Peek() == ']' {
			return false, r.Expected(valueAfterComma)
		}
		return true, nil
	}
	return false, r.Expected("',' or ']'")
}

// Members reads an object. It calls member after the name and the colon of each, to read the value; an error of member
// ends the object and is returned unchanged.
func (r *Reader) Members(member func(name []byte) error) error {
	if err := r.Object(); err != nil {
		return err
	}
	for first := true; ; first = false {
		name, ok, err := r.Member(first)
		if err != nil || !ok {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
	}
}

// Elements reads an array. It calls element to read each one, the i-th with i, which is in the path meanwhile; an error
// of element ends the array and is returned unchanged.
func (r *Reader) Elements(element func(i int) error) error {
	if err := r.Array(); err != nil {
		return err
	}
	for i := 0; ; i++ {
		ok, err := r.Element(i == 0)
		if err != nil || !ok {
			return err
		}
		r.PushIndex(i)
		if err := element(i); err != nil {
			return err
		}
		r.Pop()
	}
}

// Null reads null if it is next, and reports whether it did.
func (r *Reader) Null() bool {
	if r.Peek() == 'n' && hasPrefix(r.body, r.pos, "null") {
		r.pos += len("null")
		return true
	}
	return false
}

// Bool reads true or false.
func (r *Reader) Bool() (bool, error) {
	switch c := r.Peek(); {
	case c == 't' && hasPrefix(r.body, r.pos, "true"):
		r.pos += len("true")
		return true, nil
	case c == 'f' && hasPrefix(r.body, r.pos, "false"):
		r.pos += len("false")
		return false, nil
	}
	return false, r.Expected("true or false")
}

// Float64 reads a number. A number beyond float64 is an error.
func (r *Reader) Float64() (float64, error) {
	r.Peek()
	w, exp, next, flags := scan(r.body, r.pos)
	if flags&malformed != 0 {
		return 0, r.Expected("a number")
	}
	f, ok := toFloat64(w, exp, flags, r.body[r.pos:next])
	if !ok {
		return 0, r.Errorf("%s is out of range: expected a number that fits float64", clip(r.body[r.pos:next]))
	}
	r.pos = next
	return f, nil
}

// Int64 reads an integral number (1, 1.0, 1e2) that fits.
func (r *Reader) Int64() (int64, error) {
	r.Peek()
	negative, mag, next, st := integer(r.body, r.pos)
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	switch {
	case st == numSyntax:
		return 0, r.Expected("an integer")
	case st != numOK || mag > limit:
		return 0, r.Errorf("expected an integer that fits int64, found %s", clip(r.body[r.pos:next]))
	}
	r.pos = next
	if negative {
		return int64(-mag), nil
	}
	return int64(mag), nil
}

// uint64 reads an integral number that is not negative and fits.
func (r *Reader) uint64() (uint64, error) {
	r.Peek()
	negative, mag, next, st := integer(r.body, r.pos)
	switch {
	case st == numSyntax:
		return 0, r.Expected("an integer")
	case st != numOK || negative && mag > 0:
		return 0, r.Errorf("expected an integer from 0 to %d, found %s", uint64(math.MaxUint64), clip(r.body[r.pos:next]))
	}
	r.pos = next
	return mag, nil
}

// End checks that only white space follows.
func (r *Reader) End() error {
	if r.Peek(); r.pos < len(r.body) {
		return r.Expected("the end of the body")
	}
	return nil
}

// Skip reads one value of any kind and checks that it is JSON.
func (r *Reader) Skip() error {
	var open uint64 // bit 0: the innermost open bracket is a brace
	level := 0
	for {
		// A value starts here.
		switch c := r.Peek(); c {
		case '{', '[':
			if level == MaxDepth {
				return r.Errorf("nested too deeply: expected at most %d levels", MaxDepth)
			}
			level++
			open <<= 1
			r.pos++
			if c == '{' {
				open |= 1
			}
			if next := r.Peek(); next == '}' && c == '{' || next == ']' && c == '[' {
				break // the loop below reads it
			}
			if c == '{' {
				if err := r.skipName(); err != nil {
					return err
				}
			}
			continue
		default:
			if err := r.skipScalar(c); err != nil {
				return err
			}
		}
		// A value has ended, or an empty object or array is about to end.
		for {
			if level == 0 {
				return nil
			}
			c := r.Peek()
			if c == '}' && open&1 == 1 || c == ']' && open&1 == 0 {
				r.pos++
				level--
				open >>= 1
				continue
			}
			if c != ',' {
				if open&1 == 1 {
					return r.Expected("',' or '}'")
				}
				return r.Expected("',' or ']'")
			}
			r.pos++
			if open&1 == 1 {
				if err := r.skipName(); err != nil {
					return err
				}
			}
			break
		}
	}
}

func (r *Reader) skipName() error {
	if r.Peek() != '"' {
		return r.Expected("a member's name in quotes")
	}
	if _, err := r.scanString(); err != nil {
		return err
	}
	if r.Peek() != ':' {
		return r.Expected("':'")
	}
	r.pos++
	return nil
}

func (r *Reader) skipScalar(c byte) error {
	switch {
	case c == '"':
		_, err := r.scanString()
		return err
	case c == '-' || c >= '0' && c <= '9':
		_, _, next, flags := scan(r.body, r.pos)
		if flags&malformed != 0 {
			return r.Expected("a value")
		}
		r.pos = next
		return nil
	case c == 't' || c == 'f':
		if _, err := r.Bool(); err == nil {
			return nil
		}
	case c == 'n' && r.Null():
		return nil
	}
	return r.Expected("a value")
}

func hasPrefix(b []byte, i int, s string) bool {
	return len(b)-i >= len(s) && string(b[i:i+len(s)]) == s
}

// Expected returns an error that says what was expected at the next byte and what was found.
func (r *Reader) Expected(what string) error {
	r.Peek()
	return r.Errorf("expected %s, found %s", what, r.found())
}

// Errorf returns an error at the reader's position: the path, the message and the byte offset.
func (r *Reader) Errorf(format string, args ...any) error {
	where := r.where()
	if where == "" {
		where = "body"
	}
	return api.Errorf(api.InvalidArgument, "%s: %s (byte %d)", where, fmt.Sprintf(format, args...), r.pos)
}

// where formats the path: input_batch[3].image[17].
func (r *Reader) where() string {
	var out []byte
	for _, s := range r.path[:min(r.depth, maxPath)] {
		switch {
		case s.name == "":
			out = append(out, '[')
			out = strconv.AppendInt(out, int64(s.index), 10)
			out = append(out, ']')
		case len(out) > 0:
			out = append(out, '.')
			fallthrough
		default:
			out = append(out, s.name...)
		}
	}
	return string(out)
}

// foundBytes is how much of a token a message repeats: enough to recognise it.
const foundBytes = 24

// found describes the token at the reader's position.
func (r *Reader) found() string {
	if r.pos >= len(r.body) {
		return "the end of the body"
	}
	rest := r.body[r.pos:]
	switch c := rest[0]; {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		ahead := *r // a copy: the reader's position does not change
		s, err := ahead.scanString()
		if err != nil {
			return "an unterminated or malformed string"
		}
		return clip(r.body[r.pos : s.end+1])
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		n := 1
		for n < len(rest) && n <= foundBytes && isWord(rest[n]) {
			n++
		}
		return clip(rest[:n])
	}
	c, _ := utf8.DecodeRune(rest)
	return strconv.QuoteRune(c)
}

func isWord(c byte) bool {
	return c == '-' || c == '+' || c == '.' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// clip shortens a token for a message and makes it printable.
func clip(token []byte) string {
	cut := len(token) > foundBytes
	if cut {
		token = token[:foundBytes]
	}
	out := make([]byte, 0, len(token))
	for len(token) > 0 {
		c, n := utf8.DecodeRune(token)
		if !strconv.IsPrint(c) || c == utf8.RuneError {
			c = '?'
		}
		out = utf8.AppendRune(out, c)
		token = token[n:]
	}
	if cut {
		out = append(out, "…"...)
	}
	return string(out)
}

// Depth counts the brackets of arrays that open next, one in another, up to most. It reads nothing.
func (r *Reader) Depth(most int) int {
	n := 0
	for i := r.pos; i < len(r.body) && n < most; i++ {
		if r.body[i] == '[' {
			n++
		} else if !isSpace(r.body[i]) {
			break
		}
	}
	return n
}
