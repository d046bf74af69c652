package grpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/api/xebecpb"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// budget is a Memory.
type budget struct {
	limit atomic.Int64
	used  atomic.Int64
}

func (b *budget) Reserve(n int) bool {
	if b.used.Add(int64(n)) > b.limit.Load() {
		b.used.Add(int64(-n))
		return false
	}
	return true
}
func (b *budget) Hold(n int)   { b.used.Add(int64(n)) }
func (b *budget) Return(n int) { b.used.Add(int64(-n)) }
func (b *budget) Full() bool   { return b.used.Load() >= b.limit.Load() }

// fixture is a server with model "m@1", function "f" with a default, and function "g" without.
type fixture struct {
	t       *testing.T
	server  *Server
	path    *query.Path
	model   *query.Model
	memory  *budget
	refused chan Reason
	ready   atomic.Bool
	conn    *grpc.ClientConn
	oip     pb.GRPCInferenceServiceClient
	fns     xebecpb.FunctionsClient
}

func serve(t *testing.T, sig api.Signature, submit func(it *scheduler.Item), change ...func(*Config, *query.Model)) *fixture {
	t.Helper()
	start := time.Now()
	f := &fixture{t: t, memory: new(budget), refused: make(chan Reason, 16)}
	f.memory.limit.Store(1 << 30)
	f.path = query.New(query.Config{Now: func() api.Nanos { return api.Nanos(time.Since(start)) + 1 }, MaxBatch: 8})
	f.model = query.NewModel(api.ModelID{Name: "m", Version: "1"}, sig, &querytest.Lane{Submit: submit, Cancelled: make(chan uint64, 64)}, 0, new(obs.Endpoint))
	f.model.Ready.Store(1)
	f.ready.Store(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Path: f.path, Listener: ln, Memory: f.memory, Version: "7", Ready: func() (bool, string) { return f.ready.Load(), "it sleeps" },
		Refused: func(r Reason) { f.refused <- r }, Panicked: func(p Panic) { t.Logf("panic in %s: %v\n%s", p.Method, p.Value, p.Stack) },
		Models: func(context.Context, string) ([]api.ModelStatus, error) {
			return []api.ModelStatus{{Spec: api.ModelSpec{Name: "m", Version: "1"}, State: api.ModelReady, Version: api.VersionStatus{Phase: api.PhaseAvailable}, Queries: map[string]uint64{"ok": 3, "model_error": 1},
				Replicas: []api.ReplicaStatus{{Batches: 2, Profile: api.Profile{MeanMicros: 5}}}}}, nil
		},
		Statistics: func(string) []api.ModelStatistics {
			return []api.ModelStatistics{{ID: api.ModelID{Name: "m", Version: "1"}, Succeeded: 3, Failed: 1, Batches: 2, Queue: api.Durations{Count: 3, Nanos: 30}, Evaluation: api.Durations{Count: 2, Nanos: 20}, CacheHits: 5}}
		},
		Limits: Limits{MessageBytes: 4 << 20, HeaderBytes: 64 << 10, FirstByteTimeout: 30 * time.Second, HeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute, MinRate: 16 << 10, RateGrace: 30 * time.Second},
	}
	for _, c := range change {
		c(&cfg, f.model)
	}
	fn := func(name, def string) *query.Function {
		fn := &query.Function{Name: name, SLO: time.Second, Candidates: []query.Candidate{{Model: f.model}}, Stats: new(obs.Endpoint), Learning: new(obs.Learning)}
		if def != "" {
			fn.Default = []byte(def)
		}
		return fn
	}
	f.path.Publish(&query.Table{
		Models: map[string]*query.Model{"m": f.model}, Versions: map[api.ModelID]*query.Model{f.model.ID: f.model, {Name: "m", Version: "stable"}: f.model},
		Functions: map[string]*query.Function{"f": fn("f", "-1"), "g": fn("g", "")},
	})
	f.server = New(cfg)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve() }()
	f.conn, err = grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	f.oip, f.fns = pb.NewGRPCInferenceServiceClient(f.conn), xebecpb.NewFunctionsClient(f.conn)
	t.Cleanup(func() {
		_ = f.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		f.server.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		eventually(t, "all requests are closed", func() bool { return f.path.Open() == 0 })
		eventually(t, "the budget has all back", func() bool { return f.memory.used.Load() == 0 })
	})
	return f
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	over, tick := time.After(30*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-over:
			t.Errorf("not within 30 s: %s", what)
			return
		case <-tick.C:
		}
	}
}

