package apptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// patient is the latency objective of requests in tests that do not depend on latency.
const patient = "60000"

// prediction is the result of one query in the native dialect.
type prediction struct {
	QueryID            *uint64         `json:"query_id"`
	Output             json.RawMessage `json:"output"`
	Default            bool            `json:"default"`
	DefaultExplanation string          `json:"default_explanation"`
	Confidence         float64         `json:"confidence"`
	Models             []string        `json:"models"`
	Late               []string        `json:"late"`
	Failed             []string        `json:"failed"`
	Dropped            []string        `json:"dropped"`
	Error              string          `json:"error"`
	Cause              string          `json:"cause"`
	Code               string          `json:"code"`
}

// answer is one HTTP answer.
type answer struct {
	prediction
	Batch  []prediction `json:"batch_predictions"`
	Status int          `json:"-"`
	Header http.Header  `json:"-"`
	Body   []byte       `json:"-"`
}

// text decodes an output of type bytes.
func (p prediction) text() string {
	var output struct {
		B64 *[]byte `json:"b64"`
	}
	if err := json.Unmarshal(p.Output, &output); err != nil || output.B64 == nil {
		return fmt.Sprintf("not bytes: %s", p.Output)
	}
	return string(*output.B64)
}

// predicted reports whether the model itself answered.
func (a answer) predicted() bool { return a.Status == 200 && !a.Default && a.Output != nil }

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.Status, a.Body) }

// post sends a body. headers are alternating names and values.
func (g *gateway) post(ctx context.Context, path, contentType string, body []byte, headers ...string) (answer, error) {
	var a answer
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.functions+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := g.client.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	a.Status, a.Header = res.StatusCode, res.Header
	if a.Body, err = io.ReadAll(res.Body); err != nil {
		return a, err
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(a.Body, &a); err != nil {
			return a, fmt.Errorf("the answer is not JSON: %w: %.300s", err, a.Body)
		}
	}
	return a, nil
}

// raw calls a function with a raw body.
func (g *gateway) raw(function, body string, headers ...string) answer {
	g.t.Helper()
	a, err := g.post(bounded(g.t), "/"+function+"/predict", "text/plain", []byte(body), headers...)
	if err != nil {
		g.t.Fatalf("%s: %v", function, err)
	}
	return a
}

// json sends a JSON body to any path.
func (g *gateway) json(path, body string, headers ...string) answer {
	g.t.Helper()
	a, err := g.post(bounded(g.t), path, "application/json", []byte(body), headers...)
	if err != nil {
		g.t.Fatalf("%s: %v", path, err)
	}
	return a
}

// fetch sends a GET. Status 0 means that there was no answer.
func (g *gateway) fetch(ctx context.Context, url string) (status int, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	res, err := g.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// load is a closed loop of clients: each sends its next request when its last is answered.
type load struct {
	g       *gateway
	stopped atomic.Bool
	sent    atomic.Int64
	good    atomic.Int64 // predictions so far
	wg      sync.WaitGroup
	mu      sync.Mutex
	all     []outcome
}

// outcome is the result of one request: an answer, or an error of its connection.
type outcome struct {
	sent   string
	answer answer
	err    error
}

// startLoad calls a function with distinct raw inputs until stop is called or most requests are sent.
func (g *gateway) startLoad(function string, clients, most int, headers ...string) *load {
	l := &load{g: g}
	ctx := bounded(g.t)
	for range clients {
		l.wg.Go(func() {
			for !l.stopped.Load() {
				n := l.sent.Add(1)
				if n > int64(most) {
					return
				}
				o := outcome{sent: fmt.Sprintf("input %d of the load", n)}
				o.answer, o.err = g.post(ctx, "/"+function+"/predict", "text/plain", []byte(o.sent), headers...)
				if o.err == nil && o.answer.predicted() {
					l.good.Add(1)
				}
				l.mu.Lock()
				l.all = append(l.all, o)
				l.mu.Unlock()
				if o.err != nil {
					return
				}
			}
		})
	}
	g.t.Cleanup(func() { l.stop() })
	return l
}

// stop ends the load and returns the outcome of every request.
func (l *load) stop() []outcome {
	l.stopped.Store(true)
	l.wg.Wait()
	return l.all
}

// served waits until the model has answered n more requests.
func (l *load) served(n int64) {
	l.g.t.Helper()
	until := l.good.Load() + n
	l.g.await(fmt.Sprintf("%d more predictions", n), func(context.Context) (bool, string) {
		return l.good.Load() >= until, fmt.Sprintf("%d of %d", l.good.Load(), until)
	})
}

// judge checks that each request was answered, by the model's output for its own input, by the default, or by one of the
// codes, and that no query id occurs twice. It returns how many requests ended in "ok", "default" and each code.
func judge(t *testing.T, all []outcome, codes ...string) map[string]int {
	t.Helper()
	ends := map[string]int{}
	ids := map[uint64]bool{}
	allowed := map[string]bool{}
	for _, c := range codes {
		allowed[c] = true
	}
	for _, o := range all {
		a := o.answer
		end := a.Code
		switch {
		case o.err != nil:
			t.Errorf("%q was not answered: %v", o.sent, o.err)
			continue
		case a.predicted():
			if end = "ok"; a.text() != o.sent {
				t.Errorf("%q was answered by %q", o.sent, a.text())
			}
		case a.Status == 200 && a.Default:
			end = "default"
			if a.DefaultExplanation == "" {
				t.Errorf("%q got the default without a reason: %v", o.sent, a)
			}
		}
		if !allowed[end] {
			t.Errorf("%q ended in %q (%v): expected one of %v", o.sent, end, a, codes)
		}
		if a.QueryID != nil {
			if ids[*a.QueryID] {
				t.Errorf("two answers have query id %d", *a.QueryID)
			}
			ids[*a.QueryID] = true
		}
		ends[end]++
	}
	return ends
}

// result is the output and the exit status of a command.
type result struct {
	out, err string
	status   int
}

// xebec runs the command line against the gateway.
func (g *gateway) xebec(args ...string) result {
	g.t.Helper()
	return g.xebecIn(g.dir, "", args...)
}

func (g *gateway) xebecIn(dir, stdin string, args ...string) result {
	g.t.Helper()
	cmd := exec.CommandContext(bounded(g.t), programs.xebec, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "XEBEC_ADMIN="+g.admin, "XEBEC_SERVER="+g.functions, "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.t.Fatalf("%s: %v", cmd, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that has to succeed, and returns its output.
func (g *gateway) must(args ...string) string {
	g.t.Helper()
	r := g.xebec(args...)
	if r.status != 0 {
		g.t.Fatalf("xebec %s: status %d\n%s%s", strings.Join(args, " "), r.status, r.out, r.err)
	}
	return r.out
}
