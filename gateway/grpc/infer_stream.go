package grpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/gateway/grpc/oipwire"
)

// maxPipelined bounds the requests of one stream that are not answered. The next one is read when there is room.
const maxPipelined = 64 //xebec:limit requests of a ModelStreamInfer call that are not answered

const modelStreamInferMethod = "/inference.GRPCInferenceService/ModelStreamInfer"

// inferStream is one ModelStreamInfer call. Answers of models that do not stream come in the order of their requests, which a goroutine sends. Each
// request to a model that streams has a goroutine, so that one long stream does not hold up others.
type inferStream struct {
	server *Server
	stream grpc.ServerStream
	ctx    context.Context
	end    context.CancelCauseFunc
	slots  chan struct{}

	sending sync.Mutex
	streams sync.WaitGroup // what answers
}

// slot is the place of a request in the order of the answers.
type slot struct {
	call    *inferCall
	refused *failure // the call was never submitted
}

// modelStreamInfer serves ModelStreamInfer.
func (s *Server) modelStreamInfer(_ any, stream grpc.ServerStream) error {
	t := &inferStream{server: s, stream: stream, slots: make(chan struct{}, maxPipelined)}
	t.ctx, t.end = context.WithCancelCause(stream.Context())
	defer t.end(nil)
	over := make(chan struct{})
	go func() {
		defer close(over)
		t.work()
	}()
	err := t.await(over)
	t.end(err)
	t.sending.Lock() // what is sent now is the last
	defer t.sending.Unlock()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return err
}

// work answers requests until the client sends no more and all are answered, or until the call ends.
func (t *inferStream) work() {
	ordered := make(chan slot, maxPipelined)
	t.streams.Go(func() {
		for sl := range ordered {
			t.safely(func() { t.answer(sl) })
			<-t.slots
		}
	})
	t.safely(func() {
		if err := t.receive(ordered); err != nil {
			t.end(err)
		}
	})
	close(ordered)
	t.streams.Wait()
}

var errDefect = status.Error(codes.Internal, "internal error")

// safely runs a part of the call on a goroutine of its own: a defect ends the call, not the process.
func (t *inferStream) safely(part func()) {
	defer func() {
		if v := recover(); v != nil {
			t.server.panicked(modelStreamInferMethod, v)
			t.end(errDefect)
		}
	}()
	part()
}

// await waits until all is answered, or the call has failed, or the server ends and no request is open: a client may keep a call without requests for as
// long as it likes, and nothing else would end it.
func (t *inferStream) await(over <-chan struct{}) error {
	var look <-chan time.Time
	ending := t.server.ending
	for {
		select {
		case <-over:
			return context.Cause(t.ctx)
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		case <-ending:
			again := time.NewTicker(10 * time.Millisecond)
			defer again.Stop()
			look, ending = again.C, nil
		case <-look:
			if len(t.slots) == 0 {
				return status.Error(codes.Unavailable, api.ShuttingDown.Reason())
			}
		}
	}
}

