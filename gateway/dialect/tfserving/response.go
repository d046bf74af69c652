package tfserving

import (
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Settled renders the protocol's answer. If one query has neither an output nor a default, the request fails.
func (c *call) Settled() api.Code {
	a, code := &c.Answer, c.Code()
	if c.Refused() {
		return code
	}
	if i := c.Failed(); i >= 0 {
		q := c.Query(i)
		a.Reset(q.Code.HTTPStatus())
		a.RetryAfter(c.RetryAfter())
		a.Body = appendError(a.Body, q.Code, q.Reason())
		return code
	}
	a.Reset(200)
	var err error
	switch {
	case c.verb == predict && c.parsed.Rows:
		a.Body = append(c.appendQueries(append(a.Body, `{"predictions":[`...), c.appendPrediction), "]}"...)
	case c.verb == predict:
		a.Body = append(c.appendColumns(append(a.Body, `{"outputs":`...)), '}')
	default:
		a.Body, err = c.appendResults(append(a.Body, `{"result":[`...))
		a.Body = append(a.Body, "]}"...)
	}
	if err != nil {
		a.Reset(api.Internal.HTTPStatus())
		a.Body = appendError(a.Body, api.Internal, err.Error())
		return api.Internal
	}
	c.FactFields()
	return code
}

// appendQueries appends what appendOne appends for each query, with commas between.
func (c *call) appendQueries(dst []byte, appendOne func(dst []byte, query int) []byte) []byte {
	for i := range c.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendOne(dst, i)
	}
	return dst
}

// appendPrediction appends a row: the value of the only output, or an object of all outputs.
func (c *call) appendPrediction(dst []byte, query int) []byte {
	specs := c.Model().Signature.Outputs
	values, _ := c.Outputs(query) // Settled has seen that there are some
	if len(specs) == 1 {
		return appendValue(dst, &specs[0], values[0])
	}
	for i := range specs {
		dst = appendName(dst, &specs[i], i == 0)
		dst = appendValue(dst, &specs[i], values[i])
	}
	return append(dst, '}')
}

// appendColumns appends the columns: the tensor of the only output, or an object of all outputs.
func (c *call) appendColumns(dst []byte) []byte {
	specs := c.Model().Signature.Outputs
	for i := range specs {
		if len(specs) > 1 {
			dst = appendName(dst, &specs[i], i == 0)
		}
		if c.parsed.Batched {
			dst = append(dst, '[')
		}
		dst = c.appendQueries(dst, func(dst []byte, query int) []byte {
			values, _ := c.Outputs(query)
			return appendValue(dst, &specs[i], values[i])
		})
		if c.parsed.Batched {
			dst = append(dst, ']')
		}
	}
	if len(specs) > 1 {
		dst = append(dst, '}')
	}
	return dst
}

func appendName(dst []byte, spec *api.TensorSpec, first bool) []byte {
	c := byte(',')
	if first {
		c = '{'
	}
	return append(tensorjson.AppendString(append(dst, c), spec.Name), ':')
}

// appendValue appends one value. Bytes of an output named *_bytes are always in base64.
func appendValue(dst []byte, spec *api.TensorSpec, v api.Value) []byte {
	return tensorjson.Form{NonFinite: true, Text: !strings.HasSuffix(spec.Name, "_bytes")}.AppendValue(dst, *spec, v)
}
