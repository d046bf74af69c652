package grpcload

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	modelInfer = "/inference.GRPCInferenceService/ModelInfer"
	// clientsPerConn is how many clients share a connection, as the threads of a program do.
	clientsPerConn = 8
	maxAnswerBytes = 64 << 20
	askOnceWithin  = 10 * time.Second
	// grace is how long the last calls may take.
	grace = 30 * time.Second
)

// rawCodec sends and receives messages as bytes, so that the generator costs little.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	to := v.(*[]byte)
	*to = (*to)[:0]
	for _, b := range data {
		*to = append(*to, b.ReadOnlyData()...)
	}
	return nil
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
}

// AskOnce calls ModelInfer once, on a connection of its own. Request and answer are encoded messages.
func AskOnce(ctx context.Context, addr string, request []byte) (answer []byte, err error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, askOnceWithin)
	defer cancel()
	err = c.Invoke(ctx, modelInfer, &request, &answer)
	return answer, err
}

// Options describe a run. All fields but the hooks and Warmup are required.
type Options struct {
	Addr     string   // host:port
	Requests [][]byte // encoded; every client sends them in turn
	// Accepts returns nil if the answer is right for the request of that index. Clients call it at the same time; it must not keep the answer.
	Accepts          func(request int, answer []byte) error
	Clients          int
	Warmup, Duration time.Duration
	// OnMeasure and OnEnd are called when the measured part begins and when it ends.
	OnMeasure, OnEnd func() error
}

// Result is what a run measured.
type Result struct {
	Completed uint64
	RPS       float64
	// Micros are the latencies of the calls that began and ended in the measured part, ascending.
	Micros []float64
}

// Quantile returns a latency in microseconds.
func (r *Result) Quantile(q float64) float64 { return r.Micros[int(q*float64(len(r.Micros)-1))] }

// Run measures a closed loop of calls. A failed call or a wrong answer ends the run with an error, and so does a run without a completed call.
func Run(ctx context.Context, o Options) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// No deadline in the context: calls would carry it, and cost more.
	giveUp := time.AfterFunc(o.Warmup+o.Duration+grace, cancel)
	defer giveUp.Stop()
	var conns []*grpc.ClientConn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range (o.Clients + clientsPerConn - 1) / clientsPerConn {
		c, err := dial(o.Addr)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	var measuring, ended atomic.Bool
	latencies := make([][]float64, o.Clients)
	failures := make([]error, o.Clients)
	var all sync.WaitGroup
	for i := range o.Clients {
		all.Go(func() {
			latencies[i], failures[i] = client(ctx, o, conns[i/clientsPerConn], i, &measuring, &ended)
		})
	}
	hook := func(call func() error) error {
		if call == nil {
			return nil
		}
		return call()
	}
	err := wait(ctx, o.Warmup)
	err1 := hook(o.OnMeasure)
	measuring.Store(true)
	began := time.Now()
	err = errors.Join(err, err1, wait(ctx, o.Duration))
	measuring.Store(false)
	took := time.Since(began)
	err2 := hook(o.OnEnd)
	ended.Store(true)
	all.Wait()
	if err := errors.Join(append(failures, err, err2)...); err != nil {
		return nil, err
	}
	micros := slices.Concat(latencies...)
	if len(micros) == 0 {
		return nil, errors.New("no call was completed")
	}
	slices.Sort(micros)
	return &Result{Completed: uint64(len(micros)), RPS: float64(len(micros)) / took.Seconds(), Micros: micros}, nil
}

// client calls until the run has ended, and returns the latencies of its measured calls in microseconds.
func client(ctx context.Context, o Options, conn *grpc.ClientConn, number int, measuring, ended *atomic.Bool) (micros []float64, err error) {
	var answer []byte
	for k := number; !ended.Load(); k++ {
		request := k % len(o.Requests)
		counts, began := measuring.Load(), time.Now()
		if err := conn.Invoke(ctx, modelInfer, &o.Requests[request], &answer); err != nil {
			return nil, err
		}
		took := time.Since(began)
		if err := o.Accepts(request, answer); err != nil {
			return nil, err
		}
		if counts && measuring.Load() {
			micros = append(micros, float64(took.Nanoseconds())/1e3)
		}
	}
	return micros, nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
