package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	// profileSeconds gives some hundred samples per core at the profiler's rate of 100 a second.
	profileSeconds = 4
	// profileLines is the number of functions in the report.
	profileLines = 25
)

// profile says where the gateway's CPU time goes under a scenario: the head of `go tool pprof -top`. It runs the load once more, so that no
// measured run pays for the profiler.
func profile(ctx context.Context, cfg config, s scenario, xebec *serverProcess) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		opts := s.load(cfg, xebec.addr)
		opts.Warmup, opts.Duration = 0, (profileSeconds+1)*time.Second
		_, err := loadgen.Run(ctx, opts)
		done <- err
	}()
	data, err := xebec.gateway.Profile(ctx, profileSeconds)
	if err != nil {
		cancel()
		return "", errors.Join(err, <-done)
	}
	if err := <-done; err != nil {
		return "", err
	}
	file := filepath.Join(xebec.gateway.Folder, "cpu.pprof")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", err
	}
	tool := os.Getenv("GO")
	if tool == "" {
		tool = "go"
	}
	top, err := exec.CommandContext(ctx, tool, "tool", "pprof", "-top", fmt.Sprintf("-nodecount=%d", profileLines), file).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go tool pprof: %w: %s", err, top)
	}
	return table(string(top)), nil
}

// table strips the heading of pprof's output, which names the file and the day.
func table(top string) string {
	if i := strings.Index(top, "      flat "); i >= 0 {
		top = top[i:]
	}
	return strings.TrimRight(top, "\n") + "\n"
}
