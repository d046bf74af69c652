package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/answer"
)

const (
	// readyWithin is generous: a Python worker imports scikit-learn on a busy machine.
	readyWithin = 60 * time.Second
	pollEvery   = 20 * time.Millisecond
	stopWithin  = 15 * time.Second
	// tailBytes of the gateway's output are kept for the error message.
	tailBytes = 4 << 10

	rawType = "application/octet-stream"
)

// gateway is a running `xebec serve` with its workers.
type gateway struct {
	addr, admin string
	cmd         *exec.Cmd
	output      *tail
	exited      chan struct{}
}

// startGateway runs the real program with the models of the folder, and waits until both answer.
func startGateway(ctx context.Context, cfg config, s setting, d *data) (*gateway, error) {
	addr, err1 := freeAddr()
	admin, err2 := freeAddr()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	g := &gateway{addr: addr, admin: admin, output: &tail{}, exited: make(chan struct{})}
	g.cmd = exec.Command(cfg.xebec, "serve", "--config", filepath.Join(cfg.models, "overload"), "--config", filepath.Join(cfg.models, "overload-stuck"),
		"--listen", addr, "--admin", admin, "--python", cfg.python, "--epoch", s.epoch.String(),
		// The stuck model's batch is never done: there is nothing to wait for.
		"--drain-timeout", "1s")
	g.cmd.Stdout, g.cmd.Stderr = g.output, g.output
	// A Ctrl-C is for this program, which then stops the gateway; a terminal would send it to both at once.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start xebec: %w", err)
	}
	go func() {
		_ = g.cmd.Wait() // the state says how it ended
		close(g.exited)
	}()
	if err := g.await(ctx, d); err != nil {
		g.stop()
		return nil, fmt.Errorf("start xebec: %w\nits last words:\n%s", err, g.output)
	}
	return g, nil
}

// await waits until every model answers: a model that has failed is "ready" too, so that readiness is no proof.
func (g *gateway) await(ctx context.Context, d *data) error {
	giveUp := time.After(readyWithin)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	ready := func() error {
		got, err := answer.Of(client, "http://"+g.addr+"/"+flood+"/predict", rawType, d.rows[0])
		if err != nil {
			return err
		}
		if got.Status != 200 || !bytes.Contains(got.Body, d.wants[0]) {
			return fmt.Errorf("status %d, %.200s", got.Status, got.Body)
		}
		// The stuck model answers nobody; its replica counts here.
		status, err := client.Get("http://" + g.addr + "/readyz")
		if err != nil {
			return err
		}
		defer status.Body.Close()
		if status.StatusCode != 200 {
			return fmt.Errorf("readyz: status %d", status.StatusCode)
		}
		return nil
	}
	err := errors.New("not asked yet")
	for err != nil {
		select {
		case <-poll.C:
			err = ready()
		case <-ctx.Done():
			return ctx.Err()
		case <-g.exited:
			return errors.New("it ended")
		case <-giveUp:
			return fmt.Errorf("not ready after %s: %w", readyWithin, err)
		}
	}
	return nil
}

// stop ends the gateway, gently first.
func (g *gateway) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-g.exited:
	case <-time.After(stopWithin):
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - tailBytes; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// freeAddr is an address that was free a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
