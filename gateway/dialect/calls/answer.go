package calls

import (
	"fmt"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// outputs presents the outputs of a call to the codec.
type outputs struct{ c *call }

func (o outputs) Len() int { return o.c.Len() }

func (o outputs) At(i, s int) *api.Value {
	values, _ := o.c.Outputs(i) // Settled has seen that there are some
	return &values[s]
}

// Settled renders the block of outputs, or the error of the first query that has none.
func (c *call) Settled() api.Code {
	code := c.Code()
	if i := c.Failed(); i >= 0 {
		q := c.Query(i)
		c.fail(i, q.Code, q.Reason())
		return code
	}
	a := &c.Answer
	a.Reset(api.OK.HTTPStatus())
	a.ContentType = "application/octet-stream"
	size := c.outputs.Size(outputs{c})
	if size > maxAnswer {
		c.fail(0, api.TooLarge, "the outputs are too large")
		return api.TooLarge
	}
	if uint64(cap(a.Body)) < size {
		a.Body = make([]byte, size)
	}
	a.Body = a.Body[:size]
	if _, err := c.outputs.Write(a.Body, outputs{c}); err != nil {
		c.fail(0, api.Internal, fmt.Sprintf("write the block of outputs: %v", err))
		return api.Internal
	}
	return code
}

// maxAnswer is more than the outputs of a batch may have.
const maxAnswer = 1 << 30

// fail renders an error.
func (c *call) fail(i int, code api.Code, reason string) {
	if c.Len() > 1 {
		reason += " (input " + strconv.Itoa(i) + " of " + strconv.Itoa(c.Len()) + ")"
	}
	a := &c.Answer
	a.Reset(code.HTTPStatus())
	if a.Status == api.NoReplica.HTTPStatus() {
		a.RetryAfter(c.RetryAfter())
	}
	a.Body = Dialect{}.AppendError(a.Body, &api.Error{Code: code, Message: reason, RequestID: string(c.Identity.RequestID)})
}

// appendSignature appends what a caller must know to make and read blocks.
func appendSignature(dst []byte, sig *api.Signature) []byte {
	dst = append(dst, `{"digest":"`...)
	dst = strconv.AppendUint(dst, digestOf(sig), 16)
	dst = append(dst, `","inputs":`...)
	dst = appendSpecs(dst, sig.Inputs)
	dst = append(dst, `,"outputs":`...)
	return append(appendSpecs(dst, sig.Outputs), '}')
}

func appendSpecs(dst []byte, specs []api.TensorSpec) []byte {
	dst = append(dst, '[')
	for i := range specs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = tensorjson.AppendString(dst, specs[i].Name)
		dst = append(dst, `,"dtype":"`...)
		dst = append(dst, specs[i].DType.String()...)
		dst = append(dst, `","shape":[`...)
		for k, d := range specs[i].Shape {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, d, 10)
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, ']')
}

var _ dialect.Dialect = Dialect{}
