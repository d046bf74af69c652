package apptest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/xebec-serving/xebec/api/xebecpb"
)

var grpcLine = regexp.MustCompile(`serving\s+\{.*"grpc": "([^"]+)"`)

// grpcAddress is where a gateway serves gRPC.
func (g *gateway) grpcAddress() string {
	g.t.Helper()
	found := grpcLine.FindAllStringSubmatch(g.logText(), -1)
	if found == nil {
		g.t.Fatalf("the gateway serves no gRPC:\n%s", g.logText())
	}
	return found[len(found)-1][1]
}

func (g *gateway) dialGRPC(options ...grpc.DialOption) *grpc.ClientConn {
	g.t.Helper()
	c, err := grpc.NewClient(g.grpcAddress(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

func four(x ...float64) []*xebecpb.Tensor { return []*xebecpb.Tensor{{Numbers: x}} }

// TestGRPCClients: the protocol's public client works unchanged: synchronous, asynchronous, and in streams.
func TestGRPCClients(t *testing.T) {
	t.Parallel()
	failing := strings.NewReplacer("dtype: bytes, shape: []", "dtype: float32, shape: [4]", "markers", "error").Replace(testModel("failing", nil))
	digits := strings.ReplaceAll(numbers("digits"), "shape: [4]", "shape: [64]")
	g, _ := serveStreams(t, "--grpc-listen", "127.0.0.1:0", "--config", manifest(t, numbers("echo4"), digits, failing, function("down", "failing", "slo: 60s", "default: [-1, -1, -1, -1]")))
	g.awaitReplicas("echo4", 1)
	g.awaitReplicas("failing", 1)
	out, err := exec.CommandContext(bounded(t), python(t), "testdata/oip_grpc.py", g.grpcAddress(), g.functions).CombinedOutput()
	if err != nil {
		t.Fatalf("oip_grpc.py: %v\n%s", err, out)
	}
	g.awaitReplicas("digits", 1)
	program, err := os.ReadFile("testdata/digits_grpc.py") // the guide's, with another address and more time
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("127.0.0.1:1339", g.grpcAddress(), "client_timeout=1", "client_timeout=60").Replace(string(program))
	if out, err := exec.CommandContext(bounded(t), python(t), "-c", here).CombinedOutput(); err != nil || !strings.Contains(string(out), "[[0. 0.") {
		t.Errorf("digits_grpc.py: %v\n%s", err, out)
	}
}

// TestFunctionsOverGRPC: our own service, with feedback, streams, health and reflection, from Go.
func TestFunctionsOverGRPC(t *testing.T) {
	t.Parallel()
	g, _ := serveStreams(t, "--grpc-listen", "127.0.0.1:0", "--config", manifest(t, threeModels("exp4"), numbers("echo4")))
	g.awaitReplicas("echo4", 1)
	for _, m := range []string{"right", "wrong", "worse"} {
		g.awaitReplicas(m, 1)
	}
	ctx, conn := bounded(t), g.dialGRPC()
	fns := xebecpb.NewFunctionsClient(conn)
	p, err := fns.Predict(ctx, &xebecpb.PredictRequest{Function: "f", Inputs: four(5), Options: &xebecpb.Options{SloMs: 60_000}})
	if err != nil || len(p.Models) != 3 || len(p.Outputs) != 1 || p.QueryId == 0 {
		t.Fatalf("%v %v", p, err)
	}
	label := &xebecpb.FeedbackRequest_Label{Label: &xebecpb.Label{Outputs: four(5)}}
	about := &xebecpb.FeedbackRequest_QueryId{QueryId: p.QueryId}
	if r, err := fns.Feedback(ctx, &xebecpb.FeedbackRequest{Function: "f", About: about, Verdict: label}); err != nil || r.Status != "counted" {
		t.Errorf("%v %v", r, err)
	}
	if r, err := fns.Feedback(ctx, &xebecpb.FeedbackRequest{Function: "f", About: about, Verdict: label}); err != nil || r.Status != "duplicate" || r.Cause == "" {
		t.Errorf("the second feedback for a query: %v %v", r, err)
	}
	if f := g.learned("f"); f.Feedback.Counted != 1 {
		t.Errorf("describe says %+v", f.Feedback)
	}
	queries := make([]*xebecpb.Query, 40)
	for i := range queries {
		queries[i] = &xebecpb.Query{Inputs: four(float64(i), 0, 0, 0)}
	}
	b, err := fns.PredictBatch(ctx, &xebecpb.PredictBatchRequest{Function: "echo4", Queries: queries})
	if err != nil || len(b.Predictions) != 40 {
		t.Fatalf("%v %v", b, err)
	}
	ids := map[uint64]bool{}
	for _, p := range b.Predictions {
		ids[p.QueryId] = true
	}
	if len(ids) != 40 {
		t.Errorf("%d ids of 40 queries", len(ids))
	}
	s, err := fns.PredictStream(ctx, &xebecpb.PredictRequest{Function: "words", Inputs: []*xebecpb.Tensor{{Items: [][]byte{[]byte("1000")}}}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		p, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || string(p.Outputs[0].Items[0]) != fmt.Sprintf("w%d", n) {
			t.Fatalf("output %d: %v %v", n, p, err)
		}
		n++
	}
	if n != 1000 {
		t.Errorf("%d outputs", n)
	}
	h := healthpb.NewHealthClient(conn)
	if r, err := h.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v %v", r, err)
	}
	r, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "xebec.v1.Functions"}}); err != nil {
		t.Fatal(err)
	}
	if a, err := r.Recv(); err != nil || len(a.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("%v %v", a, err)
	}
	if err := r.CloseSend(); err != nil {
		t.Error(err)
	}
	var trailer metadata.MD
	_, err = fns.Predict(ctx, &xebecpb.PredictRequest{Function: "nobody"}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.NotFound || len(trailer.Get("xebec-code")) != 1 {
		t.Errorf("%v %v", err, trailer)
	}
}

// TestUpgradeGRPC: clients of gRPC lose no call when another process takes over, and find it at the same address.
func TestUpgradeGRPC(t *testing.T) {
	t.Parallel()
	u := serveUpgradable(t, "--grpc-listen", "127.0.0.1:0")
	address, fns := u.grpcAddress(), xebecpb.NewFunctionsClient(u.dialGRPC())
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	failed := make(chan error, 1)
	var answered atomic.Int64
	go func() {
		for i := 0; ; i++ {
			p, err := fns.Predict(ctx, &xebecpb.PredictRequest{Function: "g", Inputs: four(float64(i))})
			if ctx.Err() != nil {
				failed <- nil
				return
			}
			if err != nil || binary.LittleEndian.Uint64(p.Outputs[0].Data) != uint64(i) {
				failed <- fmt.Errorf("call %d: %v %w", i, p, err)
				return
			}
			answered.Add(1)
		}
	}()
	more := func() {
		t.Helper()
		was := answered.Load()
		u.await("calls to be answered", func(context.Context) (bool, string) { return answered.Load() > was+20 || len(failed) > 0, "" })
	}
	more()
	if r := u.upgrade()(); r.status != 0 || u.pid == u.cmd.Process.Pid {
		t.Fatalf("upgrade: status %d %s%s", r.status, r.out, r.err)
	}
	u.oldEnds()
	more()
	cancel()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if now := u.grpcAddress(); now != address {
		t.Errorf("gRPC was served at %s and is at %s", address, now)
	}
}
