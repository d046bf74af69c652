package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/worker"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// netpoll's pollers and Hertz's clock live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"),
		goleak.IgnoreAnyFunction("github.com/bytedance/gopkg/util/gopool.(*worker).run.func1"), goleak.IgnoreAnyFunction("github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// The manifests of these tests.
const (
	model = `
kind: Model
name: m
version: "1"
inputs:  [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py], env: {A: b}}
replicas: {min: 1, max: 2}
`
	fn = `
---
kind: Function
name: f
models: [m]
slo: 20ms
default: -1
`
)

// version is the model's manifest with another version, and other replacements.
func version(v string, more ...string) string {
	return strings.NewReplacer(append([]string{`version: "1"`, `version: "` + v + `"`}, more...)...).Replace(model)
}

// sleeper is a model that answers 1, with more lines of its declaration.
func sleeper(name string, more ...string) string {
	return fmt.Sprintf(`kind: Model
name: %s
inputs:  [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: int32, shape: []}]
run: {command: [python, model.py]}
cache: off
%s
`, name, strings.Join(more, "\n"))
}

// qualified is the manifest of a version with a warm-up or a validation, whose queries are in q.jsonl.
func qualified(t *testing.T, v, what, queries string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "q.jsonl"), []byte(queries), 0o600); err != nil {
		t.Fatal(err)
	}
	return version(v) + "dir: " + dir + "\n" + what
}

const labelled = `{"input":[1,2,3,4],"label":2}` + "\n"

func decoded(t *testing.T, text string) *manifest.Set {
	t.Helper()
	set, err := manifest.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func mustApply(t *testing.T, s *Server, texts ...string) {
	t.Helper()
	if _, err := s.Apply(context.Background(), decoded(t, strings.Join(texts, "\n---\n")), false); err != nil {
		t.Fatal(err)
	}
}

// put writes a model directory below dir.
func put(t *testing.T, dir, version, text string) {
	t.Helper()
	at := filepath.Join(dir, version)
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "xebec.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.OK
}

// listening starts a gateway on ports of its own. It ends with the test, or when stop is called.
func listening(t *testing.T, cfg Config) (s *Server, stop func()) {
	t.Helper()
	cfg.Listen, cfg.Admin = "127.0.0.1:0", cmp.Or(cfg.Admin, "127.0.0.1:0")
	s = New(cfg)
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
		defer cancel()
		http.DefaultClient.CloseIdleConnections() // the gateway would wait for them
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// started is a gateway over a runtime whose replicas never connect.
func started(t *testing.T, cfg Config) (*Server, *idleRuntime, string) {
	t.Helper()
	rt := newIdle()
	cfg.Runtime = rt
	s, _ := listening(t, cfg)
	return s, rt, s.Listen()
}

// alive is a gateway over replicas in this process.
func alive(t *testing.T, cfg Config) (*Server, *liveRuntime, string) {
	t.Helper()
	s, rt, addr, _ := aliveUntil(t, cfg)
	return s, rt, addr
}

// aliveUntil is alive for tests that end the gateway themselves. behave says how replicas behave before the gateway starts.
func aliveUntil(t *testing.T, cfg Config, behave ...func(*liveRuntime)) (s *Server, rt *liveRuntime, addr string, stop func()) {
	t.Helper()
	rt = &liveRuntime{
		dumb: map[api.ModelID]bool{}, exits: map[api.ModelID]bool{}, hang: map[api.ModelID]chan struct{}{}, fail: map[api.ModelID]bool{},
		slow: map[api.ModelID]chan struct{}{}, takes: map[api.ModelID]time.Duration{}, expected: map[uint64]worker.Expectation{},
	}
	for _, set := range behave {
		set(rt)
	}
	cfg.Runtime, cfg.Transport = rt, func(func() api.Nanos) (worker.Transport, error) { return rt, nil }
	s, stop = listening(t, cfg)
	return s, rt, s.Listen(), stop
}

// testTimeout is how long a condition may take to come true on a busy machine.
const testTimeout = time.Minute

// until polls a condition until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	late := time.After(testTimeout)
	for !holds() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// deployed is a version that is declared; nil: there is none.
func deployed(s *Server, name, version string) *versions.Version {
	defer s.catalog.Unlock()
	return s.catalog.Lock().Version(api.ModelID{Name: name, Version: version})
}

// inState is a condition: a version is in a state.
func inState(s *Server, name, version string, want registry.State) func() bool {
	return func() bool {
		defer s.catalog.Unlock()
		v := s.catalog.Lock().Version(api.ModelID{Name: name, Version: version})
		return v != nil && v.State == want
	}
}

// stateIs is inState of a version of model m.
func stateIs(s *Server, v string, want registry.State) func() bool { return inState(s, "m", v, want) }

// judged is a condition: a version of m has been warmed up and validated, or rejected.
func judged(s *Server, v string) func() bool {
	return func() bool { return stateIs(s, v, registry.Available)() || stateIs(s, v, registry.Rejected)() }
}

// serves is a condition: a version of m serves.
func serves(s *Server, v string) func() bool {
	return func() bool {
		defer s.catalog.Unlock()
		f := s.catalog.Lock().Family("m")
		return f != nil && f.Serving == v && f.Versions[v] != nil && f.Versions[v].State == registry.Available
	}
}

// asleep is a condition: a version is available and has no replica.
func asleep(s *Server, name, version string) func() bool {
	return func() bool {
		v := deployed(s, name, version)
		return v != nil && inState(s, name, version, registry.Available)() && v.Asked() == 0 && len(v.Status().Replicas) == 0
	}
}

// running is how many replicas version 1 of a model has, including those that are starting or ending.
func running(s *Server, name string) int {
	v := deployed(s, name, "1")
	if v == nil {
		return -1
	}
	return len(v.Status().Replicas)
}

// held is how many queries a version's lane holds.
func held(v *versions.Version) int {
	var snap scheduler.Snapshot
	v.Lane().Snapshot(&snap)
	return snap.Held
}

// modelStatus is the status of a model with one version.
func modelStatus(t *testing.T, s *Server, name string) api.ModelStatus {
	t.Helper()
	all, err := s.Models(context.Background(), name)
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %d versions, %v", name, len(all), err)
	}
	return all[0]
}

// versionStatus is the status of a version of m.
func versionStatus(t *testing.T, s *Server, version string) api.ModelStatus {
	t.Helper()
	all, err := s.Models(context.Background(), "m")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Spec.Version == version {
			return m
		}
	}
	t.Fatalf("m@%s is not declared", version)
	return api.ModelStatus{}
}

// mustBeAvailable checks the result of a version's warm-up or validation.
func mustBeAvailable(t *testing.T, s *Server, version string) {
	t.Helper()
	if v := versionStatus(t, s, version).Version; v.Phase != api.PhaseAvailable {
		t.Errorf("%s is %v: %s", version, v.Phase, v.Reason)
	}
}

// ask sends one query to a function.
func ask(t *testing.T, addr, name string) (int, string) {
	t.Helper()
	return post(t, addr, "/"+name+"/predict", `{"input":[1,2,3,4]}`)
}

// post sends a request to the function port, with headers ("Name: value").
func post(t *testing.T, addr, path, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("POST", "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(out)
}
