package oip

import (
	"bytes"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// isRaw reports whether a body without Inference-Header-Content-Length is a raw tensor: bytes that do not begin as JSON does.
func isRaw(contentType, body []byte) bool {
	kind, _, _ := bytes.Cut(contentType, []byte(";"))
	return bytes.EqualFold(bytes.TrimSpace(kind), []byte("application/octet-stream")) && len(body) > 0 && body[0] != '{' && body[0] != ' ' && body[0] != '\n'
}

// ParseRaw reads a body that is the data of the only input, little-endian and without any JSON. A value of BYTES without dimensions is the whole
// body. Of other inputs at most one dimension is variable; it follows from the length. If none is, the body may have several queries. The outputs
// are binary. Otherwise ParseRaw is like Parse.
func (q *Request) ParseRaw(body []byte, sig *api.Signature, sink tensorjson.Sink, maxQueries int) error {
	q.begin(sig, sink, maxQueries)
	if len(sig.Outputs) > tensorjson.MaxInputs {
		return api.Errorf(api.Internal, "the signature has more than %d outputs", tensorjson.MaxInputs)
	}
	if len(sig.Inputs) != 1 {
		return api.Errorf(api.InvalidArgument, "a request without JSON has the data of one input: the model has %s: send JSON before the data, and its length in the header %s", tensorjson.Names(sig.Inputs), jsonLength)
	}
	spec := &sig.Inputs[0]
	q.tensors = append(q.tensors, tensor{})
	t := &q.tensors[0]
	if err := t.fitRaw(spec, len(body), maxQueries); err != nil {
		return err
	}
	q.Batched, q.Queries, q.seen = true, int(t.shape[0]), tensorjson.Seen{}
	q.seen.Add(0)
	if err := q.storage(); err != nil {
		return err
	}
	if spec.DType.Variable() {
		if spec.DType == api.String && !utf8.Valid(body) {
			return api.Errorf(api.InvalidArgument, "input %q: the body is not valid UTF-8, which a string is", spec.Name)
		}
		v := &q.rows[0][0]
		v.Data = append(v.Data[:0], body...)
	} else if err := q.split(t, spec, body); err != nil {
		return err
	}
	q.setDims(t)
	q.binaryDefault = true
	return q.complete()
}

// fitRaw determines a tensor's shape, with its batch dimension, from the length of its data.
func (t *tensor) fitRaw(spec *api.TensorSpec, n, maxQueries int) error {
	t.rank = copy(t.shape[1:], spec.Shape) + 1
	t.shape[0] = 1
	if spec.DType.Variable() {
		if len(spec.Shape) > 0 {
			return api.Errorf(api.InvalidArgument, "input %q is %s: a request without JSON can have one element of BYTES, not an array of them", spec.Name, spec.String())
		}
		return nil
	}
	unit, variable := int64(spec.DType.Size()), 0
	for i, d := range spec.Shape {
		if d >= 0 {
			unit *= d
		} else if variable != 0 {
			return api.Errorf(api.InvalidArgument, "input %q is %s: the length of a request without JSON cannot say more than one dimension", spec.Name, spec.String())
		} else {
			variable = i + 1
		}
		if unit > api.MaxItemBytes {
			return api.Errorf(api.InvalidArgument, "input %q is %s: expected less than %d bytes", spec.Name, spec.String(), api.MaxItemBytes)
		}
	}
	if unit == 0 || int64(n)%unit != 0 || n == 0 {
		return api.Errorf(api.InvalidArgument, "input %q is %s: the body has %d bytes: expected a multiple of %d", spec.Name, spec.String(), n, unit)
	}
	t.shape[variable] = int64(n) / unit
	if t.shape[0] > int64(maxQueries) {
		return api.Errorf(api.InvalidArgument, "the body has %d queries: expected at most %d", t.shape[0], maxQueries)
	}
	return nil
}