// receive reads requests until the client sends no more.
func (t *inferStream) receive(ordered chan<- slot) error {
	s := t.server
	for {
		c := s.calls.Get().(*inferCall)
		if err := t.stream.RecvMsg(&c.in); err != nil {
			c.recycle()
			s.calls.Put(c)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		select {
		case t.slots <- struct{}{}:
		case <-t.ctx.Done():
			c.recycle()
			s.calls.Put(c)
			return context.Cause(t.ctx)
		}
		c.conn, c.streamed = connOf(t.ctx), true
		sl := slot{call: c}
		if err := c.begin(t.ctx); err != nil {
			f, ok := errors.AsType[*failure](err)
			if !ok {
				return err
			}
			sl = slot{refused: f}
		} else {
			c.Retain()
			s.gather.submit(&c.Call, &c.rpc)
		}
		if sl.call != nil && c.flow != nil {
			t.streams.Go(func() {
				t.safely(func() { t.answerStream(c) })
				<-t.slots
			})
			continue
		}
		ordered <- sl
	}
}

// answer sends the answer of a request whose turn it is.
func (t *inferStream) answer(sl slot) {
	if sl.refused != nil {
		t.sendError(sl.refused, sl.refused.id)
		return
	}
	c := sl.call
	if !t.wait(c) {
		return
	}
	if c.failure != nil {
		t.sendError(c.failure, c.response.ID)
	} else {
		t.sendAnswer(c)
	}
	c.Delivered()
	c.Release()
}

// wait waits for the answer of a call. If it returns false the client has left, and the call is not to be used.
func (t *inferStream) wait(c *inferCall) bool {
	select {
	case <-c.done:
		if c.dead {
			t.end(errDefect)
			return false
		}
		return true
	case <-t.ctx.Done():
		if c.flow != nil {
			c.flow.leave()
		}
		c.Cancel()
		c.Delivered()
		c.Release()
		return false
	}
}

// answerStream sends all outputs of a model that streams.
func (t *inferStream) answerStream(c *inferCall) {
	if !t.wait(c) {
		return
	}
	defer c.Release()
	c.Delivered()
	if c.failure != nil {
		t.sendError(c.failure, c.response.ID)
		return
	}
	t.sendAnswer(c)
	if !c.Query(0).Streams() {
		t.sendFinal(c)
		return
	}
	f := c.flow
	for f.begin(); ; {
		parts, ended, broken, ok := f.next(t.ctx.Done())
		if !ok {
			f.leave()
			c.Cancel()
			return
		}
		for _, part := range parts {
			t.send(part)
		}
		switch {
		case !ended:
			continue
		case broken != nil:
			t.sendError(broken, c.response.ID)
		default:
			t.sendFinal(c)
		}
		return
	}
}

// renderStreamed renders one further output of a stream as a message. It runs on the goroutine that reads from the worker, under the lock of the flow.
func (c *inferCall) renderStreamed(outputs []api.Value, _ float64) (message any, bytes int) {
	r := c.response
	r.Output = func(_, tensor int) *api.Value { return &outputs[tensor] }
	r.Parameters = oipwire.AppendBoolParameter(nil, "triton_final_response", false)
	size, err := r.Measure()
	if err != nil {
		return &pb.ModelStreamInferResponse{ErrorMessage: err.Error()}, len(err.Error()) // a defect: the transport has judged the outputs
	}
	body := r.Append(make([]byte, 0, size))
	return mem.BufferSlice{mem.SliceBuffer(streamHead(len(body))), mem.SliceBuffer(body)}, len(body)
}

// streamHead is what stands before a response within a ModelStreamInferResponse.
func streamHead(n int) []byte { return binary.AppendUvarint([]byte{2<<3 | 2}, uint64(n)) }

func (t *inferStream) sendAnswer(c *inferCall) {
	answer := append(mem.BufferSlice{mem.SliceBuffer(streamHead(c.size))}, c.answer...)
	c.answer = nil
	t.send(answer)
}

// sendFinal sends the empty response at the end of a stream to clients that want one.
func (t *inferStream) sendFinal(c *inferCall) {
	if !c.final {
		return
	}
	t.send(&pb.ModelStreamInferResponse{InferResponse: &pb.ModelInferResponse{
		ModelName: c.response.Model, ModelVersion: c.response.Version, Id: string(c.response.ID),
		Parameters: map[string]*pb.InferParameter{"triton_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}},
	}})
}

// sendError sends the error of one request. The stream goes on.
func (t *inferStream) sendError(f *failure, id []byte) {
	t.send(&pb.ModelStreamInferResponse{ErrorMessage: f.message, InferResponse: &pb.ModelInferResponse{Id: string(id)}})
}

func (t *inferStream) send(m any) {
	t.sending.Lock()
	err := context.Cause(t.ctx)
	if err == nil {
		err = t.stream.SendMsg(m)
	}
	t.sending.Unlock()
	if err != nil {
		t.end(err)
	}
}
