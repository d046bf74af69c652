package native

import (
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// feedback is the state of one feedback request.
type feedback struct {
	query.Request
	service *service
	parsed  tensorjson.Feedback
	labels  []api.Value
	given   query.Feedback // memory of learnItem
	answer  dialect.Answer
}

func (s *service) newFeedback() *feedback {
	f := &feedback{service: s}
	f.Init(s.path, f)
	return f
}

// Settled and Deliver are not called: feedback is not submitted.
func (f *feedback) Settled() api.Code { return api.OK }

// Deliver is not called.
func (f *feedback) Deliver() {}

// Released returns it to its pool.
func (f *feedback) Released() { f.service.feedbacks.Put(f) }

// feedback serves POST /{function}/feedback.
func (s *service) feedback(x dialect.Exchange) {
	f := s.feedbacks.Get().(*feedback)
	f.Open()
	defer f.Request.Abandon()
	if err := f.AskFeedback(x.Param("function")); err != nil {
		f.Drop()
		dialect.Fail(x, Dialect{}, err)
		return
	}
	if err := f.read(x.Body(), x.Header("Xebec-Context")); err != nil {
		f.Refuse()
		failBody(x, err)
		return
	}
	if err := f.learn(); err != nil {
		dialect.Fail(x, Dialect{}, err)
	} else {
		x.Answer(&f.answer)
	}
	f.Drop()
}

// read parses the request and validates all of it before any feedback is counted.
func (f *feedback) read(body, contextHeader []byte) error {
	sig := &f.Model().Signature
	if err := f.parsed.Parse(body, sig.Inputs, f, f.service.path.MaxBatch()); err != nil {
		return err
	}
	for len(f.labels) < len(sig.Outputs) {
		f.labels = append(f.labels, api.Value{})
	}
	for i := range f.parsed.Items {
		item := &f.parsed.Items[i]
		if len(item.Context) == 0 {
			item.Context = contextHeader
		}
		if len(item.Context) > query.MaxContextBytes {
			return api.Errorf(api.InvalidArgument, "the context has %d bytes: expected at most %d", len(item.Context), query.MaxContextBytes)
		}
		if item.Has&tensorjson.FeedbackLabel != 0 {
			if err := f.parsed.ParseLabel(i, sig.Outputs, f.Function().Label-1, f.labels[:len(sig.Outputs)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// learn passes each feedback to the path and renders the outcomes. A request with a single feedback that is not counted
// is an error.
func (f *feedback) learn() error {
	a, items := &f.answer, f.parsed.Items
	a.Reset(200)
	if f.parsed.Batch {
		a.Body = append(a.Body, `{"feedback_results":[`...)
	}
	for i := range items {
		outcome, err := f.learnItem(i)
		switch {
		case err != nil:
			return err
		case f.parsed.Batch && i > 0:
			a.Body = append(a.Body, ',')
		case !f.parsed.Batch && outcome.Code() != api.OK:
			return api.Errorf(outcome.Code(), "%s", outcome.Reason())
		case !f.parsed.Batch && outcome == query.Pending:
			a.Status = 202
		}
		a.Body = appendOutcome(a.Body, &items[i], outcome)
	}
	if f.parsed.Batch {
		a.Body = append(a.Body, `]}`...)
	}
	return nil
}

// learnItem passes feedback i to the path.
func (f *feedback) learnItem(i int) (query.Outcome, error) {
	item, given := &f.parsed.Items[i], &f.given
	*given = query.Feedback{QueryID: item.QueryID, Verdict: query.VerdictLoss, Loss: item.Loss, Context: item.Context}
	if item.Has&tensorjson.FeedbackInput != 0 {
		given.Of = f.Query(item.Input)
	}
	switch {
	case item.Has&tensorjson.FeedbackLabel != 0:
		outputs := f.Model().Signature.Outputs
		labels := f.labels[:len(outputs)]
		at := f.Function().Label
		if err := f.parsed.ParseLabel(i, outputs, at-1, labels); err != nil {
			return 0, err
		}
		if at > 0 {
			labels = labels[at-1 : at]
		}
		given.Verdict, given.Label, given.LabelText = query.VerdictLabel, labels, item.Label
	case item.Has&tensorjson.FeedbackCorrect != 0:
		if given.Verdict = query.VerdictCorrect; !item.Correct {
			given.Loss = 1
		}
	}
	return f.Learn(given), nil
}

func appendOutcome(out []byte, item *tensorjson.FeedbackItem, outcome query.Outcome) []byte {
	out = append(out, '{')
	if item.Has&tensorjson.FeedbackQueryID != 0 {
		out = append(out, `"query_id":`...)
		out = strconv.AppendUint(out, item.QueryID, 10)
		out = append(out, ',')
	}
	out = append(out, `"status":"`...)
	out = append(out, outcome.String()...)
	out = append(out, '"')
	if reason := outcome.Reason(); reason != "" {
		out = append(out, `,"cause":`...)
		out = tensorjson.AppendString(out, reason)
	}
	return append(out, '}')
}
