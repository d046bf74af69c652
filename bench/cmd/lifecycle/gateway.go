package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

const (
	jsonType = "application/json"
	rawType  = "application/octet-stream"
	// maxAnswerBytes bounds what is read of an answer of the admin port: the states of ten thousand models.
	maxAnswerBytes = 64 << 20
)

// gateway is a running `xebec serve` with its folder.
type gateway struct {
	*server.Process
	addr, admin string
	client      *http.Client
	// startSeconds are from the start of the program until /readyz, which is asked every 20 ms, said 200.
	startSeconds float64
}

// newFolder makes a folder for a gateway's files.
func newFolder() (string, error) { return os.MkdirTemp("", "xebec-lifecycle-") }

// start runs a gateway that keeps its files in folder/data, and waits for /readyz. The folder stays when the gateway is stopped.
func start(ctx context.Context, cfg config, folder string, args ...string) (*gateway, error) {
	addr, err1 := server.FreeAddr()
	admin, err2 := server.FreeAddr()
	if err := errors.Join(err1, err2, os.MkdirAll(filepath.Join(folder, "data"), 0o700)); err != nil {
		return nil, err
	}
	g := &gateway{addr: addr, admin: admin, client: &http.Client{Timeout: 5 * time.Minute}}
	began := time.Now()
	args = append([]string{"serve", "--listen", addr, "--admin", admin, "--data-dir", filepath.Join(folder, "data"), "--python", cfg.python, "--log-level", "warn"}, args...)
	p, err := server.Start(ctx, server.Options{Name: "xebec", Program: cfg.xebec, Args: args, Ready: g.ready})
	if err != nil {
		return nil, err
	}
	g.Process, g.startSeconds = p, time.Since(began).Seconds()
	return g, nil
}

func (g *gateway) ready() error {
	res, err := g.client.Get("http://" + g.addr + "/readyz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz: status %d", res.StatusCode)
	}
	return nil
}

// ask sends a request to the admin port and decodes its answer, if into is not nil.
func (g *gateway) ask(ctx context.Context, method, path, contentType, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.admin+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := g.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: status %d, %.500s", method, path, res.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// apply declares what a manifest says.
func (g *gateway) apply(ctx context.Context, manifest string) error {
	return g.ask(ctx, http.MethodPost, "/v1/apply", "application/yaml", manifest, nil)
}

// serving is the version of a model that answers.
func (g *gateway) serving(ctx context.Context, model string) (string, error) {
	var list api.TrafficList
	if err := g.ask(ctx, http.MethodGet, "/v1/traffic/"+model, "", "", &list); err != nil {
		return "", err
	}
	if len(list.Traffic) != 1 {
		return "", fmt.Errorf("traffic of %s: %d rules, expected one", model, len(list.Traffic))
	}
	return list.Traffic[0].Serving, nil
}

// models counts the versions that are declared.
func (g *gateway) models(ctx context.Context) (int, error) {
	var list struct {
		Models []json.RawMessage `json:"models"`
	}
	err := g.ask(ctx, http.MethodGet, "/v1/models", "", "", &list)
	return len(list.Models), err
}

// kill ends the gateway without a warning.
func (g *gateway) kill() error {
	if err := syscall.Kill(g.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	g.Stop() // waits for it
	return nil
}

// residentMegabytes is the memory of a process that is in RAM, shared pages included, in 10⁶ bytes.
func residentMegabytes(pid int) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return parseResident(string(text))
}

func parseResident(status string) (float64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			if err != nil {
				return 0, fmt.Errorf("resident memory %q: %w", line, err)
			}
			return kib * 1024 / 1e6, nil
		}
	}
	return 0, errors.New("no VmRSS in the process's status")
}