func floats(x ...float32) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, x)
	return b
}

func request(name string, data []byte, shape ...int64) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{
		ModelName: name, Id: "7", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "FP32", Shape: shape}}, RawInputContents: [][]byte{data},
	}
}

func (f *fixture) ctx() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	f.t.Cleanup(cancel)
	return ctx
}

// code checks a status: its code, its text, and the trailer with our code.
func code(t *testing.T, err error, want codes.Code, text string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != want || !strings.Contains(s.Message(), text) {
		t.Errorf("got %v: %s, want %v: %s", s.Code(), s.Message(), want, text)
	}
}

func TestModelInfer(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	two := floats(1, 1, 1, 1, 2, 2, 2, 2)
	for _, version := range []string{"", "1", "stable"} {
		r := request("m", two, 2, 4)
		r.ModelVersion = version
		a, err := f.oip.ModelInfer(f.ctx(), r)
		if err != nil || a.ModelName != "m" || a.ModelVersion != "1" || a.Id != "7" || len(a.Parameters) != 0 || string(a.RawOutputContents[0]) != string(querytest.Int64(4))+string(querytest.Int64(8)) {
			t.Errorf("%q: %v %v", version, a, err)
		}
	}
	typed := request("m", nil, 4)
	typed.RawInputContents, typed.Inputs[0].Contents = nil, &pb.InferTensorContents{Fp32Contents: []float32{1, 2, 3, 4}}
	if a, err := f.oip.ModelInfer(f.ctx(), typed, grpc.UseCompressor(gzip.Name)); err != nil || len(a.RawOutputContents) != 0 || a.Outputs[0].Contents.Int64Contents[0] != 10 || len(a.Outputs[0].Shape) != 0 {
		t.Errorf("%v %v", a, err)
	}
	if a, err := f.oip.ModelInfer(f.ctx(), request("m", two, 2, 4), grpc.UseCompressor("deflate")); err != nil || len(a.Outputs) != 1 {
		t.Errorf("%v %v", a, err)
	}
	if r := f.model.Stats.Read(); r.Codes[api.OK] != 5 {
		t.Errorf("counted %+v", r.Codes)
	}
}

// TestFunctionIsModel: a function is a model, and parameters have what its answers say beside the outputs.
func TestFunctionIsModel(t *testing.T) {
	fails := false
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		if fails {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Sum(it)
	})
	a, err := f.oip.ModelInfer(f.ctx(), request("f", floats(1, 2, 3, 4), 1, 4))
	if err != nil || a.ModelName != "f" || a.ModelVersion != "" || a.Parameters["query_id"].GetInt64Param() == 0 || a.Parameters["default"].GetBoolParam() || a.Parameters["models"].GetStringParam() != "m@1" || a.Parameters["confidence"].GetDoubleParam() != 1 {
		t.Errorf("%v %v", a, err)
	}
	fails = true
	a, err = f.oip.ModelInfer(f.ctx(), request("f", floats(1, 2, 3, 4), 1, 4))
	if err != nil || !a.Parameters["default"].GetBoolParam() || a.Parameters["default_explanation"].GetStringParam() != api.ModelError.Reason() || int64(binary.LittleEndian.Uint64(a.RawOutputContents[0])) != -1 {
		t.Errorf("%v %v", a, err)
	}
	_, err = f.oip.ModelInfer(f.ctx(), request("g", floats(1, 2, 3, 4), 1, 4))
	code(t, err, codes.Internal, api.ModelError.Reason())
}

