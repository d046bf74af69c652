package gateway

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// maxSLO bounds what a request may ask for: queries that wait longer are no queries but jobs.
const maxSLO = 10 * time.Minute

// isRaw reports whether a body of this type is the input itself. Everything else is taken for JSON, for curl says
// application/x-www-form-urlencoded unless told otherwise.
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

// borrowBytes is the size from which a raw body is not copied: its handler stays until the scheduler has released the query,
// so that Hertz's buffer can be the query's. Below it, the copy is cheaper than the goroutine.
const borrowBytes = 32 << 10

// rawInput makes the body the only input of the only query.
func (c *call) rawInput(body []byte) error {
	specs := c.model.Signature.Inputs
	if len(specs) != 1 {
		return api.Errorf(api.InvalidArgument, "a raw body is one input, but the model takes %d: send JSON", len(specs))
	}
	spec, n := specs[0], len(body)
	vals, err := c.Next()
	if err != nil {
		return err
	}
	v := &vals[0]
	v.Dims = v.Dims[:0]
	switch {
	case spec.DType == api.Bytes && len(spec.Shape) == 0:
	case spec.DType == api.Bytes:
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
	if n >= borrowBytes {
		c.own, c.borrowed = v.Data[:0], true
		v.Data = body
		return nil
	}
	v.Data = append(v.Data[:0], body...)
	return nil
}

// rawDims finds the one dimension that is not declared.
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

// context gives every query the caller's context: the header's, or else the body's.
func (c *call) context(header []byte) {
	ctx := c.native.Context
	if len(header) > 0 {
		ctx = header
	}
	if len(ctx) == 0 {
		return
	}
	c.text = append(c.text[:0], ctx...)
	for _, it := range c.items {
		it.Context = c.text
	}
}

// renderNative writes Clipper's answer, extended by confidence and models.
func renderNative(c *call) {
	out := c.out[:0]
	c.status, c.code = 200, api.OK
	batch := c.native.Batch && len(c.items) > 0
	if batch {
		out = append(out, `{"batch_predictions":[`...)
	}
	failed := 0
	for i, it := range c.items {
		if i > 0 {
			out = append(out, ',')
		}
		if it.code != api.OK && c.fn.Default == nil {
			failed++
		}
		out = c.appendPrediction(out, it, batch)
	}
	if batch {
		out = append(out, `]}`...)
	}
	c.code = c.worst()
	if failed == len(c.items) { // a batch in which something succeeded is an answer
		c.status = c.code.HTTPStatus()
		c.retryAfter = c.status == 503
	}
	c.out = out
}

func (c *call) appendPrediction(out []byte, it *item, batch bool) []byte {
	switch {
	case it.code == api.OK:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, it.ID, 10)
		out = append(out, `,"output":`...)
		out = c.appendOutputs(out, it)
		out = append(out, `,"default":false,"confidence":`...)
		if conf := it.Confidence; conf >= 0 && conf <= 1 {
			out = strconv.AppendFloat(out, conf, 'g', -1, 64)
		} else {
			out = append(out, '1') // one model, and it agrees with itself
		}
		out = append(out, `,"models":[`...)
		out = append(out, c.model.label...)
		return append(out, `]}`...)
	case c.fn.Default != nil:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, it.ID, 10)
		out = append(out, `,"output":`...)
		out = append(out, c.fn.Default...)
		out = append(out, `,"default":true,"default_explanation":"`...)
		out = append(out, it.code.Reason()...)
		return append(out, `","confidence":0,"models":[]}`...)
	case batch:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, it.ID, 10)
		out = append(out, ',')
		return append(appendCode(out, it.code), '}')
	default:
		return append(appendCode(append(out, '{'), it.code), '}')
	}
}

// appendCode explains a query that ended without an output.
func appendCode(out []byte, code api.Code) []byte {
	out = append(out, `"error":"Query processing error","cause":"`...)
	out = append(out, code.Reason()...)
	out = append(out, `","code":"`...)
	out = append(out, code.String()...)
	return append(out, '"')
}

// appendOutputs renders one output as itself, several as an object.
func (c *call) appendOutputs(out []byte, it *item) []byte {
	specs := c.model.Signature.Outputs
	if len(specs) == 1 {
		return tensorjson.AppendValue(out, specs[0], it.Outputs[0])
	}
	out = append(out, '{')
	for s := range specs {
		if s > 0 {
			out = append(out, ',')
		}
		out = tensorjson.AppendString(out, specs[s].Name)
		out = append(out, ':')
		out = tensorjson.AppendValue(out, specs[s], it.Outputs[s])
	}
	return append(out, '}')
}

// The two kinds of error that Clipper knows.
const (
	jsonError  = "Json error"
	queryError = "Query processing error"
)

// appendError is Clipper's error shape, with our code.
func appendError(dst []byte, kind string, e *api.Error) []byte {
	dst = append(dst, `{"error":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","cause":`...)
	dst = tensorjson.AppendString(dst, e.Message)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, e.Code.String()...)
	return append(dst, `"}`...)
}

func asError(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.Internal, Message: "internal error", Err: err}
}

func appendReadiness(dst []byte, ready bool, why string) []byte {
	dst = append(dst, `{"ready":`...)
	dst = strconv.AppendBool(dst, ready)
	if why != "" {
		dst = append(dst, `,"reason":`...)
		dst = tensorjson.AppendString(dst, why)
	}
	return append(dst, '}')
}
