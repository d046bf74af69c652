package native

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// bodyKind is how a body is read.
type bodyKind uint8

const (
	bodyJSON bodyKind = iota
	bodyRaw           // the body is the only input
	bodyForm          // multipart/form-data
	bodyCSV           // text/csv
)

// bodyOf says how a body of this type is read. All bodies that are not raw and no form are parsed as JSON, also
// application/x-www-form-urlencoded, which is curl's default. An input that declares its media type takes no other one; its error
// is a mediaError.
func bodyOf(contentType []byte, inputs []api.TensorSpec) (bodyKind, error) {
	kind, _, _ := bytes.Cut(contentType, []byte(";"))
	kind = bytes.TrimSpace(kind)
	switch {
	case bytes.EqualFold(kind, formType):
		return bodyForm, nil
	case len(inputs) == 1 && inputs[0].HasMedia(kind):
		return bodyRaw, nil
	case bytes.EqualFold(kind, csvType):
		return bodyCSV, nil
	case !isRaw(kind):
		return bodyJSON, nil
	case len(inputs) == 1 && inputs[0].Media != "" && !bytes.EqualFold(kind, rawType):
		return bodyJSON, wrongMedia("a body", kind, inputs[0].Media)
	}
	return bodyRaw, nil
}

// mediaError says that a body, or a part of it, has a media type that the model does not take: status 415.
type mediaError struct{ err *api.Error }

func (e *mediaError) Error() string { return e.err.Error() }

// Unwrap returns the error with its code.
func (e *mediaError) Unwrap() error { return e.err }

func wrongMedia(what string, kind []byte, want string) error {
	return &mediaError{api.Errorf(api.InvalidArgument, "%s of type %s: the model takes %s, or %s without a declared type", what, clip(kind), want, octetStream)}
}

// clip limits what a client sent for a message.
func clip(text []byte) []byte {
	if len(text) > maxTypeBytes {
		return append(text[:maxTypeBytes:maxTypeBytes], "…"...)
	}
	return text
}

// isRaw reports whether a body of this type is the input itself, if the input declares no media type.
func isRaw(contentType []byte) bool {
	for _, p := range rawTypes {
		if len(contentType) >= len(p) && bytes.EqualFold(contentType[:len(p)], p) {
			return true
		}
	}
	return false
}

var (
	textType = []byte("text/plain")
	jsonType = []byte("application/json")
	formType = []byte("multipart/form-data")
	rawTypes = [][]byte{[]byte("application/octet-stream"), []byte("text/plain"), []byte("image/"), []byte("audio/"), []byte("video/")}
)

// maxTypeBytes bounds the client's Content-Type in an error.
const maxTypeBytes = 64

// asJSON is the error of a body that could not be read. If the body looks like no JSON at all, and its type does not say
// that it is JSON, the error says why it was read as JSON: most such bodies are bytes without their type.
func asJSON(x dialect.Exchange, err error) error {
	kind, body := x.Header("Content-Type"), bytes.TrimLeft(x.Body(), " \t\r\n")
	if isRaw(kind) || bytes.HasPrefix(kind, jsonType) || len(body) == 0 || body[0] == '{' || body[0] == '[' || json.Valid(body) {
		return err
	}
	kind, _, _ = bytes.Cut(kind, []byte(";"))
	why := "it has no Content-Type"
	if len(kind) > 0 {
		why = "its Content-Type is " + string(clip(kind))
	}
	e := dialect.Error(err)
	return api.Errorf(e.Code, "%w; the body is read as JSON, because %s: send JSON, or bytes with the Content-Type application/octet-stream, text/plain, image/…, audio/… or video/…", e, why)
}

// borrowBytes is the size from which a raw body is borrowed, not copied: the transport keeps it until the scheduler has
// released the query. A smaller body is cheaper to copy than a goroutine is to keep waiting.
const borrowBytes = 32 << 10 //xebec:limit raw bodies of at least this size are not copied

// reserve finds a place for a raw body with the model of its function.
func (s *service) reserve(function, contentType []byte, n int, give func(api.Slot) bool) (_ api.Slot, waits bool) {
	if n < borrowBytes || !isRaw(contentType) {
		return nil, false
	}
	return s.path.Reserve(function, n, give)
}

// readRaw makes the body the only input of the only query.
func (c *call) readRaw(body []byte) error {
	c.parsed.Clear()
	specs := c.Model().Signature.Inputs
	if len(specs) != 1 {
		return api.Errorf(api.InvalidArgument, "a raw body is one input, but the model takes %d: send JSON", len(specs))
	}
	inputs, err := c.Next()
	if err != nil {
		return err
	}
	v := &inputs[0]
	if err := rawValue(v, &specs[0], body, "the raw body"); err != nil {
		return err
	}
	if len(body) < borrowBytes || !c.Borrow(body) {
		v.Data = append(v.Data[:0], body...)
	}
	return nil
}

// rawValue checks that body, which messages name what, is a value of the input's bytes, and sets the value's dimensions. It leaves the data
// to the caller.
func rawValue(v *api.Value, spec *api.TensorSpec, body []byte, what string) error {
	n := len(body)
	v.Dims = v.Dims[:0]
	switch {
	case spec.DType == api.String && len(spec.Shape) == 0:
		if !utf8.Valid(body) {
			return api.Errorf(api.InvalidArgument, "%s is not valid UTF-8, which the string %q is", what, spec.Name)
		}
	case spec.DType.Variable() && len(spec.Shape) == 0:
	case spec.DType.Variable():
		return api.Errorf(api.InvalidArgument, "%s is one string of bytes, but the model takes %s: send JSON", what, spec)
	case spec.Fixed():
		if n != spec.ItemBytes() {
			return api.Errorf(api.InvalidArgument, "%s has %d bytes: expected %d, %s little-endian and row-major", what, n, spec.ItemBytes(), spec)
		}
	default:
		var err error
		if v.Dims, err = rawDims(v.Dims, *spec, n, what); err != nil {
			return err
		}
	}
	return nil
}

// rawDims computes the one dimension that is not declared.
func rawDims(dims []int64, spec api.TensorSpec, n int, what string) ([]int64, error) {
	unit, open := int64(spec.DType.Size()), -1
	for i, d := range spec.Shape {
		if d >= 0 {
			unit *= d
		} else if open >= 0 {
			return dims, api.Errorf(api.InvalidArgument, "%s says nothing of the dimensions of %s: send JSON", what, spec)
		} else {
			open = i
		}
	}
	if unit == 0 || int64(n)%unit != 0 {
		return dims, api.Errorf(api.InvalidArgument, "%s has %d bytes: expected a multiple of %d for %s", what, n, unit, spec)
	}
	dims = append(dims, spec.Shape...)
	dims[open] = int64(n) / unit
	return dims, nil
}