func TestErrors(t *testing.T) {
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) { querytest.End(it, api.NoReplica) })
	for _, c := range []struct {
		r    *pb.ModelInferRequest
		want codes.Code
		text string
		code string
	}{
		{request("x", nil), codes.NotFound, `no function or model "x"`, "not_found"},
		{request("m", floats(1), 1, 4), codes.InvalidArgument, "raw_input_contents[0]: 4 bytes: expected 16 for FP32 of shape [1, 4]", "invalid_argument"},
		{request("m", floats(1, 2, 3, 4), 4), codes.Unavailable, api.NoReplica.Reason(), "no_replica"},
		{request("m", make([]byte, 4<<20), 1, 1<<20), codes.ResourceExhausted, "larger than max", ""},
	} {
		var trailer metadata.MD
		_, err := f.oip.ModelInfer(metadata.AppendToOutgoingContext(f.ctx(), "x-request-id", "abc"), c.r, grpc.Trailer(&trailer))
		code(t, err, c.want, c.text)
		if got := trailer.Get("xebec-code"); strings.Join(got, "") != c.code {
			t.Errorf("%s: trailer %v, want %q", c.text, trailer, c.code)
		}
		if c.code == "no_replica" && strings.Join(trailer.Get("x-request-id"), "") != "abc" {
			t.Errorf("trailer %v", trailer)
		}
	}
	for _, c := range []struct {
		md   []string
		text string
	}{{[]string{"xebec-slo-ms", "x"}, "Xebec-Slo-Ms"}, {[]string{"xebec-context", strings.Repeat("x", 300)}, "context"}} {
		_, err := f.oip.ModelInfer(metadata.AppendToOutgoingContext(f.ctx(), c.md...), request("m", floats(1, 2, 3, 4), 4))
		code(t, err, codes.InvalidArgument, c.text)
	}
}

// TestDeadlines: a call's deadline is a model's objective, and shortens a function's. slo_ms comes before both.
func TestDeadlines(t *testing.T) {
	got := make(chan time.Duration, 1)
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		got <- time.Duration(it.Deadline - it.Arrived)
		querytest.Sum(it)
	})
	for _, c := range []struct {
		name      string
		deadline  time.Duration
		md        []string
		timeout   int64
		low, high time.Duration
	}{
		{"m", 0, nil, 0, 30 * time.Second, 30 * time.Second},
		{"m", 300 * time.Second, nil, 0, 250 * time.Second, 300 * time.Second},
		{"m", 20 * time.Second, nil, 0, time.Second, 20 * time.Second},
		{"m", 0, nil, 2500, 2500 * time.Microsecond, 2500 * time.Microsecond},
		{"f", 300 * time.Second, nil, 0, time.Second, time.Second},
		{"f", 300 * time.Second, []string{"xebec-slo-ms", "2000"}, 0, 2 * time.Second, 2 * time.Second},
		{"f", 0, nil, 5000000, 5 * time.Second, 5 * time.Second},
	} {
		ctx := t.Context()
		if c.deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.deadline)
			defer cancel()
		}
		r := request(c.name, floats(1, 2, 3, 4), 1, 4)
		if c.timeout > 0 {
			r.Parameters = map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: c.timeout}}}
		}
		if _, err := f.oip.ModelInfer(metadata.AppendToOutgoingContext(ctx, c.md...), r); err != nil {
			t.Fatal(err)
		}
		if d := <-got; d < c.low || d > c.high {
			t.Errorf("%+v: the query has %v", c, d)
		}
	}
}

// TestCancel: a caller that leaves withdraws its query.
func TestCancel(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) { items <- it })
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := f.oip.ModelInfer(ctx, request("m", floats(1, 2, 3, 4), 4))
		failed <- err
	}()
	it := <-items
	cancel()
	<-f.model.Lane.(*querytest.Lane).Cancelled
	querytest.End(it, api.Cancelled)
	code(t, <-failed, codes.Canceled, "")
}

