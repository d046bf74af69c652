package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	// takeoverRate is the rate of all requests, half of them on connections that are kept and half on fresh ones.
	takeoverRate = 2000
	// takeoverConnections bounds each half. At 1,000 requests a second and 1 ms each, one or two are used.
	takeoverConnections = 64
	// takeoverDrain is the old process's --drain-timeout. The load goes on for as much longer.
	takeoverDrain = 2 * time.Second
	// takeoverWithin is more than a takeover needs.
	takeoverWithin = 2 * time.Minute
	takeoverModels = `kind: Model
name: echo
version: "1"
inputs:  [{name: input, dtype: float32, shape: [-1]}]
outputs: [{name: output, dtype: float32, shape: [-1]}]
run: {command: %s}
replicas: {min: 2, max: 2}
cache: off
---
kind: Function
name: echo
models: [echo]
slo: 5s
`
	takeoverQuery  = `{"input":[0.5,1.25,-3.75]}`
	takeoverAnswer = `"output":[0.5,1.25,-3.75]`
)

// Takeover is one upgrade of the gateway under load, by itself or after a canary. The first one of a report is none: the same load alone.
type Takeover struct {
	Kind string `json:"kind"` // "none" or "takeover"
	// Seconds is how long `xebec upgrade` took, and EndSeconds how long after its start the old process had ended.
	Seconds    float64 `json:"seconds,omitempty"`
	EndSeconds float64 `json:"end_seconds,omitempty"`
	Kept       Half    `json:"kept"`
	Fresh      Half    `json:"fresh"`
}

// Half are the requests on one kind of connections.
type Half struct {
	Queries   uint64  `json:"queries"`
	Failed    uint64  `json:"failed"`
	FailedWhy string  `json:"failed_why,omitempty"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
}

func (t *Takeover) failed() uint64 { return t.Kept.Failed + t.Fresh.Failed }

// measureTakeovers upgrades a gateway to its own program, again and again.
func measureTakeovers(ctx context.Context, cfg config, report *Report) (err error) {
	command, err := json.Marshal([]string{cfg.worker, "-mode", "echo"})
	if err != nil {
		return err
	}
	folder, err := gateway.NewFolder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	g, err := gateway.Start(ctx, gateway.Options{
		Programs: cfg.Programs, Folder: folder, Store: true, Files: map[string]string{"echo.yaml": fmt.Sprintf(takeoverModels, command)}, Configs: []string{"echo.yaml"},
		Args: []string{"--drain-timeout", takeoverDrain.String()},
	})
	if err != nil {
		return err
	}
	defer g.Stop()
	pid := g.PID()
	defer func() {
		if pid != g.PID() {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGTERM), ended(ctx, pid))
		}
	}()
	for i := range cfg.takeovers + 1 {
		t := Takeover{Kind: "takeover"}
		change := func(ctx context.Context) error {
			next, err := upgrade(ctx, cfg, filepath.Join(folder, "data"), &t, pid)
			if next != 0 {
				pid = next
			}
			return err
		}
		if i == 0 {
			t.Kind, change = "none", func(context.Context) error { return nil }
		}
		if err := t.play(ctx, cfg, g.Addr, uint64(i), change); err != nil {
			return fmt.Errorf("takeover %d: %w%s", i, err, g.LastWords())
		}
		report.Takeovers = append(report.Takeovers, t)
		runner.Logf("    %-8s %2d of %d after %5.2f s, the old process ended after %5.2f s; kept: P99 %6.2f ms, fresh: P99 %6.2f ms; %d failed of %d", t.Kind, i, cfg.takeovers,
			t.Seconds, t.EndSeconds, t.Kept.P99, t.Fresh.P99, t.failed(), t.Kept.Queries+t.Fresh.Queries)
	}
	return nil
}

// play sends both halves of the load for two windows, and makes the change after a quarter of one.
func (t *Takeover) play(ctx context.Context, cfg config, addr string, seed uint64, change func(context.Context) error) error {
	half := func(into *Half, fresh bool, seed uint64, fields ...string) error {
		r, err := loadgen.Run(ctx, loadgen.Options{
			Addr: addr, Connections: takeoverConnections, Fresh: fresh, Rate: takeoverRate / 2, Seed: seed, Duration: 2*cfg.window + takeoverDrain,
			Requests: []loadgen.Request{{Wire: loadgen.Render(addr, "/echo/predict", loadgen.JSON, []byte(takeoverQuery), fields...), Contains: []byte(takeoverAnswer)}},
		})
		if err != nil {
			return err
		}
		*into = Half{Queries: r.Completed, Failed: r.Failed(), P50: r.Latency.P50 / 1e3, P99: r.Latency.P99 / 1e3, Max: r.Latency.Max / 1e3}
		if err := r.Clean(); err != nil {
			into.FailedWhy = err.Error()
		}
		return nil
	}
	done := make(chan error, 3)
	go func() { done <- half(&t.Kept, false, 2*seed) }()
	go func() { done <- half(&t.Fresh, true, 2*seed+1, "Connection: close") }()
	go func() {
		begin := time.NewTimer(cfg.window / 4)
		defer begin.Stop()
		select {
		case <-begin.C:
			done <- change(ctx)
		case <-ctx.Done():
			done <- ctx.Err()
		}
	}()
	return errors.Join(<-done, <-done, <-done)
}

// upgrade replaces the gateway's process, and waits until the old one has ended.
func upgrade(ctx context.Context, cfg config, dataDir string, t *Takeover, old int) (pid int, err error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, cfg.Xebec, "upgrade", "--data-dir", dataDir, "-o", "json")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return 0, err
	}
	t.Seconds = time.Since(began).Seconds()
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var step struct {
			PID   int    `json:"pid"`
			Stage string `json:"stage"`
		}
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			return 0, err
		}
		if step.Stage == "serving" {
			pid = step.PID
		}
	}
	if pid == 0 {
		return 0, fmt.Errorf("the upgrade names no process: %s", out)
	}
	err = ended(ctx, old)
	t.EndSeconds = time.Since(began).Seconds()
	return pid, err
}

// ended waits until a process has ended. Its parent, which may be process 1, may take notice later.
func ended(ctx context.Context, pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	defer unix.Close(process)
	return runner.Until(ctx, pollServing, takeoverWithin, fmt.Sprintf("process %d has ended", pid), func(context.Context) (bool, error) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1, nil
	})
}
