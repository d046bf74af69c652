package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/xebec-serving/xebec/bench/internal/grpcload"
)

// load measures a closed loop of calls.
func load(ctx context.Context, cfg config, s scenario, request []byte, to *target) (Sample, error) {
	want, err := grpcload.AskOnce(ctx, to.addr, request)
	if err != nil {
		return Sample{}, err
	}
	var before, after time.Duration
	result, err := grpcload.Run(ctx, grpcload.Options{
		Addr: to.addr, Requests: [][]byte{request}, Clients: s.clients, Warmup: cfg.warmup, Duration: cfg.duration,
		Accepts: func(_ int, answer []byte) error {
			if !bytes.Equal(answer, want) {
				return errors.New("an answer is not that of the first call")
			}
			return nil
		},
		OnMeasure: func() (err error) { before, err = to.CPU(); return err },
		OnEnd:     func() (err error) { after, err = to.CPU(); return err },
	})
	if err != nil {
		return Sample{}, err
	}
	return Sample{
		Completed: result.Completed, RPS: result.RPS, CPUMicros: float64((after - before).Nanoseconds()) / 1e3 / float64(result.Completed),
		P50Micros: result.Quantile(0.5), P99Micros: result.Quantile(0.99),
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
