package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/server"
)

// maxAnswerBytes bounds what is read of an answer of the admin port: the states of ten thousand models.
const maxAnswerBytes = 64 << 20

// Programs are what a gateway runs with.
type Programs struct {
	Xebec  string // its own program
	Python string // what "python" means in the commands of models
}

// Gateway is a running `xebec serve`.
type Gateway struct {
	*server.Process
	// Addr is of the function port, Admin of the admin port.
	Addr, Admin string
	// StartSeconds are from the start of the program until /readyz, which is asked every 20 ms, said 200.
	StartSeconds float64

	client *http.Client
}

// NewFolder makes a folder for a gateway's files. It is the caller's to remove.
func NewFolder() (string, error) { return os.MkdirTemp("", "xebec-bench-") }

// Start runs a gateway that keeps its files in folder/data, and waits for /readyz. The folder stays when the gateway is stopped.
func Start(ctx context.Context, programs Programs, folder string, args ...string) (*Gateway, error) {
	addr, err1 := server.FreeAddr()
	admin, err2 := server.FreeAddr()
	if err := errors.Join(err1, err2, os.MkdirAll(filepath.Join(folder, "data"), 0o700)); err != nil {
		return nil, err
	}
	g := &Gateway{Addr: addr, Admin: admin, client: &http.Client{Timeout: 5 * time.Minute}}
	began := time.Now()
	args = append([]string{"serve", "--listen", addr, "--admin", admin, "--data-dir", filepath.Join(folder, "data"), "--python", programs.Python, "--log-level", "warn"}, args...)
	p, err := server.Start(ctx, server.Options{Name: "xebec", Program: programs.Xebec, Args: args, Ready: g.ready})
	if err != nil {
		return nil, err
	}
	g.Process, g.StartSeconds = p, time.Since(began).Seconds()
	return g, nil
}

func (g *Gateway) ready() error {
	res, err := g.client.Get("http://" + g.Addr + "/readyz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz: status %d", res.StatusCode)
	}
	return nil
}

// Ask sends a request to the admin port and decodes its answer, if into is not nil.
func (g *Gateway) Ask(ctx context.Context, method, path, contentType, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.Admin+path, strings.NewReader(body))
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

func (g *Gateway) get(ctx context.Context, path string, into any) error {
	return g.Ask(ctx, http.MethodGet, path, "", "", into)
}

// Apply declares what a manifest says.
func (g *Gateway) Apply(ctx context.Context, manifest string) error {
	return g.Ask(ctx, http.MethodPost, "/v1/apply", "application/yaml", manifest, nil)
}

// Serving is the version of a model that answers.
func (g *Gateway) Serving(ctx context.Context, model string) (string, error) {
	var list api.TrafficList
	if err := g.get(ctx, "/v1/traffic/"+model, &list); err != nil {
		return "", err
	}
	if len(list.Traffic) != 1 {
		return "", fmt.Errorf("traffic of %s: %d rules, expected one", model, len(list.Traffic))
	}
	return list.Traffic[0].Serving, nil
}

// Models counts the versions that are declared.
func (g *Gateway) Models(ctx context.Context) (int, error) {
	var list struct {
		Models []json.RawMessage `json:"models"`
	}
	err := g.get(ctx, "/v1/models", &list)
	return len(list.Models), err
}

// Model is a model with one version as it stands, with the last lines of its replicas.
func (g *Gateway) Model(ctx context.Context, name string) (*api.ModelStatus, error) {
	var list api.ModelList
	if err := g.get(ctx, "/v1/models/"+name, &list); err != nil {
		return nil, err
	}
	if len(list.Models) != 1 {
		return nil, fmt.Errorf("model %s: %d versions, expected one", name, len(list.Models))
	}
	return &list.Models[0], nil
}

// Status is the gateway as it stands.
func (g *Gateway) Status(ctx context.Context) (*api.GatewayStatus, error) {
	out := new(api.GatewayStatus)
	return out, g.get(ctx, "/v1/describe/gateway", out)
}

// Kill ends the gateway without a warning.
func (g *Gateway) Kill() error {
	if err := syscall.Kill(g.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	g.Stop() // waits for it
	return nil
}
