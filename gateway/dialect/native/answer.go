package native

import (
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Settled renders Clipper's answer, extended by confidence and models. A batch in which at least one query has an output
// is an answer. A request without any output has the status of its code.
func (c *call) Settled() api.Code {
	if s := c.Streamed(); s != nil {
		return s.Settled()
	}
	return c.settled()
}

func (c *call) settled() api.Code {
	n, code := c.Len(), c.Code()
	if c.Refused() {
		return code
	}
	if c.raw != "" && c.renderRaw() {
		return code
	}
	failed := 0
	for i := range n {
		if q := c.Query(i); q.Code != api.OK && !c.Defaults(q) {
			failed++
		}
	}
	status := 200
	if failed == n {
		status = code.HTTPStatus()
	}
	a := &c.Answer
	a.Reset(status)
	if status == 503 {
		a.RetryAfter(c.RetryAfter())
	}
	out := a.Body
	if c.parsed.Batch {
		out = append(out, `{"batch_predictions":[`...)
	}
	for i := range n {
		if i > 0 {
			out = append(out, ',')
		}
		out = c.appendPrediction(out, c.Query(i))
	}
	if c.parsed.Batch {
		out = append(out, `]}`...)
	}
	a.Body = out
	return code
}

func (c *call) appendPrediction(out []byte, q *query.Query) []byte {
	fn := c.Function()
	switch {
	case q.Code == api.OK:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, q.ID, 10)
		out = append(out, `,"output":`...)
		out = c.appendOutputs(out, q.Outputs)
		out = append(out, `,"default":false,"confidence":`...)
		out = appendConfidence(out, q.Confidence)
		return append(c.appendParts(out, q), '}')
	case c.Defaults(q):
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, q.ID, 10)
		out = append(out, `,"output":`...)
		out = append(out, fn.Default...)
		out = append(out, `,"default":true,"default_explanation":"`...)
		out = c.AppendExplanation(out, q)
		if q.Code == api.LowConfidence {
			out = append(out, `","confidence":`...)
			out = appendConfidence(out, q.Confidence)
		} else {
			out = append(out, `","confidence":0`...)
		}
		return append(c.appendParts(out, q), '}')
	case c.parsed.Batch:
		out = append(out, `{"query_id":`...)
		out = strconv.AppendUint(out, q.ID, 10)
		out = append(out, ',')
	default:
		out = append(out, '{')
	}
	out = append(out, `"error":"`+queryError+`","cause":`...)
	out = tensorjson.AppendString(out, q.Reason())
	out = append(out, `,"code":"`...)
	out = append(out, q.Code.String()...)
	out = append(out, '"')
	if id := c.Identity.RequestID; len(id) > 0 && !c.parsed.Batch {
		out = append(out, `,"request_id":`...)
		out = tensorjson.AppendString(out, id)
	}
	return append(out, '}')
}

// appendConfidence writes 1 if no confidence was computed: one model agrees with itself.
func appendConfidence(out []byte, confidence float64) []byte {
	if confidence >= 0 && confidence <= 1 {
		return strconv.AppendFloat(out, confidence, 'g', -1, 64)
	}
	return append(out, '1')
}

// appendParts names the models that took part, and those that did not.
func (c *call) appendParts(out []byte, q *query.Query) []byte {
	parts := q.Parts()
	out = c.appendModels(out, `,"models":[`, parts.Answered)
	if parts.Late != 0 {
		out = c.appendModels(out, `,"late":[`, parts.Late)
	}
	if parts.Failed != 0 {
		out = c.appendModels(out, `,"failed":[`, parts.Failed)
	}
	if parts.Dropped != 0 {
		out = c.appendModels(out, `,"dropped":[`, parts.Dropped)
	}
	return out
}

// appendModels writes the name@version of each model, which has no characters that JSON escapes.
func (c *call) appendModels(out []byte, begin string, set selection.Set) []byte {
	out = append(out, begin...)
	for rest := set; rest != 0; rest &= rest - 1 {
		if rest != set {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, c.Candidate(rest.First()).Ref()...)
		out = append(out, '"')
	}
	return append(out, ']')
}

// appendOutputs writes a single output as itself, and several as an object.
func (c *call) appendOutputs(out []byte, values []api.Value) []byte {
	specs := c.Model().Signature.Outputs
	if len(specs) == 1 {
		return tensorjson.AppendValue(out, specs[0], values[0])
	}
	out = append(out, '{')
	for i := range specs {
		if i > 0 {
			out = append(out, ',')
		}
		out = tensorjson.AppendString(out, specs[i].Name)
		out = append(out, ':')
		out = tensorjson.AppendValue(out, specs[i], values[i])
	}
	return append(out, '}')
}
