package xebec_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/process"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/server"
)

// lines is a complete dialect outside the gateway, written with exported names only. CONTRIBUTING.md walks through it. A client sends
// text, one query in each line, to a function that takes one string of bytes. The answer has one line for each query: "= " and the
// output, or "! " and the error.
type lines struct{}

// Routes is called once. Everything that requests share is made here.
func (lines) Routes(p *query.Path) []dialect.Route {
	pool := new(sync.Pool)
	pool.New = func() any {
		c := &linesCall{pool: pool}
		c.Init(p, c)
		return c
	}
	return []dialect.Route{{Method: "POST", Path: "/lines/{function}", Serve: func(x dialect.Exchange) {
		c := pool.Get().(*linesCall)
		c.Open() // from here on exactly one of Drop, Refuse and Submit, which return the call to the pool
		defer c.Request.Abandon()
		if err := c.AskFunction(x.Param("function")); err != nil {
			c.Drop() // there is no function to count the request for
			dialect.Fail(x, lines{}, err)
			return
		}
		if err := c.read(x); err != nil {
			c.Refuse() // counted for the function, as invalid_argument
			dialect.Fail(x, lines{}, err)
			return
		}
		x.Submit(&c.Call)
	}}}
}

// AppendError renders an error.
func (lines) AppendError(dst []byte, e *api.Error) []byte { return appendError(dst, e.Code, e.Message) }

func appendError(dst []byte, code api.Code, reason string) []byte {
	return fmt.Appendf(dst, "! %s: %s\n", code, reason)
}

// linesCall is the state of one request. It embeds dialect.Call, which does what all dialects need.
type linesCall struct {
	dialect.Call
	pool *sync.Pool
}

// read makes a query of each line. It keeps nothing of the exchange: inputs are copied to where Next says.
func (c *linesCall) read(x dialect.Exchange) error {
	if s := &c.Model().Signature; len(s.Inputs) != 1 || len(s.Inputs[0].Shape) != 0 || s.Inputs[0].DType != api.Bytes || len(s.Outputs) != 1 {
		return api.Errorf(api.InvalidArgument, "function %s does not take one string of bytes", c.Function().Name)
	}
	if slo, err := dialect.SLO(x); err != nil {
		return err
	} else if slo > 0 {
		c.Within(slo)
	}
	for line := range bytes.Lines(x.Body()) {
		inputs, err := c.Next()
		if err != nil {
			return err
		}
		inputs[0].Data = append(inputs[0].Data[:0], bytes.TrimSuffix(line, []byte("\n"))...)
	}
	if c.Len() == 0 {
		return api.Errorf(api.InvalidArgument, "expected at least one line, found none")
	}
	return nil
}

// Settled renders the answer when every query has ended, on the goroutine that ended the last one.
func (c *linesCall) Settled() api.Code {
	a, code := &c.Answer, c.Code()
	a.Reset(code.HTTPStatus())
	a.ContentType = "text/plain"
	for i := range c.Len() {
		if q := c.Query(i); q.Code == api.OK {
			a.Body = fmt.Appendf(a.Body, "= %s\n", q.Outputs[0].Data)
		} else {
			a.Body = appendError(a.Body, q.Code, q.Code.Reason())
		}
	}
	return code
}

// Released returns the call to the pool: nothing uses it any more.
func (c *linesCall) Released() { c.pool.Put(c) }

func TestMain(m *testing.M) {
	process.MaybeReaper() // a gateway starts its own program a second time, as the reaper of its workers' processes
	os.Exit(m.Run())
}

// TestADialectIsOnePackage: a real gateway, with a real worker, serves a dialect from outside beside its own dialects.
func TestADialectIsOnePackage(t *testing.T) {
	worker := filepath.Join(t.TempDir(), "echo")
	if out, err := exec.Command("go", "build", "-o", worker, "./worker/bindings/go/examples/echo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(t.TempDir(), "shout.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
kind: Model
name: upper
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: [%s]}
---
kind: Function
name: shout
models: [upper]
slo: 30s
`, worker), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := serveWith(t, server.Config{Manifests: []string{config}, Dialects: []dialect.Dialect{lines{}}})
	for _, c := range []struct {
		path, body, slo string
		status          int
		want            string // beginning of the answer
	}{
		{"/lines/shout", "hello\nworld\n", "", 200, "= HELLO\n= WORLD\n"},
		{"/lines/shout", "hello", "20000", 200, "= HELLO\n"},
		{"/lines/shout", "hello", "soon", 400, "! invalid_argument: header Xebec-Slo-Ms"},
		{"/lines/shout", "", "", 400, "! invalid_argument: expected at least one line"},
		{"/lines/whisper", "hello", "", 404, "! not_found: no function"},
		{"/lines/shout/loud", "hello", "", 404, "! not_found: no route /lines/shout/loud"},
		{"/shout/predict", `{"input":"hello"}`, "", 200, `{"query_id":`},
		{"/v2/models/upper/infer", `{"inputs":[{"name":"input","datatype":"BYTES","shape":[1],"data":["hello"]}]}`, "", 200, `{"model_name":"upper"`},
	} {
		if status, got := postTo(t, "http://"+addr+c.path, c.body, c.slo); status != c.status || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %q is answered %d %q, want %d %q", c.path, c.body, status, got, c.status, c.want)
		}
	}
}

// serveWith runs a gateway until the test ends.
func serveWith(t *testing.T, cfg server.Config) (addr string) {
	t.Helper()
	started, done := make(chan string, 1), make(chan error, 1)
	cfg.Listen, cfg.Admin, cfg.Logger = "127.0.0.1:0", "127.0.0.1:0", zap.NewNop()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- server.Run(ctx, cfg, func(listen, _ string) { started <- listen }) }()
	select {
	case addr = <-started:
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return addr
}

func postTo(t *testing.T, url, body, slo string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if slo != "" {
		req.Header.Set("Xebec-Slo-Ms", slo)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