// TestPanic: a defect ends the call and not the process.
func TestPanic(t *testing.T) {
	f := serve(t, querytest.Floats4, func(*scheduler.Item) { panic("defect") })
	_, err := f.oip.ModelInfer(f.ctx(), request("m", floats(1, 2, 3, 4), 4))
	code(t, err, codes.Internal, "internal error")
	s, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(request("m", floats(1, 2, 3, 4), 4)); err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	code(t, err, codes.Internal, "internal error")
}

func TestDocuments(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	if r, err := f.oip.ServerReady(f.ctx(), &pb.ServerReadyRequest{}); err != nil || !r.Ready {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.ServerLive(f.ctx(), &pb.ServerLiveRequest{}); err != nil || !r.Live {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.ModelReady(f.ctx(), &pb.ModelReadyRequest{Name: "f"}); err != nil || !r.Ready {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.ServerMetadata(f.ctx(), &pb.ServerMetadataRequest{}); err != nil || r.Name != "xebec" || r.Version != "7" {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.ModelMetadata(f.ctx(), &pb.ModelMetadataRequest{Name: "m"}); err != nil || r.Versions[0] != "1" || r.Inputs[0].Datatype != "FP32" || r.Inputs[0].Shape[1] != 4 || r.Outputs[0].Shape[0] != -1 {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.ModelConfig(f.ctx(), &pb.ModelConfigRequest{Name: "f"}); err != nil || r.Config.Name != "f" || r.Config.Input[0].DataType != pb.DataType_TYPE_FP32 || r.Config.MaxBatchSize != 8 {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.RepositoryIndex(f.ctx(), &pb.RepositoryIndexRequest{}); err != nil || len(r.Models) != 3 || r.Models[2].Name != "m" || r.Models[2].State != "READY" {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.ModelStatistics(f.ctx(), &pb.ModelStatisticsRequest{Name: "m"}); err != nil || r.ModelStats[0].InferenceCount != 3 || r.ModelStats[0].ExecutionCount != 2 ||
		r.ModelStats[0].InferenceStats.Queue.Count != 8 || r.ModelStats[0].InferenceStats.Queue.Ns != 30 || r.ModelStats[0].InferenceStats.CacheHit.Count != 5 ||
		r.ModelStats[0].InferenceStats.ComputeInput.Count != 2 || r.ModelStats[0].InferenceStats.ComputeOutput.Count != 2 {
		t.Errorf("%v %v", r, err)
	}
	if r, err := f.oip.ModelStatistics(f.ctx(), &pb.ModelStatisticsRequest{}); err != nil || len(r.ModelStats) != 3 || r.ModelStats[0].Name != "f" || r.ModelStats[0].Version != "" || r.ModelStats[2].Name != "m" || r.ModelStats[2].Version != "1" {
		t.Errorf("%v %v", r, err)
	}
	_, err := f.oip.RepositoryModelLoad(f.ctx(), &pb.RepositoryModelLoadRequest{ModelName: "m"})
	code(t, err, codes.Unimplemented, "xebec apply")
	_, err = f.oip.SystemSharedMemoryRegister(f.ctx(), &pb.SystemSharedMemoryRegisterRequest{})
	code(t, err, codes.Unimplemented, "shared memory")
	_, err = f.oip.ModelReady(f.ctx(), &pb.ModelReadyRequest{Name: "x"})
	code(t, err, codes.NotFound, `"x"`)
	f.ready.Store(false)
	h := healthpb.NewHealthClient(f.conn)
	for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{
		"": healthpb.HealthCheckResponse_NOT_SERVING, "inference.GRPCInferenceService": healthpb.HealthCheckResponse_NOT_SERVING, "f": healthpb.HealthCheckResponse_SERVING,
	} {
		if r, err := h.Check(f.ctx(), &healthpb.HealthCheckRequest{Service: service}); err != nil || r.Status != want {
			t.Errorf("%q: %v %v", service, r, err)
		}
	}
}

// stream answers a query of a model that streams, one output after the other, while its consumer takes them.
type stream struct {
	it      *scheduler.Item
	resume  chan struct{}
	cancels chan struct{}
}

func (s *stream) Resume() {
	select {
	case s.resume <- struct{}{}:
	default:
	}
}

func (s *stream) Cancel() {
	select {
	case s.cancels <- struct{}{}:
	default:
	}
}

// run gives n outputs and then ends the stream with code.
func (s *stream) run(n int, code api.Code) {
	it := s.it
	value := func(i int) []api.Value { return []api.Value{{Data: querytest.Int64(int64(i))}} }
	it.Stream.Open(s)
	it.Outputs, it.Confidence = value(0), math.NaN()
	it.Owner.Answered(it, api.OK)
	for i := 1; i < n; i++ {
		select {
		case <-s.resume:
		case <-s.cancels:
			it.Owner.Released(it, api.Cancelled)
			return
		}
		for ; i < n; i++ {
			it.Stream.Take(value(i), math.NaN())
			if it.Stream.Full() {
				break
			}
		}
	}
	it.Owner.Released(it, code)
}

func streaming(n int, code api.Code) func(it *scheduler.Item) {
	return func(it *scheduler.Item) {
		s := &stream{it, make(chan struct{}, 1), make(chan struct{}, 1)}
		go s.run(n, code)
	}
}

func decoupled(_ *Config, m *query.Model) { m.Streams = true }

func TestModelStreamInfer(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	s, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r := request("m", floats(float32(i), 0, 0, 0), 1, 4)
		if i == 7 {
			r.ModelName = "x"
		}
		r.Id = string(rune('a' + i))
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // in their order; an error of one is not one of the stream
		a, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if a.InferResponse.Id != string(rune('a'+i)) || (a.ErrorMessage != "") != (i == 7) {
			t.Errorf("answer %d: %v", i, a)
		}
		if i != 7 && int(binary.LittleEndian.Uint64(a.InferResponse.RawOutputContents[0])) != i {
			t.Errorf("answer %d: %v", i, a)
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

// TestDecoupled: all outputs of a stream, and the empty response at its end if the client wants one.
func TestDecoupled(t *testing.T) {
	f := serve(t, querytest.Floats4, streaming(50, api.OK), decoupled)
	_, err := f.oip.ModelInfer(f.ctx(), request("m", floats(1, 2, 3, 4), 4))
	code(t, err, codes.Unimplemented, "ModelStreamInfer")
	s, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	r := request("m", floats(1, 2, 3, 4), 4)
	r.Parameters = map[string]*pb.InferParameter{"triton_enable_empty_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
	for i := range 51 {
		a, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		final := a.InferResponse.Parameters["triton_final_response"].GetBoolParam()
		if a.InferResponse.Id != "7" || final != (i == 50) || !final && int(binary.LittleEndian.Uint64(a.InferResponse.RawOutputContents[0])) != i {
			t.Errorf("response %d: %v", i, a)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

func TestDecoupledBroken(t *testing.T) {
	f := serve(t, querytest.Floats4, streaming(3, api.ReplicaLost), decoupled)
	s, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Send(request("m", floats(1, 2, 3, 4), 4)), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	var last *pb.ModelStreamInferResponse
	n := 0
	for ; ; n++ {
		a, err := s.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		last = a
	}
	if n != 4 || last.ErrorMessage != api.ReplicaLost.Reason() {
		t.Errorf("%d responses, the last is %v", n, last)
	}
}

// TestShutdown: calls under way are answered; a call of ModelStreamInfer without a request does not hold the server up.
func TestShutdown(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) { items <- it })
	idle, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	busy, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.Send(request("m", floats(1, 2, 3, 4), 4)); err != nil {
		t.Fatal(err)
	}
	it := <-items
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.server.Shutdown(f.ctx())
	}()
	_, err = idle.Recv()
	code(t, err, codes.Unavailable, "shutting down")
	querytest.Sum(it)
	if a, err := busy.Recv(); err != nil || a.ErrorMessage != "" {
		t.Errorf("%v %v", a, err)
	}
	_, err = busy.Recv()
	code(t, err, codes.Unavailable, "shutting down")
	<-ended
}

// TestDecoupledLeft: a client that leaves ends the stream.
func TestDecoupledLeft(t *testing.T) {
	f := serve(t, querytest.Floats4, streaming(1<<30, api.OK), decoupled)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := f.oip.ModelStreamInfer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(request("m", floats(1, 2, 3, 4), 4)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel() // the fixture waits for the end of the request
}

func tensor(x ...float64) []*xebecpb.Tensor { return []*xebecpb.Tensor{{Numbers: x}} }

func TestFunctions(t *testing.T) {
	fails := false
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		if fails && math.Float32frombits(binary.LittleEndian.Uint32(it.Inputs[0].Data)) == 1 {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Sum(it)
	})
	p, err := f.fns.Predict(f.ctx(), &xebecpb.PredictRequest{Function: "f", Inputs: tensor(1, 2, 3, 4), Options: &xebecpb.Options{Context: "me", SloMs: 500}})
	if err != nil || p.QueryId == 0 || p.Default || p.Confidence != 1 || p.Models[0] != "m@1" || p.Outputs[0].Name != "output" || string(p.Outputs[0].Data) != string(querytest.Int64(10)) {
		t.Errorf("%v %v", p, err)
	}
	if r, err := f.fns.Feedback(f.ctx(), &xebecpb.FeedbackRequest{Function: "f", About: &xebecpb.FeedbackRequest_QueryId{QueryId: 1}, Verdict: &xebecpb.FeedbackRequest_Loss{Loss: 2}}); err == nil {
		t.Errorf("%v", r)
	}
	_, err = f.fns.Feedback(f.ctx(), &xebecpb.FeedbackRequest{Function: "f", About: &xebecpb.FeedbackRequest_QueryId{QueryId: 1}, Verdict: &xebecpb.FeedbackRequest_Correct{Correct: true}})
	code(t, err, codes.NotFound, "no such query")
	fails = true
	queries := []*xebecpb.Query{{Inputs: tensor(1, 2, 3, 4)}, {Inputs: tensor(2, 2, 3, 4)}}
	b, err := f.fns.PredictBatch(f.ctx(), &xebecpb.PredictBatchRequest{Function: "f", Queries: queries})
	if err != nil || !b.Predictions[0].Default || b.Predictions[0].DefaultExplanation == "" || b.Predictions[0].Confidence != 0 || b.Predictions[1].Default {
		t.Errorf("%v %v", b, err)
	}
	b, err = f.fns.PredictBatch(f.ctx(), &xebecpb.PredictBatchRequest{Function: "g", Queries: queries})
	if err != nil || b.Predictions[0].Error.GetCode() != "model_error" || b.Predictions[1].Error != nil {
		t.Errorf("%v %v", b, err)
	}
	_, err = f.fns.Predict(f.ctx(), &xebecpb.PredictRequest{Function: "g", Inputs: tensor(1, 2, 3, 4)})
	code(t, err, codes.Internal, api.ModelError.Reason())
	for _, c := range []struct {
		r    *xebecpb.PredictRequest
		want codes.Code
		text string
	}{
		{&xebecpb.PredictRequest{Function: "x"}, codes.NotFound, `no function "x"`},
		{&xebecpb.PredictRequest{Function: "f"}, codes.InvalidArgument, `inputs: the tensor "input" (float32[4]) is missing`},
		{&xebecpb.PredictRequest{Function: "f", Inputs: tensor(1)}, codes.InvalidArgument, "inputs[0]: 1 elements: expected 4 for the shape [4]"},
		{&xebecpb.PredictRequest{Function: "f", Inputs: []*xebecpb.Tensor{{Name: "y"}}}, codes.InvalidArgument, `inputs[0].name: there is no tensor "y": expected "input"`},
		{&xebecpb.PredictRequest{Function: "f", Inputs: []*xebecpb.Tensor{{Dtype: "int8"}}}, codes.InvalidArgument, `inputs[0].dtype: "int8": expected float32`},
		{&xebecpb.PredictRequest{Function: "f", Inputs: tensor(1, 2, 3, 4), Options: &xebecpb.Options{SloMs: -1}}, codes.InvalidArgument, "slo_ms"},
	} {
		_, err := f.fns.Predict(f.ctx(), c.r)
		code(t, err, c.want, c.text)
	}
	s, err := f.fns.PredictStream(f.ctx(), &xebecpb.PredictRequest{Function: "f", Inputs: tensor(2, 2, 3, 4)})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := s.Recv(); err != nil || string(p.Outputs[0].Data) != string(querytest.Int64(11)) {
		t.Errorf("%v %v", p, err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

// TestVersionAsFunction: the service also asks the version of a model, as name@version or with a label: it has no default, and no options of functions.
func TestVersionAsFunction(t *testing.T) {
	fails := false
	f := serve(t, querytest.Floats4, func(it *scheduler.Item) {
		if fails {
			querytest.End(it, api.ModelError)
			return
		}
		querytest.Sum(it)
	})
	ask := func(name string, o *xebecpb.Options) (*xebecpb.Prediction, error) {
		return f.fns.Predict(f.ctx(), &xebecpb.PredictRequest{Function: name, Inputs: tensor(1, 2, 3, 4), Options: o})
	}
	for _, name := range []string{"m@1", "m@stable"} {
		p, err := ask(name, &xebecpb.Options{Context: "me", SloMs: 30_000, Salt: "s"})
		if err != nil || len(p.Models) != 1 || p.Models[0] != "m@1" || p.Default || string(p.Outputs[0].Data) != string(querytest.Int64(10)) {
			t.Errorf("%s: %v %v", name, p, err)
		}
	}
	b, err := f.fns.PredictBatch(f.ctx(), &xebecpb.PredictBatchRequest{Function: "m@1", Queries: []*xebecpb.Query{{Inputs: tensor(1, 2, 3, 4)}, {Inputs: tensor(2, 2, 3, 4)}}})
	if err != nil || len(b.Predictions) != 2 || string(b.Predictions[1].Outputs[0].Data) != string(querytest.Int64(11)) {
		t.Errorf("%v %v", b, err)
	}
	confidence := 0.5
	_, err = ask("m@1", &xebecpb.Options{MinConfidence: &confidence})
	code(t, err, codes.InvalidArgument, "options.min_confidence: expected none")
	_, err = ask("m@1", &xebecpb.Options{Models: []string{"m"}})
	code(t, err, codes.InvalidArgument, "options.models: expected none")
	_, err = ask("m@7", nil)
	code(t, err, codes.NotFound, `"m@7"`)
	_, err = ask("f@1", nil)
	code(t, err, codes.NotFound, `"f" is a function, which has no version`)
	_, err = ask("m", nil)
	code(t, err, codes.NotFound, `no function "m"`)
	fails = true
	_, err = ask("m@1", nil)
	code(t, err, codes.Internal, api.ModelError.Reason())
}

func TestPredictStream(t *testing.T) {
	f := serve(t, querytest.Floats4, streaming(30, api.OK), decoupled)
	s, err := f.fns.PredictStream(f.ctx(), &xebecpb.PredictRequest{Function: "f", Inputs: tensor(2, 2, 3, 4)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if p, err := s.Recv(); err != nil || string(p.Outputs[0].Data) != string(querytest.Int64(int64(i))) || p.QueryId == 0 {
			t.Fatalf("%d: %v %v", i, p, err)
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	_, err = f.fns.Predict(f.ctx(), &xebecpb.PredictRequest{Function: "f", Inputs: tensor(2, 2, 3, 4)})
	code(t, err, codes.InvalidArgument, "PredictStream")
}

func codeOf(err error) codes.Code { return status.Code(err) }
