package grpc

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/grpc/oipwire"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// inferCall is one ModelInferRequest.
type inferCall struct {
	rpc
	in       incoming
	parsed   oipwire.Request
	response oipwire.Response
	conn     *conn
	id       []byte // memory of response.ID
	sequence []byte
	streamed bool // it came on a stream
	final    bool // its client wants an empty response at the end of a stream
	micros   int64
	answer   mem.BufferSlice
	size     int // of the answer
}

func (s *Server) newInferCall() *inferCall {
	c := &inferCall{}
	c.init(s, c)
	c.parsed.Borrow = func(raw []byte) bool { return c.Request.Borrow(raw) }
	c.response.Output = c.output
	return c
}

func (c *inferCall) output(q, tensor int) *api.Value {
	outputs, _ := c.Outputs(q) // Settled has seen that there are some
	return &outputs[tensor]
}

// Released returns the call to its pool.
func (c *inferCall) Released() {
	s := c.server
	c.recycle()
	s.calls.Put(c)
}

// recycle makes a call that nothing uses ready for the next message.
func (c *inferCall) recycle() {
	c.in.free()
	c.answer.Free()
	c.answer, c.conn, c.streamed, c.final, c.size = nil, nil, false, false, 0
	c.reset()
}

// modelInfer serves ModelInfer.
func (s *Server) modelInfer(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	c := s.calls.Get().(*inferCall)
	c.conn = connOf(ctx)
	if err := decode(&c.in); err != nil {
		c.recycle()
		s.calls.Put(c)
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	answer := c.answer
	c.answer = nil
	var err error
	if c.failure != nil {
		err = fail(ctx, c.failure, &c.Identity)
	}
	c.Delivered()
	c.Release()
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// begin reads the message and prepares the request. After an error the call is not to be used.
func (c *inferCall) begin(ctx context.Context) error {
	c.Open()
	defer c.Abandon()
	head, contents := c.in.split()
	if err := c.parsed.Scan(head); err != nil {
		return c.drop(ctx, err)
	}
	if err := c.AskNamed(c.texts(c.parsed.Model, c.parsed.Version)); err != nil {
		return c.drop(ctx, err)
	}
	size := c.in.size
	if contents > 0 {
		c.parsed.AddContents(c.in.join(contents, c.place(contents)))
	}
	err := c.read(ctx, size)
	if err == nil {
		if !c.Borrowed() {
			c.in.free()
		}
		return nil
	}
	return c.refuse(ctx, err)
}

// place returns memory of the model for contents of n bytes that are its only input; nil: there is none.
func (c *inferCall) place(n int) api.Slot {
	if !c.parsed.OneInput(&c.Model().Signature) {
		return nil
	}
	return c.Request.Reserve(n)
}

// drop ends a call to nothing.
func (c *inferCall) drop(ctx context.Context, err error) error {
	err = c.refusal(ctx, err)
	c.Drop()
	return err
}

// refuse ends a malformed call.
func (c *inferCall) refuse(ctx context.Context, err error) error {
	err = c.refusal(ctx, err)
	c.Refuse()
	return err
}

// refusal makes a status, or for a stream a failure.
func (c *inferCall) refusal(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	f := failed(err)
	if c.streamed {
		f.id = bytes.Clone(c.parsed.ID)
		return f
	}
	return fail(ctx, f, &c.Identity)
}

// read reads the inputs and options of a message of so many bytes.
func (c *inferCall) read(ctx context.Context, size int) error {
	meta := metaOf(ctx)
	meta.identify(&c.Identity)
	m := c.Model()
	if m.Streams && !c.streamed {
		return api.Errorf(api.Unsupported, "%s answers in streams (it is decoupled): call ModelStreamInfer instead of ModelInfer", m.ID)
	}
	if err := c.reserve(size); err != nil {
		return err
	}
	if err := c.parsed.Read(&m.Signature, c, c.server.cfg.Path.MaxBatch()); err != nil {
		return err
	}
	if m.Streams && c.parsed.Queries != 1 {
		return api.Errorf(api.InvalidArgument, "%s answers in streams, one query at a time: expected one query, found %d", m.ID, c.parsed.Queries)
	}
	c.options.Begin(c.Function() != nil)
	if err := c.parameters(); err != nil {
		return err
	}
	if err := c.prepare(ctx, meta, c.micros); err != nil {
		return err
	}
	c.id = append(c.id[:0], c.parsed.ID...)
	r := &c.response
	r.ID, r.Signature, r.Outputs, r.Classes, r.Batched, r.Raw = c.id, &m.Signature, c.parsed.Outputs, c.parsed.Classes, c.parsed.Batched, c.parsed.Raw()
	if m.Streams {
		c.flow = newFlow(c.renderStreamed)
		c.SetStream(c.flow)
	}
	return nil
}

// parameters reads the parameters of the request: those of the protocol, options, and for the rest what the model gets.
func (c *inferCall) parameters() error {
	o := &c.options
	c.micros, c.final, c.sequence = 0, false, c.sequence[:0]
	for i := range c.parsed.Parameters {
		p := &c.parsed.Parameters[i]
		if p.Kind == oipwire.KindNone {
			continue // a value that is not set, as null in JSON
		}
		switch string(p.Name) {
		case "timeout":
			n, ok := p.Number()
			if !ok || !(n >= 0) || n > math.MaxInt64/2 {
				return api.Errorf(api.InvalidArgument, "parameters.timeout: expected microseconds, 0 or more")
			}
			c.micros = int64(n)
			continue
		case "binary_data_output", "triton_enable_empty_final_response":
			if p.Kind != oipwire.KindBool {
				return api.Errorf(api.InvalidArgument, "parameters.%s: expected a truth value", p.Name)
			}
			if string(p.Name) != "binary_data_output" { // which is of the REST form
				c.final = p.Bool
			}
			continue
		case "sequence_id":
			switch p.Kind {
			case oipwire.KindText:
				c.sequence = append(c.sequence, p.Text...)
			case oipwire.KindInt, oipwire.KindUint:
				if n, _ := p.Number(); n != 0 {
					c.sequence = appendParameter(c.sequence, p)
				}
			default:
				return api.Errorf(api.InvalidArgument, "parameters.sequence_id: expected a text or an integer")
			}
		case "priority": // no model has priority levels: deadlines order the queries
			if n, ok := p.Number(); !ok || !(n >= 0) || p.Kind == oipwire.KindFloat {
				return api.Errorf(api.InvalidArgument, "parameters.priority: expected an integer, 0 or more")
			}
		}
		taken := false
		var err error
		switch p.Kind {
		case oipwire.KindText:
			taken, err = o.Text(p.Name, p.Text)
		case oipwire.KindBool:
			err = o.Bool(p.Name, p.Bool)
		default:
			f, _ := p.Number()
			taken, err = o.Number(p.Name, f)
		}
		if err != nil {
			return err
		}
		if taken {
			continue
		}
		if p.Kind == oipwire.KindFloat && (math.IsNaN(p.Float) || math.IsInf(p.Float, 0)) {
			return api.Errorf(api.InvalidArgument, "parameters.%s: %v: expected a finite number", p.Name, p.Float)
		}
		var memory [64]byte
		o.Pass(p.Name, appendParameter(memory[:0], p))
	}
	if !o.HasContext() && len(c.sequence) > 0 {
		o.SetContext(c.sequence)
	}
	return nil
}

// appendParameter appends a parameter's value as JSON.
func appendParameter(dst []byte, p *oipwire.Parameter) []byte {
	switch p.Kind {
	case oipwire.KindBool:
		return strconv.AppendBool(dst, p.Bool)
	case oipwire.KindInt:
		return strconv.AppendInt(dst, p.Int, 10)
	case oipwire.KindUint:
		return strconv.AppendUint(dst, p.Uint, 10)
	case oipwire.KindFloat:
		return strconv.AppendFloat(dst, p.Float, 'g', -1, 64)
	}
	return tensorjson.AppendString(dst, p.Text)
}

// Settled renders the answer. The queries of a request share one tensor, so if one query has no outputs the request fails.
func (c *inferCall) Settled() api.Code {
	code := c.Code()
	if i := c.Failed(); i >= 0 {
		q := c.Query(i)
		return c.failWith(q.Code, q.Reason())
	}
	r := &c.response
	r.Model, r.Version, r.Queries = c.name, "", c.Len()
	if c.Function() == nil {
		m := c.Model()
		r.Model, r.Version = m.ID.Name, m.ID.Version
	}
	facts := facts{r.Parameters[:0]}
	c.Facts(&facts)
	r.Parameters = facts.dst
	if c.flow != nil {
		r.Parameters = oipwire.AppendBoolParameter(r.Parameters, "triton_final_response", false)
	}
	size, err := r.Measure()
	if err != nil {
		f := failed(err)
		c.failure = f
		return f.code
	}
	if !c.room(size) {
		return code
	}
	b := answerBuffer(size)
	answer := r.Append((*b)[:0])
	c.size = len(answer)
	c.answer = answerOf(b, answer, c.conn)
	return code
}

// Deliver wakes the handler.
func (c *inferCall) Deliver() {
	if c.flow != nil {
		c.Query(0).FreeOutputs()
	}
	c.rpc.Deliver()
}

// facts writes what an answer of a function says beside its outputs as parameters.
type facts struct{ dst []byte }

func (f *facts) Uint(name string, v uint64) {
	f.dst = oipwire.AppendIntParameter(f.dst, name, int64(v))
}
func (f *facts) Bool(name string, v bool) { f.dst = oipwire.AppendBoolParameter(f.dst, name, v) }
func (f *facts) Float(name string, v float64) {
	f.dst = oipwire.AppendFloatParameter(f.dst, name, v)
}
func (f *facts) Text(name string, v []byte) { f.dst = oipwire.AppendTextParameter(f.dst, name, v) }
