package native

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// isRaw reports whether a body of this type is the input itself. All other bodies are parsed as JSON, also
// application/x-www-form-urlencoded, which is curl's default.
func isRaw(contentType []byte) bool {
	if len(contentType) == 0 || bytes.HasPrefix(contentType, jsonType) {
		return false
	}
	for _, p := range rawTypes {
		if bytes.HasPrefix(contentType, p) {
			return true
		}
	}
	return false
}

var (
	jsonType = []byte("application/json")
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
	if len(kind) > maxTypeBytes {
		kind = append(kind[:maxTypeBytes:maxTypeBytes], "…"...)
	}
	if len(kind) > 0 {
		why = "its Content-Type is " + string(kind)
	}
	e := dialect.Error(err)
	return api.Errorf(e.Code, "%w; the body is read as JSON, because %s: send JSON, or bytes with the Content-Type application/octet-stream, text/plain, image/…, audio/… or video/…", e, why)
}

// borrowBytes is the size from which a raw body is borrowed, not copied: the transport keeps it until the scheduler has
// released the query. A smaller body is cheaper to copy than a goroutine is to keep waiting.
const borrowBytes = 32 << 10 //xebec:limit raw bodies of at least this size are not copied

// reserve finds a place for a raw body with the model of its function.
func (s *service) reserve(function, contentType []byte, n int) api.Slot {
	if n < borrowBytes || !isRaw(contentType) {
		return nil
	}
	return s.path.Reserve(function, n)
}

// readRaw makes the body the only input of the only query.
func (c *call) readRaw(body []byte) error {
	p := &c.parsed
	p.Batch, p.Has, p.Context, p.Salt = false, 0, nil, nil
	specs := c.Model().Signature.Inputs
	if len(specs) != 1 {
		return api.Errorf(api.InvalidArgument, "a raw body is one input, but the model takes %d: send JSON", len(specs))
	}
	spec, n := specs[0], len(body)
	inputs, err := c.Next()
	if err != nil {
		return err
	}
	v := &inputs[0]
	v.Dims = v.Dims[:0]
	switch {
	case spec.DType == api.String && len(spec.Shape) == 0:
		if !utf8.Valid(body) {
			return api.Errorf(api.InvalidArgument, "the raw body is not valid UTF-8, which the string %q is", spec.Name)
		}
	case spec.DType.Variable() && len(spec.Shape) == 0:
	case spec.DType.Variable():
		return api.Errorf(api.InvalidArgument, "a raw body is one string of bytes, but the model takes %s: send JSON", spec)
	case spec.Fixed():
		if n != spec.ItemBytes() {
			return api.Errorf(api.InvalidArgument, "the raw body has %d bytes: expected %d, %s little-endian and row-major", n, spec.ItemBytes(), spec)
		}
	default:
		if v.Dims, err = rawDims(v.Dims, spec, n); err != nil {
			return err
		}
	}
	if n < borrowBytes || !c.Borrow(body) {
		v.Data = append(v.Data[:0], body...)
	}
	return nil
}

// rawDims computes the one dimension that is not declared.
func rawDims(dims []int64, spec api.TensorSpec, n int) ([]int64, error) {
	unit, open := int64(spec.DType.Size()), -1
	for i, d := range spec.Shape {
		if d >= 0 {
			unit *= d
		} else if open >= 0 {
			return dims, api.Errorf(api.InvalidArgument, "a raw body says nothing of the dimensions of %s: send JSON", spec)
		} else {
			open = i
		}
	}
	if unit == 0 || int64(n)%unit != 0 {
		return dims, api.Errorf(api.InvalidArgument, "the raw body has %d bytes: expected a multiple of %d for %s", n, unit, spec)
	}
	dims = append(dims, spec.Shape...)
	dims[open] = int64(n) / unit
	return dims, nil
}
