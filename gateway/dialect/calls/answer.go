package calls

import (
	"fmt"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// rendering is what a call keeps for its answers.
type rendering struct {
	json     tensorjson.Reader
	defaults []api.Value // of the function; empty: not read
}

// outputs presents the outputs of a call to the codec.
type outputs struct{ c *call }

func (o outputs) Len() int { return o.c.Len() }

func (o outputs) At(i, s int) *api.Value {
	if q := o.c.Query(i); q.Code == api.OK {
		return &q.Outputs[s]
	}
	return &o.c.defaults[s]
}

// Settled renders the block of outputs, or the error of the first query that has none.
func (c *call) Settled() api.Code {
	code := c.Code()
	c.defaults = c.defaults[:0]
	for i := range c.Len() {
		q := c.Query(i)
		if q.Code == api.OK || len(c.defaults) > 0 && q.Code != api.InvalidInput || c.readDefault(q) {
			continue
		}
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

// readDefault makes the function's default the outputs of a query that has none, and reports whether there is one. A caller whose input is wrong
// is told so.
func (c *call) readDefault(q *query.Query) bool {
	fn := c.Function()
	if fn == nil || fn.Default == nil || q.Code == api.InvalidInput {
		return false
	}
	specs := c.Model().Signature.Outputs
	values := make([]api.Value, len(specs))
	c.json.Reset(fn.Default)
	var err error
	if len(specs) == 1 {
		err = c.json.Value(&values[0], &specs[0])
	} else {
		err = c.json.Members(func(name []byte) error {
			if i := tensorjson.Find(specs, name, 0); i >= 0 {
				return c.json.Value(&values[i], &specs[i])
			}
			return c.json.Skip()
		})
	}
	if err != nil {
		return false // judged when the function was declared
	}
	c.defaults = values
	return true
}

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
