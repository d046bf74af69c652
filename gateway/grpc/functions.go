package grpc

import (
	"context"
	"errors"
	"math/bits"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/xebecpb"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// functions serves xebec.v1.Functions.
type functions struct {
	pb.UnimplementedFunctionsServer
	server *Server
}

// askCall is a call of Predict, PredictBatch or PredictStream.
type askCall struct {
	rpc
	answer []*pb.Prediction
}

func (s *Server) newAskCall() *askCall {
	c := &askCall{}
	c.init(s, c)
	return c
}

// Released returns the call to its pool.
func (c *askCall) Released() {
	c.answer = nil
	c.reset()
	c.server.asks.Put(c)
}

// begin reads the queries and prepares the request. After an error, which is a status, the call is not to be used.
func (s *Server) begin(ctx context.Context, function string, size int, o *pb.Options, queries []*pb.Query, one []*pb.Tensor, streams bool) (*askCall, error) {
	c := s.asks.Get().(*askCall)
	c.Open()
	defer c.Abandon()
	ask := c.AskFunction
	if strings.Contains(function, "@") { // a version of a model
		ask = func(name string) error { return c.AskNamed(name, "") }
	}
	if err := ask(function); err != nil {
		err = fail(ctx, failed(err), nil)
		c.Drop()
		return nil, err
	}
	err := c.read(ctx, size, o, queries, one, streams)
	if err == nil {
		return c, nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = status.FromContextError(err).Err()
	} else {
		err = fail(ctx, failed(err), &c.Identity)
	}
	c.Refuse()
	return nil, err
}

func (c *askCall) read(ctx context.Context, size int, o *pb.Options, queries []*pb.Query, one []*pb.Tensor, streams bool) error {
	meta := metaOf(ctx)
	meta.identify(&c.Identity)
	m := c.Model()
	if m.Streams && !streams {
		return api.Errorf(api.InvalidArgument, "%s answers in streams: call PredictStream", m.ID)
	}
	if err := c.reserve(size); err != nil {
		return err
	}
	if queries == nil {
		if err := c.query(&pb.Query{Inputs: one}, "inputs"); err != nil {
			return err
		}
	}
	for i, q := range queries {
		if err := c.query(q, "queries["+itoa(i)+"].inputs"); err != nil {
			return err
		}
	}
	if c.Len() == 0 {
		return api.Errorf(api.InvalidArgument, "queries: expected at least one")
	}
	c.options.Begin(c.Function() != nil)
	if err := c.setOptions(o); err != nil {
		return err
	}
	return c.prepare(ctx, meta, 0)
}

func (c *askCall) query(q *pb.Query, where string) error {
	values, err := c.Next()
	if err != nil {
		return err
	}
	return readTensors(values, c.Model().Signature.Inputs, q.GetInputs(), where)
}

// setOptions offers the options to those of metadata, which take precedence.
func (c *askCall) setOptions(o *pb.Options) error {
	if o == nil {
		return nil
	}
	if c.Function() == nil {
		const only = "options.%s: expected none: %s is the version of a model, and only functions have this option"
		if o.MinConfidence != nil {
			return api.Errorf(api.InvalidArgument, only, "min_confidence", c.Model().ID)
		}
		if len(o.Models) > 0 {
			return api.Errorf(api.InvalidArgument, only, "models", c.Model().ID)
		}
	}
	text := func(name, v string) (err error) {
		if v != "" {
			_, err = c.options.Text([]byte(name), []byte(v))
		}
		return err
	}
	number := func(name string, v float64, set bool) (err error) {
		if set {
			_, err = c.options.Number([]byte(name), v)
		}
		return err
	}
	models := ""
	for i, m := range o.Models {
		if i > 0 {
			models += ","
		}
		models += m
	}
	err := errors.Join(
		text("context", o.Context), text("salt", o.Salt), text("models", models),
		number("slo_ms", o.SloMs, o.SloMs != 0), number("ttl_ms", o.TtlMs, o.TtlMs != 0), number("min_confidence", o.GetMinConfidence(), o.MinConfidence != nil),
	)
	if err != nil {
		return err
	}
	if len(o.Parameters.GetFields()) > 0 {
		object, err := protojson.Marshal(o.Parameters)
		if err != nil {
			return api.Errorf(api.InvalidArgument, "parameters: %v", err)
		}
		c.options.Parameters = append(c.options.Parameters[:0], object...)
	}
	return nil
}

// Settled renders the answers.
func (c *askCall) Settled() api.Code {
	n, code := c.Len(), c.Code()
	size := 0
	for i := range n {
		if outputs, ok := c.Outputs(i); ok {
			for k := range outputs {
				size += len(outputs[k].Data)
			}
		}
	}
	if !c.room(size) {
		return code
	}
	answer, bad := make([]*pb.Prediction, n), 0
	for i := range n {
		if answer[i] = c.prediction(i); answer[i].Error != nil {
			bad++
		}
	}
	if bad == n {
		return c.failWith(code, c.Reason())
	}
	c.answer = answer
	return code
}

// Deliver wakes the handler.
func (c *askCall) Deliver() {
	if c.flow != nil {
		c.Query(0).FreeOutputs()
	}
	c.rpc.Deliver()
}

// prediction renders the answer to one query.
func (c *askCall) prediction(i int) *pb.Prediction {
	q := c.Query(i)
	p := &pb.Prediction{QueryId: q.ID}
	outputs, ok := c.Outputs(i)
	if !ok {
		p.Error = &pb.Error{Code: q.Code.String(), Message: q.Reason()}
		return p
	}
	p.Outputs = tensorsOf(c.Model().Signature.Outputs, outputs)
	p.Confidence = 1
	if q.Confidence >= 0 && q.Confidence <= 1 {
		p.Confidence = q.Confidence
	}
	if q.Code != api.OK {
		p.Default, p.DefaultExplanation = true, string(c.AppendExplanation(nil, q))
		if q.Code != api.LowConfidence {
			p.Confidence = 0
		}
	}
	parts := q.Parts()
	p.Models, p.Late = c.refs(uint64(parts.Answered)), c.refs(uint64(parts.Late))
	p.Failed, p.Dropped = c.refs(uint64(parts.Failed)), c.refs(uint64(parts.Dropped))
	return p
}

func (c *askCall) refs(set uint64) (list []string) {
	for ; set != 0; set &= set - 1 {
		list = append(list, c.Candidate(bits.TrailingZeros64(set)).Ref())
	}
	return list
}

// finish takes the answer of a call that was answered, and releases it.
func (c *askCall) finish(ctx context.Context) (answer []*pb.Prediction, err error) {
	if answer = c.answer; c.failure != nil {
		err = fail(ctx, c.failure, &c.Identity)
	}
	c.Delivered()
	c.Release()
	return answer, err
}

func (f *functions) Predict(ctx context.Context, r *pb.PredictRequest) (*pb.Prediction, error) {
	c, err := f.server.begin(ctx, r.Function, sizeOf(r.Inputs), r.Options, nil, r.Inputs, false)
	if err != nil {
		return nil, err
	}
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	answer, err := c.finish(ctx)
	if err != nil {
		return nil, err
	}
	return answer[0], nil
}

func (f *functions) PredictBatch(ctx context.Context, r *pb.PredictBatchRequest) (*pb.PredictBatchResponse, error) {
	size := 0
	for _, q := range r.Queries {
		size += sizeOf(q.GetInputs())
	}
	queries := r.Queries
	if queries == nil {
		queries = []*pb.Query{}
	}
	c, err := f.server.begin(ctx, r.Function, size, r.Options, queries, nil, false)
	if err != nil {
		return nil, err
	}
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	answer, err := c.finish(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.PredictBatchResponse{Predictions: answer}, nil
}

func (f *functions) PredictStream(r *pb.PredictRequest, stream grpc.ServerStreamingServer[pb.Prediction]) error {
	ctx := stream.Context()
	c, err := f.server.begin(ctx, r.Function, sizeOf(r.Inputs), r.Options, nil, r.Inputs, true)
	if err != nil {
		return err
	}
	return c.stream(ctx, stream)
}

// renderStreamed renders one further output of a stream. It runs on the goroutine that reads from the worker, under the lock of the flow.
func (c *askCall) renderStreamed(outputs []api.Value, confidence float64) (message any, bytes int) {
	p := &pb.Prediction{QueryId: c.Query(0).ID, Outputs: tensorsOf(c.Model().Signature.Outputs, outputs), Confidence: 1}
	if confidence >= 0 && confidence <= 1 {
		p.Confidence = confidence
	}
	return p, sizeOf(p.Outputs)
}

// stream sends the outputs of a query as they come.
func (c *askCall) stream(ctx context.Context, to grpc.ServerStreamingServer[pb.Prediction]) error {
	var mine *flow
	if c.Model().Streams {
		mine = newFlow(c.renderStreamed)
		c.flow = mine
		c.SetStream(mine)
	}
	if err := c.ask(ctx); err != nil {
		return err
	}
	if c.failure != nil {
		_, err := c.finish(ctx)
		return err
	}
	defer c.Release()
	c.Delivered()
	if err := to.Send(c.answer[0]); err != nil || mine == nil || !c.Query(0).Streams() {
		return err
	}
	leave := func(err error) error {
		mine.leave()
		c.Cancel()
		return err
	}
	for mine.begin(); ; {
		parts, ended, broken, ok := mine.next(ctx.Done())
		if !ok {
			return leave(status.FromContextError(ctx.Err()).Err())
		}
		for _, part := range parts {
			if err := to.SendMsg(part); err != nil {
				return leave(err)
			}
		}
		switch {
		case broken != nil:
			return fail(ctx, broken, &c.Identity)
		case ended:
			return nil
		}
	}
}

// feedbackCall is a call of Feedback. Settled, Deliver and Released are not used for answers: feedback is not submitted.
type feedbackCall struct{ query.Request }

func (*feedbackCall) Settled() api.Code { return api.OK }
func (*feedbackCall) Deliver()          {}
func (*feedbackCall) Released()         {}

func (f *functions) Feedback(ctx context.Context, r *pb.FeedbackRequest) (*pb.FeedbackResponse, error) {
	c := &feedbackCall{}
	c.Init(f.server.cfg.Path, c)
	c.Open()
	defer c.Abandon()
	if err := c.AskFeedback(r.Function); err != nil {
		c.Drop()
		return nil, fail(ctx, failed(err), nil)
	}
	given, err := c.read(ctx, r)
	if err != nil {
		c.Refuse()
		return nil, fail(ctx, failed(err), nil)
	}
	outcome := c.Learn(given)
	c.Drop()
	if code := outcome.Code(); code != api.OK {
		return nil, fail(ctx, &failure{code: code, message: outcome.Reason()}, nil)
	}
	return &pb.FeedbackResponse{Status: outcome.String(), Cause: outcome.Reason()}, nil
}

func (c *feedbackCall) read(ctx context.Context, r *pb.FeedbackRequest) (*query.Feedback, error) {
	given := &query.Feedback{QueryID: r.GetQueryId(), Verdict: query.VerdictLoss, Context: []byte(r.Context)}
	if m := metaOf(ctx); len(r.Context) == 0 && m != nil {
		given.Context = m.Header("Xebec-Context")
	}
	if len(given.Context) > query.MaxContextBytes {
		return nil, api.Errorf(api.InvalidArgument, "the context has %d bytes: expected at most %d", len(given.Context), query.MaxContextBytes)
	}
	switch about := r.About.(type) {
	case nil:
		return nil, api.Errorf(api.InvalidArgument, "about: expected query_id or input")
	case *pb.FeedbackRequest_Input:
		values, err := c.Next()
		if err == nil {
			err = readTensors(values, c.Model().Signature.Inputs, about.Input.GetInputs(), "input.inputs")
		}
		if err != nil {
			return nil, err
		}
		given.Of = c.Query(0)
	}
	switch v := r.Verdict.(type) {
	case nil:
		return nil, api.Errorf(api.InvalidArgument, "verdict: expected label, correct or loss")
	case *pb.FeedbackRequest_Correct:
		if given.Verdict = query.VerdictCorrect; !v.Correct {
			given.Loss = 1
		}
	case *pb.FeedbackRequest_Loss:
		if given.Loss = v.Loss; !(v.Loss >= 0 && v.Loss <= 1) {
			return nil, api.Errorf(api.InvalidArgument, "loss: expected a number from 0 to 1, found %v", v.Loss)
		}
	case *pb.FeedbackRequest_Label:
		if err := c.label(given, v.Label); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// label reads the right outputs: all, or the one that the function's label names.
func (c *feedbackCall) label(given *query.Feedback, l *pb.Label) error {
	specs := c.Model().Signature.Outputs
	if at := c.Function().Label; at > 0 {
		specs = specs[at-1 : at]
	}
	values := make([]api.Value, len(specs))
	if err := readTensors(values, specs, l.GetOutputs(), "label.outputs"); err != nil {
		return err
	}
	given.Verdict, given.Label = query.VerdictLabel, values
	if len(specs) == 1 {
		given.LabelText = tensorjson.AppendValue(nil, specs[0], values[0])
		return nil
	}
	text := []byte{'{'}
	for i := range specs {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(tensorjson.AppendString(text, specs[i].Name), ':')
		text = tensorjson.AppendValue(text, specs[i], values[i])
	}
	given.LabelText = append(text, '}')
	return nil
}
