package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/bench/internal/answer"
	"github.com/xebec-serving/xebec/bench/internal/grpcload"
	"github.com/xebec-serving/xebec/bench/internal/processes"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/internal/server"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	// killAfter is how long processes that the server left behind may take to end by themselves.
	killAfter = 5 * time.Second
	// A server is idle when it has used less than idleShare of a core for idleFor. It is waited for up to settleWithin.
	idleFor, idleShare, settleWithin = 100 * time.Millisecond, 0.2, 5 * time.Second
	// maxMetricsBytes bounds a page of metrics.
	maxMetricsBytes = 16 << 20
)

// contender is a running server with one model. Unless it is being measured, it is stopped.
type contender struct {
	peer         *Peer
	model        string
	process      *server.Process
	mark         string // NAME=VALUE in the environment of its processes
	addr         string // HTTP
	grpcAddr     string
	metricsAddr  string
	startSeconds float64

	closed, open []loadgen.Request
	calls        [][]byte // of gRPC
}

// start runs a server with a model, checks its outputs, and stops it until it is measured.
func start(ctx context.Context, cfg config, p *Peer, model string, q Queries) (*contender, error) {
	c := &contender{peer: p, model: model}
	for _, addr := range []*string{&c.addr, &c.grpcAddr, &c.metricsAddr} {
		var err error
		if *addr, err = server.FreeAddr(); err != nil {
			return nil, err
		}
	}
	if p.Split != nil && p.Split.OnFunctionPort {
		c.metricsAddr = c.addr
	}
	for i := range q.Inputs {
		body, right := []byte(fill(p.Body, model, q, i)), []byte(fill(p.Answer, model, q, i))
		path := fill(p.Path, model, q, i)
		c.closed = append(c.closed, loadgen.Request{Wire: loadgen.Render(c.addr, path, loadgen.JSON, body, p.ClosedFields...), Contains: right})
		c.open = append(c.open, loadgen.Request{Wire: loadgen.Render(c.addr, path, loadgen.JSON, body), Contains: right})
		if p.GRPC {
			call, err := encode(model, q.Inputs[i], p.GRPCParameters)
			if err != nil {
				return nil, err
			}
			c.calls = append(c.calls, call)
		}
	}
	folder, err := os.MkdirTemp("", "xp-") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	c.mark = fmt.Sprintf("PEER_RUN=%s-%d-%s", p.Name, os.Getpid(), filepath.Base(folder))
	client := &http.Client{Timeout: 20 * time.Second}
	began := time.Now()
	c.process, err = server.Start(ctx, server.Options{
		Name: p.Name, Program: filepath.Join(p.folder, "start"), Folder: folder, Env: c.environ(cfg), Within: cfg.within,
		Ready: func() error { return c.ready(ctx, client, q) },
	})
	if err != nil {
		return nil, errors.Join(err, c.killLeftovers(processes.Set{}))
	}
	c.startSeconds = time.Since(began).Seconds()
	if err := errors.Join(c.check(ctx, client, q), c.freeze()); err != nil {
		c.stop()
		return nil, fmt.Errorf("%w%s", err, c.process.LastWords())
	}
	return c, nil
}

// environ is what bench/peers/NAME/start and the servers' files read.
func (c *contender) environ(cfg config) []string {
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	return []string{
		c.mark, "PEER_DIR=" + c.peer.folder, "PEER_MODEL=" + c.model, "PEER_MODELS=" + filepath.Join(cfg.environments, "models"),
		"PEER_PORT=" + port(c.addr), "PEER_GRPC_PORT=" + port(c.grpcAddr), "PEER_METRICS_PORT=" + port(c.metricsAddr),
		"PEER_CORES=" + strconv.Itoa(runtime.NumCPU()), "PEER_SLO_MS=" + strconv.FormatInt(cfg.slo.Milliseconds(), 10), "PEER_XEBEC=" + cfg.xebec,
		"PATH=" + filepath.Join(c.peer.environment, "bin") + ":" + os.Getenv("PATH"), "VIRTUAL_ENV=" + c.peer.environment,
		"PYTHONPATH=" + cfg.peers, "PYTHONDONTWRITEBYTECODE=1",
		// A model of this size is slower with threads, and the servers have a process for each core.
		"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
	}
}

// ready returns nil when the server says that it is, and has given a right output.
func (c *contender) ready(ctx context.Context, client *http.Client, q Queries) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addr+fill(c.peer.Ready, c.model, q, 0), nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", c.peer.Ready, res.StatusCode)
	}
	return c.ask(client, q, 0)
}

// ask asks one query and compares the answer with the output of the model.
func (c *contender) ask(client *http.Client, q Queries, i int) error {
	got, err := answer.Of(client, "http://"+c.addr+fill(c.peer.Path, c.model, q, i), loadgen.JSON, []byte(fill(c.peer.Body, c.model, q, i)), c.peer.ClosedFields...)
	if err != nil {
		return err
	}
	if want := fill(c.peer.Answer, c.model, q, i); got.Status != http.StatusOK || !strings.Contains(string(got.Body), want) {
		return fmt.Errorf("query %d: status %d, %.300q; expected 200 with %q", i, got.Status, got.Body, want)
	}
	return nil
}

