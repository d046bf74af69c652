package grpc

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/gateway/dialect/tfserving"
	"github.com/xebec-serving/xebec/gateway/grpc/tfwire"
	"github.com/xebec-serving/xebec/gateway/query"
)

// prediction serves tensorflow.serving.PredictionService.
type prediction struct {
	pb.UnimplementedPredictionServiceServer
	server *Server
}

// servingCall is a call of Predict, Classify or Regress. The message is an object of the library: the protocol has maps, and its tensors have several forms.
type servingCall struct {
	rpc
	parsed tfwire.Request
	render func() error // makes the answer, when all queries have outputs
	memory func() int   // about how much it takes
	facts  metadata.MD  // of the answer, as header metadata
}

func (s *Server) newServingCall() *servingCall {
	c := &servingCall{}
	c.init(s, c)
	return c
}

// Released returns the call to its pool.
func (c *servingCall) Released() {
	c.render, c.memory, c.facts = nil, nil, nil
	c.reset()
	c.server.servings.Put(c)
}

// addressOf is what a model_spec addresses.
func addressOf(spec *pb.ModelSpec) (name, version string, err error) {
	if spec.GetName() == "" {
		return "", "", api.Errorf(api.InvalidArgument, "model_spec.name is missing: expected a function or a model")
	}
	if s := spec.GetSignatureName(); s != "" && s != tfserving.Signature {
		return "", "", api.Errorf(api.InvalidArgument, "model_spec.signature_name: Serving signature name: %.60q not found in signature def: expected %q, or none", s, tfserving.Signature)
	}
	switch v := spec.GetVersionChoice().(type) {
	case *pb.ModelSpec_Version:
		version = strconv.FormatInt(v.Version.GetValue(), 10)
	case *pb.ModelSpec_VersionLabel:
		version = v.VersionLabel
	}
	return spec.Name, version, nil
}

// specOf is the model_spec of an answer: functions have no version. One whose name is no number is a label.
func specOf(name string, fn *query.Function, m *query.Model) *pb.ModelSpec {
	spec := &pb.ModelSpec{Name: name, SignatureName: tfserving.Signature}
	if fn != nil {
		return spec
	}
	spec.Name = m.ID.Name
	if n, ok := versionNumber(m.ID.Version); ok {
		spec.VersionChoice = &pb.ModelSpec_Version{Version: wrapperspb.Int64(n)}
	} else {
		spec.VersionChoice = &pb.ModelSpec_VersionLabel{VersionLabel: m.ID.Version}
	}
	return spec
}

// versionNumber is the number of a version that clients can ask for by it.
func versionNumber(version string) (int64, bool) {
	n, err := strconv.ParseInt(version, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == version
}

// serving asks the queries that read finds in a message. render makes the answer, of about as many bytes as memory says. serving returns the model_spec of the answer, and sets
// what the answer of a function says beside its outputs as header metadata.
func (s *Server) serving(ctx context.Context, spec *pb.ModelSpec, message proto.Message, read func(c *servingCall, b tfwire.Bounds) error, render func(c *servingCall) error, memory func(c *servingCall) int) (*pb.ModelSpec, error) {
	name, version, err := addressOf(spec)
	if err != nil {
		return nil, fail(ctx, failed(err), nil)
	}
	c := s.servings.Get().(*servingCall)
	if err := c.begin(ctx, name, version, message, read); err != nil {
		return nil, err
	}
	c.render, c.memory = func() error { return render(c) }, func() int { return memory(c) }
	answered := specOf(name, c.Function(), c.Model())
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	if c.failure != nil {
		err = fail(ctx, c.failure, &c.Identity)
	} else if len(c.facts) > 0 {
		err = grpc.SetHeader(ctx, c.facts)
	}
	c.Delivered()
	c.Release()
	return answered, err
}

// begin reads the message and prepares the request. After an error, which is a status, the call is not to be used.
func (c *servingCall) begin(ctx context.Context, name, version string, message proto.Message, read func(c *servingCall, b tfwire.Bounds) error) error {
	c.Open()
	defer c.Abandon()
	if err := c.AskNamed(name, version); err != nil {
		err = fail(ctx, failed(tfserving.NotFound(err, name, version)), nil)
		c.Drop()
		return err
	}
	err := c.read(ctx, message, read)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = status.FromContextError(err).Err()
	} else {
		err = fail(ctx, failed(err), &c.Identity)
	}
	c.Refuse()
	return err
}

func (c *servingCall) read(ctx context.Context, message proto.Message, read func(c *servingCall, b tfwire.Bounds) error) error {
	meta := metaOf(ctx)
	meta.identify(&c.Identity)
	if m := c.Model(); m.Streams {
		return api.Errorf(api.Unsupported, "%s answers in streams (it is decoupled), which this protocol has not: call ModelStreamInfer of inference.GRPCInferenceService", m.ID)
	}
	if err := c.reserve(proto.Size(message)); err != nil {
		return err
	}
	if err := read(c, tfwire.Bounds{Queries: c.server.cfg.Path.MaxBatch(), Bytes: c.server.cfg.Limits.MessageBytes, Reserve: c.reserve}); err != nil {
		return err
	}
	c.options.Begin(c.Function() != nil)
	return c.prepare(ctx, meta, 0)
}

