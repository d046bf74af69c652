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

// Programs are the programs that a gateway runs with.
type Programs struct {
	Xebec  string // the gateway
	Python string // the interpreter for "python" in the commands of models; empty: the gateway's default
}

// Options say how to start a gateway.
type Options struct {
	Programs
	// Folder is the gateway's folder. Empty: Start makes a temporary one.
	Folder string
	// Temporary makes Folder the gateway's working directory, and removes it when the gateway stops or fails to start. A folder that
	// Start makes is always temporary.
	Temporary bool
	// Store keeps the gateway's state in Folder/data. Without it the gateway stores nothing.
	Store bool
	// Files are written to Folder before the start; the keys are relative paths.
	Files map[string]string
	// Configs are the manifests to start with, as paths. A relative path is below Folder.
	Configs []string
	Args    []string // more arguments of xebec serve
	Env     []string // beside this process's
	Cores   []int    // processors to run on; none: all
	// Ready asks the gateway a question. Start calls it until it returns nil; nil means Gateway.Ready.
	Ready func(*Gateway) error
}

// Gateway is a running `xebec serve`.
type Gateway struct {
	*server.Process
	// Addr is the address of the function port, Admin of the admin port.
	Addr, Admin string
	Folder      string
	// StartSeconds is the time from the start of the program until it was ready. Start asks every 20 ms.
	StartSeconds float64

	client *http.Client
}

// NewFolder makes a folder for a gateway's files. The caller removes it.
func NewFolder() (string, error) { return os.MkdirTemp("", "xebec-bench-") }

// Start runs a gateway and waits until it is ready.
func Start(ctx context.Context, o Options) (*Gateway, error) {
	g := &Gateway{Folder: o.Folder, client: &http.Client{Timeout: 5 * time.Minute}}
	if g.Folder == "" {
		var err error
		if g.Folder, err = NewFolder(); err != nil {
			return nil, err
		}
		o.Temporary = true
	}
	owned := "" // the folder that the process removes
	if o.Temporary {
		owned = g.Folder
	}
	args, err := o.prepare(g)
	if err != nil {
		if o.Temporary {
			err = errors.Join(err, os.RemoveAll(owned))
		}
		return nil, err
	}
	ready := o.Ready
	if ready == nil {
		ready = (*Gateway).Ready
	}
	began := time.Now()
	g.Process, err = server.Start(ctx, server.Options{
		Name: "xebec", Program: o.Xebec, Args: args, Env: o.Env, Folder: owned, Cores: o.Cores, Ready: func() error { return ready(g) },
	})
	if err != nil {
		return nil, err
	}
	g.StartSeconds = time.Since(began).Seconds()
	return g, nil
}

// prepare chooses the addresses, writes the files and returns the arguments of xebec.
func (o *Options) prepare(g *Gateway) ([]string, error) {
	var err1, err2 error
	g.Addr, err1 = server.FreeAddr()
	g.Admin, err2 = server.FreeAddr()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for name, text := range o.Files {
		file := filepath.Join(g.Folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			return nil, err
		}
	}
	args := []string{"serve", "--listen", g.Addr, "--admin", g.Admin, "--log-level", "warn"}
	if o.Python != "" {
		args = append(args, "--python", o.Python)
	}
	for _, c := range o.Configs {
		if !filepath.IsAbs(c) {
			c = filepath.Join(g.Folder, c)
		}
		args = append(args, "--config", c)
	}
	if o.Store {
		data := filepath.Join(g.Folder, "data")
		if err := os.MkdirAll(data, 0o700); err != nil {
			return nil, err
		}
		args = append(args, "--data-dir", data)
	}
	return append(args, o.Args...), nil
}

// Ready asks /readyz. A gateway whose model has failed is ready, too: only an answer proves that a model works.
func (g *Gateway) Ready() error {
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

// fetch sends a request to the admin port. A status other than 200 is an error.
func (g *Gateway) fetch(ctx context.Context, method, path, contentType, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.Admin+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := g.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: status %d, %.500s", method, path, res.StatusCode, text)
	}
	return text, nil
}

// Ask sends a request to the admin port and decodes the JSON answer into into, unless that is nil.
func (g *Gateway) Ask(ctx context.Context, method, path, contentType, body string, into any) error {
	text, err := g.fetch(ctx, method, path, contentType, body)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

func (g *Gateway) get(ctx context.Context, path string, into any) error {
	return g.Ask(ctx, http.MethodGet, path, "", "", into)
}

// Profile returns a CPU profile of the gateway over so many seconds.
func (g *Gateway) Profile(ctx context.Context, seconds int) ([]byte, error) {
	return g.fetch(ctx, http.MethodGet, fmt.Sprintf("/v1/profile/cpu?seconds=%d", seconds), "", "")
}

// Apply declares the objects of a manifest.
func (g *Gateway) Apply(ctx context.Context, manifest string) error {
	return g.Ask(ctx, http.MethodPost, "/v1/apply", "application/yaml", manifest, nil)
}

// Serving returns the version of a model that answers.
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

// Models returns the number of declared versions.
func (g *Gateway) Models(ctx context.Context) (int, error) {
	var list struct {
		Models []json.RawMessage `json:"models"`
	}
	err := g.get(ctx, "/v1/models", &list)
	return len(list.Models), err
}

// Model returns the status of a model that has one version, including the last log lines of its replicas.
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

// ModelsReady returns an error that names the models without a ready replica, and says why they have none. Ready is true of a gateway whose models
// have failed.
func (g *Gateway) ModelsReady(ctx context.Context) error {
	var list api.ModelList
	if err := g.get(ctx, "/v1/models", &list); err != nil {
		return err
	}
	var errs []error
	for i := range list.Models {
		m := &list.Models[i]
		if m.ReadyReplicas() > 0 {
			continue
		}
		why := string(m.State)
		for _, c := range m.Conditions {
			if c.Type == "Ready" {
				why += ": " + c.Message
			}
		}
		errs = append(errs, fmt.Errorf("model %s has no ready replica: %s", m.Spec.Name, why))
	}
	return errors.Join(errs...)
}

// Status returns the status of the gateway.
func (g *Gateway) Status(ctx context.Context) (*api.GatewayStatus, error) {
	out := new(api.GatewayStatus)
	return out, g.get(ctx, "/v1/describe/gateway", out)
}

// Kill ends the gateway with SIGKILL.
func (g *Gateway) Kill() error {
	if err := syscall.Kill(g.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	g.Stop() // waits for the end of the process
	return nil
}