// check compares the outputs for all queries. The same queries are asked under load.
func (c *contender) check(ctx context.Context, client *http.Client, q Queries) error {
	for i := range q.Inputs {
		if err := c.ask(client, q, i); err != nil {
			return err
		}
		// The text that the load generator looks for must tell one output from another.
		for _, other := range q.Outputs {
			if other != q.Outputs[i] && strings.Contains(fill(c.peer.Answer, c.model, q, i), fill(c.peer.Answer, c.model, Queries{[][]float64{nil}, []int64{other}}, 0)) {
				return fmt.Errorf("the answer %q is found in that of another output, %d", c.peer.Answer, other)
			}
		}
		if c.peer.GRPC {
			got, err := grpcload.AskOnce(ctx, c.grpcAddr, c.calls[i])
			if err == nil {
				err = accepts(got, q.Outputs[i])
			}
			if err != nil {
				return fmt.Errorf("gRPC, query %d: %w", i, err)
			}
		}
	}
	return nil
}

// encode is a query as a message of the Open Inference Protocol.
func encode(model string, input []float64, parameters map[string]int64) ([]byte, error) {
	raw := make([]byte, 0, 4*len(input))
	for _, v := range input {
		bits := math.Float32bits(float32(v))
		raw = append(raw, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	m := &pb.ModelInferRequest{
		ModelName: model, Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "FP32", Shape: []int64{1, int64(len(input))}}}, RawInputContents: [][]byte{raw},
	}
	for name, value := range parameters {
		if m.Parameters == nil {
			m.Parameters = map[string]*pb.InferParameter{}
		}
		m.Parameters[name] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: value}}
	}
	return proto.Marshal(m)
}

// accepts returns nil if the message has that output.
func accepts(message []byte, want int64) error {
	var m pb.ModelInferResponse
	if err := proto.Unmarshal(message, &m); err != nil {
		return err
	}
	var got int64
	switch {
	case len(m.RawOutputContents) > 0 && len(m.RawOutputContents[0]) == 8:
		for i, b := range m.RawOutputContents[0] {
			got |= int64(b) << (8 * i)
		}
	case len(m.Outputs) > 0 && len(m.Outputs[0].GetContents().GetInt64Contents()) == 1:
		got = m.Outputs[0].Contents.Int64Contents[0]
	default:
		return fmt.Errorf("expected one int64, got %.300s", m.String())
	}
	if got != want {
		return wrongOutput{got, want}
	}
	return nil
}

type wrongOutput struct{ got, want int64 }

func (w wrongOutput) Error() string { return fmt.Sprintf("output %d, expected %d", w.got, w.want) }

func (c *contender) processes() (processes.Set, error) {
	set, err := processes.Of(c.process.PID(), c.mark)
	if err == nil && len(set) == 0 {
		err = fmt.Errorf("%s has ended%s", c.peer.Name, c.process.LastWords())
	}
	return set, err
}

// settle waits until the server has finished what a run has left in it, or for a while. A server that was stopped in the middle of it would find
// later that a batch took minutes, and might learn from that.
func (c *contender) settle(ctx context.Context, set processes.Set) error {
	giveUp := time.Now().Add(settleWithin)
	for before := set.CPU(); time.Now().Before(giveUp); {
		if err := runner.Sleep(ctx, idleFor); err != nil {
			return err
		}
		now := set.CPU()
		if now-before < time.Duration(idleShare*float64(idleFor)) {
			return nil
		}
		before = now
	}
	return nil
}

// freeze stops all processes of the server; thaw lets them go on.
func (c *contender) freeze() error {
	for range 2 { // a process may have started another one meanwhile
		set, err := c.processes()
		if err != nil {
			return err
		}
		set.Signal(syscall.SIGSTOP)
	}
	return nil
}

func (c *contender) thaw() (processes.Set, error) {
	set, err := c.processes()
	if err == nil {
		set.Signal(syscall.SIGCONT)
	}
	return set, err
}

// stop ends the server and what it leaves behind.
func (c *contender) stop() {
	set, err := c.thaw()
	c.process.Stop()
	if err := errors.Join(err, c.killLeftovers(set), c.peer.removeLeft(set)); err != nil {
		runner.Logf("    %s: %v", c.peer.Name, err)
	}
}

// removeLeft removes the files that processes of the server have left.
func (p *Peer) removeLeft(set processes.Set) error {
	var failed []error
	for _, pattern := range p.Leaves {
		for _, process := range set {
			files, err := filepath.Glob(strings.ReplaceAll(pattern, "@PID@", strconv.Itoa(process.PID)))
			failed = append(failed, err)
			for _, file := range files {
				failed = append(failed, os.Remove(file))
			}
		}
	}
	return errors.Join(failed...)
}

// killLeftovers kills processes of the server that go on without it, after a moment.
func (c *contender) killLeftovers(set processes.Set) error {
	giveUp := time.Now().Add(killAfter)
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for set.Signal(syscall.Signal(0)) > 0 && time.Now().Before(giveUp) {
		<-poll.C
	}
	set.Signal(syscall.SIGKILL)
	left, err := processes.Of(-1, c.mark)
	left.Signal(syscall.SIGKILL)
	return err
}

// metrics returns the server's page of metrics.
func (c *contender) metrics(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.metricsAddr+"/metrics", nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxMetricsBytes))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("metrics: status %d", res.StatusCode)
	}
	return string(text), err
}