// Settled renders the answer. The queries of a request share one message, so if one query has no outputs the request fails.
func (c *servingCall) Settled() api.Code {
	code := c.Code()
	if i := c.Failed(); i >= 0 {
		q := c.Query(i)
		return c.failWith(q.Code, q.Reason())
	}
	if !c.room(c.memory()) {
		return code
	}
	if err := c.render(); err != nil {
		c.failure = failed(err)
		return c.failure.code
	}
	c.Answer.Reset(200)
	c.FactFields()
	for _, f := range c.Answer.Fields {
		if c.facts == nil {
			c.facts = metadata.MD{}
		}
		c.facts[strings.ToLower(f.Name)] = []string{string(f.Value)}
	}
	return code
}

// room of all outputs, for [servingCall.memory].
func (c *servingCall) outputRoom() int {
	n, specs := 0, c.Model().Signature.Outputs
	for i := range c.Len() {
		outputs, _ := c.Outputs(i) // Settled has seen that there are some
		for k := range outputs {
			n += tfwire.Room(&specs[k], &outputs[k])
		}
	}
	return n
}

func (p *prediction) Predict(ctx context.Context, r *pb.PredictRequest) (*pb.PredictResponse, error) {
	a := &pb.PredictResponse{}
	var chosen []int
	read := func(c *servingCall, b tfwire.Bounds) (err error) {
		sig := &c.Model().Signature
		if chosen, err = tfwire.Filter(r.GetOutputFilter(), sig.Outputs); err != nil {
			return err
		}
		return c.parsed.Tensors(r.GetInputs(), sig.Inputs, c, b)
	}
	render := func(c *servingCall) error {
		specs := c.Model().Signature.Outputs
		a.Outputs = make(map[string]*pb.TensorProto, len(chosen))
		for _, k := range chosen {
			t, err := tfwire.Tensor(&specs[k], c.Len(), c.parsed.Batched, func(q int) *api.Value {
				outputs, _ := c.Outputs(q)
				return &outputs[k]
			})
			if err != nil {
				return err
			}
			a.Outputs[specs[k].Name] = t
		}
		return nil
	}
	spec, err := p.server.serving(ctx, r.GetModelSpec(), r, read, render, (*servingCall).outputRoom)
	if err != nil {
		return nil, err
	}
	a.ModelSpec = spec
	return a, nil
}

// examples asks the examples of a request to classify or regress, and calls each with the outputs of each query.
func (p *prediction) examples(ctx context.Context, spec *pb.ModelSpec, r proto.Message, input *pb.Input, find func([]api.TensorSpec) (tfserving.Reading, error),
	each func(c *servingCall, how tfserving.Reading, outputs []api.Value, confidence float64) error) (*pb.ModelSpec, error) {
	var how tfserving.Reading
	return p.server.serving(ctx, spec, r, func(c *servingCall, b tfwire.Bounds) (err error) {
		sig := &c.Model().Signature
		if how, err = find(sig.Outputs); err != nil {
			return err
		}
		return c.parsed.Examples(input, sig.Inputs, c, b)
	}, func(c *servingCall) error {
		for i := range c.Len() {
			outputs, _ := c.Outputs(i) // Settled has seen that there are some
			if err := each(c, how, outputs, c.Query(i).Confidence); err != nil {
				return err
			}
		}
		return nil
	}, func(c *servingCall) int { return classBytes * c.outputRoom() / 4 })
}

// classBytes is about how much memory a class takes, beside its label; its score takes 4 bytes or fewer in the output.
const classBytes = 96

func (p *prediction) Classify(ctx context.Context, r *pb.ClassificationRequest) (*pb.ClassificationResponse, error) {
	a := &pb.ClassificationResponse{Result: &pb.ClassificationResult{}}
	spec, err := p.examples(ctx, r.GetModelSpec(), r, r.GetInput(), tfserving.ReadClasses, func(c *servingCall, how tfserving.Reading, outputs []api.Value, confidence float64) error {
		specs, classes := c.Model().Signature.Outputs, &pb.Classifications{}
		a.Result.Classifications = append(a.Result.Classifications, classes)
		return how.Classes(specs, outputs, func(label, score []byte) {
			class := &pb.Class{Label: strings.ToValidUTF8(string(label), "\uFFFD")}
			if score == nil {
				class.Score = float32(tfserving.Score(confidence))
			} else {
				class.Score = float32(tfwire.Number(specs[how.Scores].DType, score))
			}
			classes.Classes = append(classes.Classes, class)
		})
	})
	if err != nil {
		return nil, err
	}
	a.ModelSpec = spec
	return a, nil
}

func (p *prediction) Regress(ctx context.Context, r *pb.RegressionRequest) (*pb.RegressionResponse, error) {
	a := &pb.RegressionResponse{Result: &pb.RegressionResult{}}
	spec, err := p.examples(ctx, r.GetModelSpec(), r, r.GetInput(), tfserving.ReadNumber, func(c *servingCall, how tfserving.Reading, outputs []api.Value, _ float64) error {
		value := tfwire.Number(c.Model().Signature.Outputs[how.Scores].DType, outputs[how.Scores].Data)
		a.Result.Regressions = append(a.Result.Regressions, &pb.Regression{Value: float32(value)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.ModelSpec = spec
	return a, nil
}

func (p *prediction) MultiInference(ctx context.Context, _ *pb.MultiInferenceRequest) (*pb.MultiInferenceResponse, error) {
	return nil, unsupported(ctx, "MultiInference is not supported: it asks several signatures of a model at once, and a model has one, %q; call Predict, Classify or Regress", tfserving.Signature)
}
