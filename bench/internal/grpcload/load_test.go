package grpcload

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers with the name of the model that it was asked for.
type echo struct {
	pb.UnimplementedGRPCInferenceServiceServer
	calls atomic.Uint64
}

func (e *echo) ModelInfer(_ context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	e.calls.Add(1)
	return &pb.ModelInferResponse{ModelName: r.ModelName}, nil
}

func serve(t *testing.T) (*echo, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, e := grpc.NewServer(), &echo{}
	pb.RegisterGRPCInferenceServiceServer(s, e)
	go func() { _ = s.Serve(ln) }() // it ends with Stop
	t.Cleanup(s.Stop)
	return e, ln.Addr().String()
}

func request(t *testing.T, model string) []byte {
	t.Helper()
	out, err := proto.Marshal(&pb.ModelInferRequest{ModelName: model})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// named accepts an answer with the name that belongs to the request.
func named(names ...string) func(int, []byte) error {
	return func(i int, answer []byte) error {
		var m pb.ModelInferResponse
		if err := proto.Unmarshal(answer, &m); err != nil {
			return err
		}
		if m.ModelName != names[i] {
			return errors.New("got " + m.ModelName + " for " + names[i])
		}
		return nil
	}
}

// The requests take turns, each answer is compared with its own request, and the hooks enclose the measured part.
func TestRun(t *testing.T) {
	e, addr := serve(t)
	var before, after uint64
	r, err := Run(t.Context(), Options{
		Addr: addr, Requests: [][]byte{request(t, "a"), request(t, "b")}, Accepts: named("a", "b"), Clients: 9, Warmup: 20 * time.Millisecond, Duration: 100 * time.Millisecond,
		OnMeasure: func() error { before = e.calls.Load(); return nil },
		OnEnd:     func() error { after = e.calls.Load(); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Completed == 0 || r.Completed > after-before || r.RPS <= 0 || r.Quantile(0) > r.Quantile(0.5) || r.Quantile(0.5) > r.Quantile(1) {
		t.Errorf("%d calls completed of %d, %v a second, %v to %v µs", r.Completed, after-before, r.RPS, r.Quantile(0), r.Quantile(1))
	}
}

func TestAWrongAnswerEndsTheRun(t *testing.T) {
	_, addr := serve(t)
	_, err := Run(t.Context(), Options{Addr: addr, Requests: [][]byte{request(t, "a")}, Accepts: named("b"), Clients: 1, Duration: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "got a for b") {
		t.Errorf("got %v", err)
	}
}

func TestAHookThatFailsEndsTheRun(t *testing.T) {
	_, addr := serve(t)
	broken := errors.New("no such process")
	_, err := Run(t.Context(), Options{
		Addr: addr, Requests: [][]byte{request(t, "a")}, Accepts: named("a"), Clients: 1, Duration: 50 * time.Millisecond, OnEnd: func() error { return broken },
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestAskOnce(t *testing.T) {
	_, addr := serve(t)
	answer, err := AskOnce(t.Context(), addr, request(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := named("a")(0, answer); err != nil {
		t.Error(err)
	}
}
