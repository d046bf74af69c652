package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	// profileSeconds is some hundred samples a core at the profiler's 100 a second.
	profileSeconds = 4
	// profileLines is how much of it goes into the report.
	profileLines = 25
	// maxProfileBytes bounds what is read; profiles have some 100 KiB.
	maxProfileBytes = 16 << 20
)

// profile says where the gateway's CPU time goes under a scenario: the head of `go tool pprof -top`. The load is put on once more for
// it, so that no measured run pays for the profiler.
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
	data, err := fetchProfile(ctx, fmt.Sprintf("http://%s/v1/profile/cpu?seconds=%d", xebec.admin, profileSeconds))
	if err != nil {
		cancel()
		return "", errors.Join(err, <-done)
	}
	if err := <-done; err != nil {
		return "", err
	}
	file := filepath.Join(xebec.dir, "cpu.pprof")
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

func fetchProfile(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProfileBytes))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d: %.200s", url, resp.StatusCode, data)
	}
	return data, nil
}

// table leaves the heading of pprof's output out, which names the file and the day.
func table(top string) string {
	if i := strings.Index(top, "      flat "); i >= 0 {
		top = top[i:]
	}
	return strings.TrimRight(top, "\n") + "\n"
}
