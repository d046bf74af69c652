package grpc

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// Metadata of answers that are errors.
const (
	keyCode      = "xebec-code"             // the code by its name
	keyRequestID = "x-request-id"           //
	keyPushback  = "grpc-retry-pushback-ms" // when a client that retries is to do so (gRFC A6)
)

// failure is an error with its code, on the way to a client.
type failure struct {
	code    api.Code
	message string
	retry   time.Duration // when to come again; 0: not known
	id      []byte        // of the request on a stream
}

func (f *failure) Error() string { return f.message }

// GRPCStatus makes it a status to the library.
func (f *failure) GRPCStatus() *status.Status {
	return status.New(codes.Code(f.code.GRPCStatus()), f.message)
}

// failed converts an error. One without a code is a defect, whose text clients do not see.
func failed(err error) *failure {
	e := dialect.Error(err)
	return &failure{code: e.Code, message: e.Message}
}

// fail answers a call with an error, and names code and request in trailers.
func fail(ctx context.Context, f *failure, id *api.Identity) error {
	md := metadata.MD{keyCode: {f.code.String()}}
	if id != nil && len(id.RequestID) > 0 {
		md[keyRequestID] = []string{string(id.RequestID)}
	}
	if f.retry > 0 {
		md[keyPushback] = []string{strconv.FormatInt(f.retry.Milliseconds(), 10)}
	}
	_ = grpc.SetTrailer(ctx, md) // it fails only without a stream
	return f.GRPCStatus().Err()
}

// Panic is what is known of a handler that has panicked.
type Panic struct {
	Method string
	Value  any
	Stack  []byte
}

const maxPanicStack = 8 << 10

// recovered is deferred by handlers: a defect ends the call, not the process.
func (s *Server) recovered(method string, err *error) {
	if v := recover(); v != nil {
		s.panicked(method, v)
		*err = status.Error(codes.Internal, "internal error")
	}
}

func (s *Server) panicked(method string, v any) {
	if s.cfg.Panicked == nil {
		return
	}
	stack := debug.Stack()
	s.cfg.Panicked(Panic{Method: method, Value: fmt.Sprint(v), Stack: stack[:min(len(stack), maxPanicStack)]})
}
