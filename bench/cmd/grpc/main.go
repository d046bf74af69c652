// Command grpc measures what Xebec costs above a bare grpc-go server: the whole path (gRPC, query, batch, ring, no-op worker and back) against a handler
// of generated code that reads the same ModelInferRequest and answers the same ModelInferResponse.
//
// The two run as processes of their own, with the same number of Ps, and are measured in turn, as cmd/compare does it for HTTP. What counts is the CPU time of
// the server's process per completed call, and the median latency with one client. METHOD.md in bench/ says what the numbers mean.
//
//	grpc -pairs 5 -duration 4s
//
// Progress goes to stderr, the results to bench/results/<date>-grpc.json and .md. The exit status is 1 if a call failed or was answered wrongly. A missed target
// is in the report and is not an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/grpcload"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

type config struct {
	gateway.Programs
	worker           string
	pairs            int
	warmup, duration time.Duration
	procs            int
	out              string
}

// scenario is one load: calls with a raw tensor of so many floats, of so many clients at a time.
type scenario struct {
	name                     string
	floats, clients          int
	maxCPURatio, maxP50Ratio float64
}

var scenarios = []scenario{
	{"40 B, 64 clients", 10, 64, 1.5, 0},
	{"3 KiB, 64 clients", 784, 64, 1.5, 0},
	{"600 KiB, 16 clients", 150 << 10, 16, 1.5, 0},
	{"40 B, 1 client", 10, 1, 0, 0},
}

func main() { runner.Main("grpc", run) }

