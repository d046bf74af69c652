package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const modelInfer = "/inference.GRPCInferenceService/ModelInfer"

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
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))
}

// askOnce calls a server once, on a connection of its own.
func askOnce(ctx context.Context, addr string, request []byte) (answer []byte, err error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = c.Invoke(ctx, modelInfer, &request, &answer)
	return answer, err
}

// clientsPerConn is how many clients share a connection, as the threads of a program do.
const clientsPerConn = 8

// load measures a closed loop of calls.
func load(ctx context.Context, cfg config, s scenario, request []byte, to *target) (Sample, error) {
	want, err := askOnce(ctx, to.addr, request)
	if err != nil {
		return Sample{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var conns []*grpc.ClientConn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range (s.clients + clientsPerConn - 1) / clientsPerConn {
		c, err := dial(to.addr)
		if err != nil {
			return Sample{}, err
		}
		conns = append(conns, c)
	}
	var measuring, ended atomic.Bool
	latencies := make([][]time.Duration, s.clients)
	failures := make([]error, s.clients)
	var all sync.WaitGroup
	for i := range s.clients {
		all.Go(func() {
			var answer []byte
			for !ended.Load() {
				counts, began := measuring.Load(), time.Now()
				if failures[i] = conns[i/clientsPerConn].Invoke(ctx, modelInfer, &request, &answer); failures[i] != nil {
					return
				}
				if !bytes.Equal(answer, want) {
					failures[i] = errors.New("an answer is not that of the first call")
					return
				}
				if counts && measuring.Load() {
					latencies[i] = append(latencies[i], time.Since(began))
				}
			}
		})
	}
	wait := func(d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err = wait(cfg.warmup)
	before, err1 := to.CPU()
	measuring.Store(true)
	began := time.Now()
	err = errors.Join(err, err1, wait(cfg.duration))
	measuring.Store(false)
	took := time.Since(began)
	after, err2 := to.CPU()
	ended.Store(true)
	all.Wait()
	if err := errors.Join(append(failures, err, err2)...); err != nil {
		return Sample{}, err
	}
	sorted := slices.Concat(latencies...)
	slices.Sort(sorted)
	if len(sorted) == 0 {
		return Sample{}, errors.New("no call was completed")
	}
	at := func(q float64) float64 { return float64(sorted[int(q*float64(len(sorted)-1))].Nanoseconds()) / 1e3 }
	return Sample{
		Completed: uint64(len(sorted)), RPS: float64(len(sorted)) / took.Seconds(), CPUMicros: float64((after - before).Nanoseconds()) / 1e3 / float64(len(sorted)),
		P50Micros: at(0.5), P99Micros: at(0.99),
	}, nil
}

// serveUntil serves until ctx ends.
func serveUntil(ctx context.Context, s *grpc.Server, addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	return s.Serve(ln)
}
