package oip

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Triton's extension for generating models: the inputs of one query are members of the request, and its outputs those of the answer.

// generation is the state of one generate or generate_stream request.
type generation struct {
	dialect.Call
	service *service
	request GenerateRequest
	id      []byte
}

// GenerateRequest reads generate requests. One is reused for many bodies by one goroutine at a time.
type GenerateRequest struct {
	// Function says that the request addresses a function. It is set before Parse.
	Function bool
	// ID is the request's "id", which aliases the body; nil: it has none.
	ID []byte
	// Options are those of the request. Its Parameters are the members that are neither inputs nor options.
	Options dialect.Options

	r    tensorjson.Reader
	seen tensorjson.Seen
}

// Parse reads the body of a request for a model of that signature into the inputs of one query.
func (q *GenerateRequest) Parse(body []byte, sig *api.Signature, inputs []api.Value) error {
	if len(sig.Inputs) > tensorjson.MaxInputs {
		return api.Errorf(api.Internal, "the signature has more than %d inputs", tensorjson.MaxInputs)
	}
	q.ID, q.seen = nil, tensorjson.Seen{}
	q.Options.Begin(q.Function)
	r := &q.r
	r.Reset(body)
	err := r.Members(func(name []byte) (err error) {
		if i := tensorjson.Find(sig.Inputs, name, 0); i >= 0 {
			if q.seen.Has(i) {
				return r.Errorf("the member %q is there twice", sig.Inputs[i].Name)
			}
			q.seen.Add(i)
			r.Push(sig.Inputs[i].Name)
			err = readInput(r, &inputs[i], &sig.Inputs[i])
			r.Pop()
			return err
		}
		switch string(name) {
		case "id":
			if !r.Null() {
				q.ID, err = r.String()
			}
			return err
		case "stream": // the path says it
			_, err = r.Bool()
			return err
		case "parameters":
			return parameters(r, q.parameter)
		}
		return q.parameter(name)
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return err
	}
	for i := range sig.Inputs {
		if !q.seen.Has(i) {
			return r.Errorf("the member %q (%s) is missing", sig.Inputs[i].Name, sig.Inputs[i].String())
		}
	}
	return nil
}

// parameter reads a member that is no input: an option, or for the model.
func (q *GenerateRequest) parameter(name []byte) error {
	r := &q.r
	if taken, err := q.Options.Member(name, r); taken {
		return err
	}
	r.Peek()
	start := r.Pos()
	if err := r.Skip(); err != nil {
		return err
	}
	q.Options.Pass(name, r.Text(start))
	return nil
}

// readInput reads a value in the form of its shape. A list of one element may be the element itself.
func readInput(r *tensorjson.Reader, v *api.Value, spec *api.TensorSpec) error {
	if len(spec.Shape) != 1 || spec.Shape[0] > 1 || spec.Shape[0] == 0 || r.Peek() == '[' {
		return r.Value(v, spec)
	}
	one := api.TensorSpec{Name: spec.Name, DType: spec.DType}
	if err := r.Value(v, &one); err != nil {
		return err
	}
	if spec.DType.Variable() {
		v.Data = append(v.Data, 0, 0, 0, 0)
		copy(v.Data[4:], v.Data)
		binary.LittleEndian.PutUint32(v.Data, uint32(len(v.Data)-4))
	}
	if v.Dims = v.Dims[:0]; !spec.Fixed() {
		v.Dims = append(v.Dims, 1)
	}
	return nil
}

// generate serves POST …/generate and, with stream, …/generate_stream.
func (s *service) generate(stream bool) func(dialect.Exchange) {
	return func(x dialect.Exchange) {
		g := s.generations.Get().(*generation)
		g.Open()
		defer g.Request.Abandon()
		if err := g.AskNamed(x.Param("model"), x.Param("version")); err != nil {
			g.Drop()
			s.fails(x, err)
			return
		}
		if err := g.read(x, stream); err != nil {
			g.Refuse()
			s.fails(x, err)
			return
		}
		if stream {
			g.Stream(g, false)
		}
		x.Submit(&g.Call)
	}
}

func (g *generation) read(x dialect.Exchange, stream bool) error {
	switch {
	case !stream && g.Model().Streams:
		return api.Errorf(api.InvalidArgument, "%s answers in streams: send the request to …/generate_stream", g.Model().ID)
	case stream && !x.TakesParts():
		return api.Errorf(api.InvalidArgument, "a stream needs HTTP/1.1 or HTTP/2: send the request to …/generate")
	}
	inputs, err := g.Next()
	if err != nil {
		return err
	}
	g.request.Function = g.Function() != nil
	if err := g.request.Parse(x.Body(), &g.Model().Signature, inputs); err != nil {
		return err
	}
	if g.request.ID != nil {
		g.id = append(g.id[:0], g.request.ID...)
		g.request.ID = g.id
	}
	if err := g.request.Options.Headers(x); err != nil {
		return err
	}
	return g.request.Options.Apply(&g.Request)
}

// Settled renders the answer, or its first part.
func (g *generation) Settled() api.Code {
	if st := g.Streamed(); st != nil {
		return st.Settled()
	}
	if g.Refused() {
		return g.Code()
	}
	return g.whole("", "")
}

// whole renders the outputs of the query, which may be the function's default, between two texts; or why there are none.
func (g *generation) whole(before, behind string) api.Code {
	a, q := &g.Answer, g.Query(0)
	if outputs, ok := g.Outputs(0); ok {
		a.Reset(200)
		a.Body = append(g.appendOutputs(append(a.Body, before...), outputs), behind...)
		return q.Code
	}
	if a.Reset(q.Code.HTTPStatus()); a.Status == 503 {
		a.RetryAfter(g.RetryAfter())
	}
	a.Body = AppendError(a.Body, q.Code, q.Reason())
	return q.Code
}

// Released returns the state to its pool.
func (g *generation) Released() { g.service.generations.Put(g) }

const (
	eventStream = "text/event-stream; charset=utf-8"
	eventBegin  = "data: "
	eventEnd    = "\n\n"
)

// Failed implements [dialect.StreamRenderer]. The default is a stream of one event.
func (g *generation) Failed() api.Code {
	code := g.whole(eventBegin, eventEnd)
	if g.Answer.Status == 200 {
		g.Answer.ContentType = eventStream
	}
	return code
}

// Begin implements [dialect.StreamRenderer].
func (g *generation) Begin(a *dialect.Answer) { a.ContentType = eventStream }

// Output implements [dialect.StreamRenderer].
func (g *generation) Output(text []byte, outputs []api.Value, _ int) []byte {
	return append(g.appendOutputs(append(text, eventBegin...), outputs), eventEnd...)
}

// End implements [dialect.StreamRenderer]. The end of the answer is that of the stream; only an error has an event.
func (g *generation) End(text []byte, how dialect.StreamEnd) (_ []byte, broken bool) {
	if how.Code == api.OK {
		return text, false
	}
	return append(AppendError(append(text, eventBegin...), how.Code, how.Reason()), eventEnd...), false
}

// Whole is not called: a stream that is not wanted as one is refused.
func (g *generation) Whole(*dialect.Answer, []byte, dialect.StreamEnd) {}

func (g *generation) appendOutputs(dst []byte, outputs []api.Value) []byte {
	m := g.Model()
	dst = append(dst, `{"model_name":`...)
	if fn := g.Function(); fn != nil {
		dst = tensorjson.AppendString(dst, fn.Name)
		dst = append(g.AppendFacts(append(dst, `,"parameters":{`...)), '}')
	} else {
		dst = tensorjson.AppendString(dst, m.ID.Name)
		dst = tensorjson.AppendString(append(dst, `,"model_version":`...), m.ID.Version)
	}
	if g.request.ID != nil {
		dst = tensorjson.AppendString(append(dst, `,"id":`...), g.request.ID)
	}
	for i := range m.Signature.Outputs {
		spec := &m.Signature.Outputs[i]
		dst = append(tensorjson.AppendString(append(dst, ','), spec.Name), ':')
		dst = appendValue(dst, spec, &outputs[i])
	}
	return append(dst, '}')
}

// appendValue appends a value in the form of its shape. A list of one element is the element, and bytes that are UTF-8 are a string.
func appendValue(dst []byte, spec *api.TensorSpec, v *api.Value) []byte {
	one := api.TensorSpec{Name: spec.Name, DType: spec.DType}
	single := *v
	switch dims := v.Dims; {
	case len(spec.Shape) == 0:
	case len(spec.Shape) == 1 && (spec.Shape[0] == 1 || spec.Shape[0] < 0 && len(dims) == 1 && dims[0] == 1):
		if single.Dims = nil; spec.DType.Variable() && len(v.Data) >= 4 {
			single.Data = v.Data[4:]
		}
	default:
		return tensorjson.AppendValue(dst, *spec, *v)
	}
	if spec.DType == api.Bytes && utf8.Valid(single.Data) {
		return tensorjson.AppendString(dst, single.Data)
	}
	return tensorjson.AppendValue(dst, one, single)
}