func run(ctx context.Context) error {
	cfg := config{}
	runner.Xebec.Var(&cfg.Xebec)
	runner.Worker.Var(&cfg.worker)
	flag.IntVar(&cfg.pairs, "pairs", 5, "pairs of runs in each scenario")
	flag.DurationVar(&cfg.warmup, "warmup", time.Second, "before each run, not measured")
	flag.DurationVar(&cfg.duration, "duration", 4*time.Second, "of each run")
	flag.IntVar(&cfg.procs, "procs", 2, "GOMAXPROCS of both servers")
	only := flag.String("only", "", "regular `expression`: scenarios to run")
	echo := flag.String("echo", "", "`address` to serve at as the bare server; the program starts itself with it")
	answer := flag.String("answer", "", "`file` with the bare server's answer")
	runner.Out.Var(&cfg.out)
	if err := runner.ParseFlags(); err != nil {
		return err
	}
	if *echo != "" {
		return serveEcho(ctx, *echo, *answer)
	}
	if cfg.pairs < 1 || cfg.duration <= 0 || cfg.warmup < 0 || cfg.procs < 1 {
		return errors.New("-pairs and -procs must be at least 1, -duration more than 0, -warmup not negative")
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if err := runner.Resolve("`make bench` builds everything first", &cfg.Xebec, &cfg.worker); err != nil {
		return err
	}
	report := &Report{Taken: results.Now(), Pairs: cfg.pairs, WarmupSeconds: cfg.warmup.Seconds(), DurationSeconds: cfg.duration.Seconds(), Procs: cfg.procs}
	xebec, err := startXebec(ctx, cfg)
	if err != nil {
		return err
	}
	defer xebec.Stop()
	for _, s := range scenarios {
		if !chosen.MatchString(s.name) {
			continue
		}
		m, err := measure(ctx, cfg, s, xebec)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		report.Scenarios = append(report.Scenarios, *m)
	}
	return runner.Publish(cfg.out, "grpc", report)
}

// target is a server under test.
type target struct {
	*server.Process
	addr string
}

func (c *config) env() []string { return []string{fmt.Sprintf("GOMAXPROCS=%d", c.procs)} }

const noopManifest = `kind: Model
name: noop
version: "1"
inputs:  [{name: input, dtype: float32, shape: [-1]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [%q, "-mode", "noop"]}
cache: off
`

// startXebec runs a gateway with one no-op model.
func startXebec(ctx context.Context, cfg config) (*target, error) {
	addr, err := server.FreeAddr()
	if err != nil {
		return nil, err
	}
	request, err := (&scenario{floats: 4}).request()
	if err != nil {
		return nil, err
	}
	g, err := gateway.Start(ctx, gateway.Options{
		Programs: cfg.Programs, Files: map[string]string{"noop.yaml": fmt.Sprintf(noopManifest, cfg.worker)}, Configs: []string{"noop.yaml"},
		Args: []string{"--grpc-listen", addr, "--data-dir", "none"}, Env: cfg.env(),
		Ready: func(*gateway.Gateway) error { _, err := grpcload.AskOnce(ctx, addr, request); return err },
	})
	if err != nil {
		return nil, err
	}
	return &target{g.Process, addr}, nil
}

// startEcho runs the bare server with the answer that xebec gives to the scenario's request.
func startEcho(ctx context.Context, cfg config, request []byte, xebec *target) (*target, error) {
	answer, err := grpcload.AskOnce(ctx, xebec.addr, request)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(answer, new(pb.ModelInferResponse)); err != nil {
		return nil, fmt.Errorf("the gateway's answer: %w", err)
	}
	dir, err := os.MkdirTemp("", "xebec-echo-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "answer")
	addr, err1 := server.FreeAddr()
	program, err2 := os.Executable()
	if err := errors.Join(err1, err2, os.WriteFile(file, answer, 0o600)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p, err := server.Start(ctx, server.Options{
		Name: "echo", Program: program, Args: []string{"-echo", addr, "-answer", file}, Folder: dir, Env: cfg.env(),
		Ready: func() error {
			got, err := grpcload.AskOnce(ctx, addr, request)
			if err == nil && len(got) != len(answer) {
				err = fmt.Errorf("the bare server answers %d bytes, xebec %d", len(got), len(answer))
			}
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return &target{p, addr}, nil
}

// request is the message of the scenario's calls.
func (s *scenario) request() ([]byte, error) {
	return proto.Marshal(&pb.ModelInferRequest{
		ModelName: "noop", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "FP32", Shape: []int64{1, int64(s.floats)}}}, RawInputContents: [][]byte{make([]byte, 4*s.floats)},
	})
}

func measure(ctx context.Context, cfg config, s scenario, xebec *target) (*Measurement, error) {
	request, err := s.request()
	if err != nil {
		return nil, err
	}
	echo, err := startEcho(ctx, cfg, request, xebec)
	if err != nil {
		return nil, err
	}
	defer echo.Stop()
	m := &Measurement{Name: s.name, Clients: s.clients, MaxCPURatio: s.maxCPURatio, MaxP50Ratio: s.maxP50Ratio}
	for i := range cfg.pairs {
		var p Pair
		for _, server := range runner.Alternate(i, echo, xebec) {
			sample, err := load(ctx, cfg, s, request, server)
			if err != nil {
				return nil, fmt.Errorf("%s: %w%s", server.Name, err, server.LastWords())
			}
			if server == echo {
				p.Echo = sample
			} else {
				p.Xebec = sample
			}
		}
		m.Pairs = append(m.Pairs, p)
		runner.Logf("    %-22s pair %d: CPU %6.2f → %6.2f µs (%.2f ×)   p50 %7.1f → %7.1f µs (%.2f ×)   %7.0f → %7.0f calls/s", s.name, i+1,
			p.Echo.CPUMicros, p.Xebec.CPUMicros, p.CPURatio(), p.Echo.P50Micros, p.Xebec.P50Micros, p.P50Ratio(), p.Echo.RPS, p.Xebec.RPS)
	}
	return m, nil
}

// echoServer is the bare server.
type echoServer struct {
	pb.UnimplementedGRPCInferenceServiceServer
	answer *pb.ModelInferResponse
}

func (e *echoServer) ModelInfer(context.Context, *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	return e.answer, nil
}

// serveEcho is the program as the bare server.
func serveEcho(ctx context.Context, addr, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	e := &echoServer{answer: new(pb.ModelInferResponse)}
	if err := proto.Unmarshal(data, e.answer); err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	pb.RegisterGRPCInferenceServiceServer(s, e)
	return serveUntil(ctx, s, addr)
}
