package native

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// answerUnlinked answers a request for a function without models, as Clipper does for an application without a link: with the default,
// for as many queries as the request has. There is no signature by which to judge the inputs.
func (s *service) answerUnlinked(x dialect.Exchange, u *query.Unlinked) {
	n, batch, err := countInputs(x)
	if err != nil {
		failBody(x, err)
		return
	}
	var a dialect.Answer
	a.Reset(200)
	if batch {
		a.Body = append(a.Body, `{"batch_predictions":[`...)
	}
	err = s.path.AnswerUnlinked(u, n, func(id uint64) {
		if bytes.HasSuffix(a.Body, []byte("}")) {
			a.Body = append(a.Body, ',')
		}
		a.Body = append(a.Body, `{"query_id":`...)
		a.Body = strconv.AppendUint(a.Body, id, 10)
		a.Body = append(a.Body, `,"output":`...)
		a.Body = append(a.Body, u.Default...)
		a.Body = append(a.Body, `,"default":true,"default_explanation":"`...)
		a.Body = append(a.Body, api.NoReplica.Reason()...)
		a.Body = append(a.Body, `","confidence":0,"models":[]}`...)
	})
	if err != nil {
		dialect.Fail(x, Dialect{}, err)
		return
	}
	if batch {
		a.Body = append(a.Body, `]}`...)
	}
	x.Answer(&a)
}

// countInputs says how many queries a request has, without a look at what is in them.
func countInputs(x dialect.Exchange) (n int, batch bool, err error) {
	if isRaw(x.Header("Content-Type")) {
		return 1, false, nil
	}
	var body struct {
		Input json.RawMessage   `json:"input"`
		Batch []json.RawMessage `json:"input_batch"`
	}
	if err := json.Unmarshal(x.Body(), &body); err != nil {
		return 0, false, api.Errorf(api.InvalidArgument, "the body: %w", err)
	}
	switch {
	case body.Input != nil && body.Batch == nil:
		return 1, false, nil
	case body.Input == nil && len(body.Batch) > 0:
		return len(body.Batch), true, nil
	}
	return 0, false, api.Errorf(api.InvalidArgument, `the body: expected either "input", or "input_batch" with at least one input`)
}
